//! The URLs of lake tables: `delta+URL@version=12`, `iceberg+URL@snapshot=3055729675574597004`.

use super::lake_spec::TableFormat;

const DELTA: &str = "delta+";
const VERSION: &str = "@version=";
const ICEBERG: &str = "iceberg+";
const SNAPSHOT: &str = "@snapshot=";

/// Splits a URL into that of the table's folder and what to read of it; `None` if it is not the URL of a table.
pub(super) fn parse(url: &str) -> Option<Result<(&str, TableFormat), String>> {
    if let Some(table) = url.strip_prefix(DELTA) {
        let parsed = split(table, VERSION).ok_or_else(|| not_a_number("version", table, VERSION, "12"));
        return Some(parsed.map(|(url, version)| (url, TableFormat::Delta { version })));
    }
    let table = url.strip_prefix(ICEBERG)?;
    let parsed = split(table, SNAPSHOT).filter(|(_, id)| id.is_none_or(|id| i64::try_from(id).is_ok()));
    let parsed = parsed.ok_or_else(|| not_a_number("snapshot", table, SNAPSHOT, "3055729675574597004"));
    let format = |id: Option<u64>| TableFormat::Iceberg { metadata: None, snapshot: id.map(|id| id as i64) };
    Some(parsed.map(|(url, id)| (url, format(id))))
}

/// The URL and the number after the mark; `None` if that is not a number.
fn split<'a>(url: &'a str, mark: &str) -> Option<(&'a str, Option<u64>)> {
    match url.rsplit_once(mark) {
        Some((url, digits)) => Some((url, Some(digits.parse().ok()?))),
        None => Some((url, None)),
    }
}

fn not_a_number(noun: &str, url: &str, mark: &str, example: &str) -> String {
    let digits = url.rsplit_once(mark).map_or("", |(_, digits)| digits);
    format!("the {noun} \"{digits}\" is not a number: write {mark}{example}, or leave it out")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_snapshots_follow_the_url() {
        let parsed = |url: &'static str| parse(url).map(Result::unwrap);
        let iceberg = |snapshot| TableFormat::Iceberg { metadata: None, snapshot };
        for (url, want) in [
            ("s3://b/t@version=3", None),
            ("delta+s3://b/t", Some(("s3://b/t", TableFormat::Delta { version: None }))),
            ("delta+/a/t@version=0", Some(("/a/t", TableFormat::Delta { version: Some(0) }))),
            ("iceberg+/a/t@version=0", Some(("/a/t@version=0", iceberg(None)))),
            ("iceberg+s3://b/t@snapshot=1@snapshot=2", Some(("s3://b/t@snapshot=1", iceberg(Some(2))))),
        ] {
            assert_eq!(parsed(url), want, "{url}");
        }
    }

    #[test]
    fn errors_say_what_to_write() {
        for (url, word) in [
            ("delta+/t@version=x", "the version \"x\" is not a number: write @version=12"),
            ("iceberg+/t@snapshot=", "the snapshot \"\" is not a number"),
            ("iceberg+/t@snapshot=-1", "the snapshot \"-1\""),
            ("iceberg+/t@snapshot=9223372036854775808", "is not a number"),
        ] {
            let error = parse(url).unwrap().unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }
}
