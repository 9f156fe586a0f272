//! The URLs of lake tables: `delta+URL@version=12`, `iceberg+URL@snapshot=3055729675574597004`, and after either
//! `@root=URL` for each further folder that files of the table are in.

use super::lake_spec::TableFormat;

const DELTA: &str = "delta+";
const VERSION: &str = "@version=";
const ICEBERG: &str = "iceberg+";
const SNAPSHOT: &str = "@snapshot=";
const ROOT: &str = "@root=";

/// The parts of the URL of a table.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TableUrl<'a> {
    /// The URL of its folder or metadata file.
    pub url: &'a str,
    /// What to read of it.
    pub format: TableFormat,
    /// The URLs of further folders that its files may be in.
    pub roots: Vec<&'a str>,
}

/// Splits a URL into that of the table's folder and what follows it; `None` if it is not the URL of a table.
pub(super) fn parse(url: &str) -> Option<Result<TableUrl<'_>, String>> {
    if let Some(table) = url.strip_prefix(DELTA) {
        let parsed = split(table, VERSION).map_err(|digits| not_a_number("version", digits, VERSION, "12"));
        return Some(parsed.map(|Split { url, number, roots }| {
            let format = TableFormat::Delta { version: number };
            TableUrl { url, format, roots }
        }));
    }
    let table = url.strip_prefix(ICEBERG)?;
    let wrong = |digits: &str| not_a_number("snapshot", digits, SNAPSHOT, "3055729675574597004");
    let parsed = split(table, SNAPSHOT).map_err(wrong).and_then(|Split { url, number, roots }| {
        let snapshot = number.map(|id| i64::try_from(id).map_err(|_| wrong(&id.to_string()))).transpose()?;
        Ok(TableUrl { url, format: TableFormat::Iceberg { metadata: None, snapshot }, roots })
    });
    Some(parsed)
}

/// A URL without what follows it.
struct Split<'a> {
    url: &'a str,
    number: Option<u64>,
    roots: Vec<&'a str>,
}

/// Splits off the number after the mark and the folders after [`ROOT`], in any order; an error with what is not a number.
fn split<'a>(url: &'a str, mark: &str) -> Result<Split<'a>, &'a str> {
    let mut split = Split { url, number: None, roots: Vec::new() };
    loop {
        // A second number is part of the URL.
        let number_at = split.url.rfind(mark).filter(|_| split.number.is_none());
        match (number_at, split.url.rfind(ROOT)) {
            (Some(at), root_at) if root_at.is_none_or(|root_at| root_at < at) => {
                let digits = &split.url[at + mark.len()..];
                split.number = Some(digits.parse().map_err(|_| digits)?);
                split.url = &split.url[..at];
            }
            (_, Some(at)) => {
                split.roots.push(&split.url[at + ROOT.len()..]);
                split.url = &split.url[..at];
            }
            (_, None) => return Ok(split),
        }
    }
}

fn not_a_number(noun: &str, digits: &str, mark: &str, example: &str) -> String {
    format!("the {noun} \"{digits}\" is not a number: write {mark}{example}, or leave it out")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_snapshots_follow_the_url() {
        let parsed = |url: &'static str| parse(url).map(Result::unwrap).map(|table| (table.url, table.format));
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
    fn further_folders_follow_in_any_order() {
        for (url, want) in [
            ("delta+/a@root=/b", ("/a", None, vec!["/b"])),
            ("delta+/a@version=3@root=/b@root=/c=d", ("/a", Some(3), vec!["/c=d", "/b"])),
            ("delta+/a@root=/b@version=3", ("/a", Some(3), vec!["/b"])),
            ("delta+/a@root=", ("/a", None, vec![""])),
        ] {
            let (path, version, roots) = want;
            let want = TableUrl { url: path, format: TableFormat::Delta { version }, roots };
            assert_eq!(parse(url).unwrap().unwrap(), want, "{url}");
        }
        assert!(parse("delta+/a@version=x@root=/b").unwrap().unwrap_err().contains("the version \"x\""));
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
