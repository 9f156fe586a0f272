//! The URLs of datasets on a hub: `hf://datasets/OWNER/NAME[@REVISION][/PATH]`.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// Where a repository of datasets begins in a URL.
const DATASETS: &str = "datasets/";

/// The revision of a URL that names none.
pub(super) const MAIN: &str = "main";

/// The folders of revisions whose names have slashes, and the short form of the first one.
const CONVERTED: &str = "refs/convert/";
const PULL_REQUEST: &str = "refs/pr/";
const CONVERTED_SHORT: char = '~';

/// The bytes of a revision that a segment of a URL cannot have.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

/// Longest name of an owner or a repository, and of a revision.
const NAME_BYTES_MAX: usize = 96;
const REVISION_BYTES_MAX: usize = 255;

/// Digits of the name of a commit.
const COMMIT_DIGITS: usize = 40;

/// A repository of a dataset at a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Repository {
    pub owner: String,
    pub name: String,
    /// The name of a branch, a tag or a commit.
    pub revision: String,
}

/// Splits what follows `hf://` into the part that names a repository and its revision, in one form for each, and the path
/// in it.
pub(crate) fn split(rest: &str) -> Result<(String, &str), String> {
    let expected =
        || "hf:// must be followed by datasets/OWNER/NAME, then @REVISION or nothing, then a path".to_owned();
    let repository = rest.strip_prefix(DATASETS).ok_or_else(expected)?;
    let (owner, rest) = repository.split_once('/').ok_or_else(expected)?;
    let end = rest.find(['/', '@']).unwrap_or(rest.len());
    let (name, rest) = rest.split_at(end);
    for part in [owner, name] {
        check_name(part)?;
    }
    let (revision, path) = match rest.strip_prefix('@') {
        Some(rest) => revision(rest)?,
        None => (MAIN.to_owned(), rest),
    };
    let repository = Repository { owner: owner.to_owned(), name: name.to_owned(), revision };
    Ok((repository.authority(), path.strip_prefix('/').unwrap_or(path)))
}

/// Splits what follows `@` into the revision and the rest.
fn revision(rest: &str) -> Result<(String, &str), String> {
    let folders = [CONVERTED, PULL_REQUEST];
    let folder = folders.into_iter().find(|folder| rest.starts_with(folder)).unwrap_or_default();
    let end = rest[folder.len()..].find('/').map_or(rest.len(), |end| folder.len() + end);
    let (written, path) = rest.split_at(end);
    let decoded = percent_decode_str(written).decode_utf8().map_err(|_| "the revision is not UTF-8".to_owned())?;
    let revision = match decoded.strip_prefix(CONVERTED_SHORT) {
        Some(name) => format!("{CONVERTED}{name}"),
        None => decoded.into_owned(),
    };
    let is_revision = !revision.is_empty()
        && revision.len() <= REVISION_BYTES_MAX
        && !revision.contains("..")
        && !revision.contains(|letter: char| letter.is_control() || letter.is_whitespace());
    if !is_revision {
        return Err("@ must be followed by the name of a branch, a tag or a commit".to_owned());
    }
    Ok((revision, path))
}

/// Checks the name of an owner or a repository, which becomes a part of URLs.
fn check_name(name: &str) -> Result<(), String> {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    let is_name =
        !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.chars().all(is_letter) && !name.starts_with('.');
    if is_name { Ok(()) } else { Err(format!("\"{name}\" is not the name of an owner or a dataset")) }
}

// === impl Repository ===

impl Repository {
    /// Parses the first part that [`split`] returns.
    pub(super) fn parse(authority: &str) -> Result<Self, String> {
        let wrong = || format!("\"{authority}\" is not a dataset of a hub");
        let (owner, rest) = authority.strip_prefix(DATASETS).and_then(|rest| rest.split_once('/')).ok_or_else(wrong)?;
        let (name, written) = rest.split_once('@').unwrap_or((rest, MAIN));
        let (revision, rest) = revision(written)?;
        if rest.is_empty() {
            Ok(Self { owner: owner.to_owned(), name: name.to_owned(), revision })
        } else {
            Err(wrong())
        }
    }

    fn authority(&self) -> String {
        let Self { owner, name, revision } = self;
        let revision = if revision == MAIN { String::new() } else { format!("@{}", self.encoded_revision()) };
        format!("{DATASETS}{owner}/{name}{revision}")
    }

    /// The revision as one segment of a URL.
    pub(super) fn encoded_revision(&self) -> String {
        utf8_percent_encode(&self.revision, ENCODED).to_string()
    }

    /// The commit, if the revision names one: its files never change.
    pub(super) fn commit(&self) -> Option<&str> {
        Some(self.revision.as_str()).filter(|revision| is_commit(revision))
    }
}

/// Whether a text is the name of a commit.
fn is_commit(text: &str) -> bool {
    text.len() == COMMIT_DIGITS && text.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_a_repository_a_revision_and_a_path() {
        for (rest, authority, revision, path) in [
            ("datasets/o/n", "datasets/o/n", "main", ""),
            ("datasets/o/n/", "datasets/o/n", "main", ""),
            ("datasets/o/n@main/data/*.parquet", "datasets/o/n", "main", "data/*.parquet"),
            ("datasets/o.x/n-1@v1.0/a b", "datasets/o.x/n-1@v1.0", "v1.0", "a b"),
            ("datasets/o/n@~parquet/x", "datasets/o/n@refs%2Fconvert%2Fparquet", "refs/convert/parquet", "x"),
            (
                "datasets/o/n@refs/convert/parquet/x/y",
                "datasets/o/n@refs%2Fconvert%2Fparquet",
                "refs/convert/parquet",
                "x/y",
            ),
            ("datasets/o/n@refs/pr/3", "datasets/o/n@refs%2Fpr%2F3", "refs/pr/3", ""),
            ("datasets/o/n@a%2Fb/c@d", "datasets/o/n@a%2Fb", "a/b", "c@d"),
            ("datasets/o/n/c@d", "datasets/o/n", "main", "c@d"),
        ] {
            assert_eq!(split(rest).unwrap(), (authority.to_owned(), path), "{rest}");
            let repository = Repository::parse(authority).unwrap();
            assert_eq!((repository.revision.as_str(), repository.authority()), (revision, authority.to_owned()));
        }
    }

    #[test]
    fn other_urls_are_refused() {
        for rest in [
            "",
            "datasets",
            "datasets/",
            "datasets/o",
            "datasets//n",
            "datasets/o/",
            "o/n",
            "spaces/o/n",
            "datasets/../n",
            "datasets/o/n@",
            "datasets/o/n@/x",
            "datasets/o/n@a%2F..%2Fb",
            "datasets/o/n?x",
            "datasets/o/n@a%20b",
            "datasets/o/n@%ff",
        ] {
            assert!(split(rest).is_err(), "{rest}");
        }
    }

    #[test]
    fn only_whole_names_of_commits_pin() {
        let commit = "0123456789abcdef0123456789abcdef01234567";
        for (revision, is_pinned) in [(commit, true), (&commit[1..], false), ("main", false)] {
            let repository = Repository::parse(&format!("datasets/o/n@{revision}")).unwrap();
            assert_eq!(repository.commit().is_some(), is_pinned, "{revision}");
        }
    }
}
