//! What the errors of all modules share: suggestions of names, and what others than the caller may see.
//!
//! Each module defines its error enum next to the code that returns it; `flight::status` maps them to gRPC codes.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// Longest list of names in an error.
const NAMES_LISTED_MAX: usize = 8;

/// The most bytes of a name that is compared with others: comparing takes time in proportion to both lengths.
const COMPARED_BYTES_MAX: usize = 128;

/// The most names that a name is compared with.
const COMPARED_NAMES_MAX: usize = 4096;

/// The most characters of a name in an error.
const CHARACTERS_MAX: usize = 128;

/// What of an error others than its caller may see: the log at its default level, and the status page, which needs no
/// credentials. Nothing, unless the producer of the error allows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disclosure {
    /// The column concerned.
    pub column: Option<String>,
    /// Whether the text has only names, paths and numbers: no value of a row, no text of a request's expressions, and no
    /// plan id.
    pub is_plain: bool,
}

impl Disclosure {
    /// The text may be shown.
    pub fn plain() -> Self {
        Self { column: None, is_plain: true }
    }

    /// The text may not be shown.
    pub fn hidden() -> Self {
        Self::default()
    }

    /// The same, with the column that it is about.
    #[must_use]
    pub fn of_column(self, column: &str) -> Self {
        Self { column: Some(column.to_owned()), ..self }
    }
}

/// Returns suggestions for a name that does not exist, as the end of a sentence: similar names, or else the first few. Names
/// of more than 128 bytes are similar to none.
pub fn near_names<'a>(unknown: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    if names.is_empty() {
        return "there is none".to_owned();
    }
    let is_short = |name: &&str| name.len() <= COMPARED_BYTES_MAX;
    let compared = names.iter().copied().filter(|_| is_short(&unknown)).filter(is_short).take(COMPARED_NAMES_MAX);
    let lower = if is_short(&unknown) { unknown.to_lowercase() } else { String::new() };
    let mut near: Vec<(f64, &str)> =
        compared.map(|name| (strsim::jaro_winkler(&lower, &name.to_lowercase()), name)).collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0));
    let close: Vec<&str> = near.iter().filter(|(score, _)| *score > 0.8).take(3).map(|(_, name)| *name).collect();
    if !close.is_empty() {
        return format!("did you mean {}?", quoted(&close));
    }
    let more = if names.len() > NAMES_LISTED_MAX { ", …" } else { "" };
    format!("there is {}{more}", quoted(&names[..names.len().min(NAMES_LISTED_MAX)]))
}

fn quoted(names: &[&str]) -> String {
    names.iter().map(|name| format!("\"{}\"", shortened(name))).collect::<Vec<_>>().join(", ")
}

/// The first characters of a long name.
fn shortened(name: &str) -> Cow<'_, str> {
    match name.char_indices().nth(CHARACTERS_MAX) {
        Some((end, _)) => Cow::Owned(format!("{}…", &name[..end])),
        None => Cow::Borrowed(name),
    }
}

#[cfg(test)]
mod tests {
    use super::near_names;

    #[test]
    fn similar_names_are_suggested_and_long_lists_are_truncated() {
        assert_eq!(near_names("Dep_delay", ["dep_delay", "x"]), "did you mean \"dep_delay\"?");
        assert_eq!(near_names("zzz", ["a", "b"]), "there is \"a\", \"b\"");
        assert_eq!(near_names("a", []), "there is none");
        let many: Vec<String> = (0..100).map(|i| format!("column{i}")).collect();
        assert!(near_names("zzz", many.iter().map(String::as_str)).ends_with("…"));
    }

    #[test]
    fn long_names_are_neither_compared_nor_written_out() {
        let (long, other) = ("n".repeat(1 << 20), format!("{}m", "n".repeat(1 << 20)));
        assert_eq!(near_names(&long, ["nn", "m"]), "there is \"nn\", \"m\"");
        assert_eq!(near_names("nn", [other.as_str()]), format!("there is \"{}…\"", "n".repeat(128)));
        let (known, unknown) = ("a".repeat(128), format!("{}b", "a".repeat(127)));
        assert!(near_names(&unknown, [known.as_str()]).starts_with("did you mean"));
    }
}
