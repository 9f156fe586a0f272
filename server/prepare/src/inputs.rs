//! `--dataset` → pinned snapshots of the files that the query reads.

use std::sync::Arc;

use chrono::{DateTime, SecondsFormat, Utc};
use forebay_server::{
    catalog::{Catalog, Location, Snapshot, Stores},
    cpu_pool::CpuPool,
};
use serde::Serialize;

use crate::error::PrepareError;

/// Longest name of a dataset.
const NAME_BYTES_MAX: usize = 128;

/// A dataset that the query reads, at the state that it had when the program started.
#[derive(Clone, Debug)]
pub(crate) struct Input {
    /// Its name in the query.
    pub name: String,
    /// Its URL as given.
    pub url: String,
    /// Its files.
    pub snapshot: Arc<Snapshot>,
}

/// An input in the manifest.
#[derive(Debug, Serialize)]
pub(crate) struct InputRecord {
    name: String,
    url: String,
    snapshot: String,
    rows: u64,
    bytes: u64,
    files: Vec<InputFile>,
}

#[derive(Debug, Serialize)]
struct InputFile {
    path: String,
    bytes: u64,
    etag: Option<String>,
    modified: String,
}

/// Lists every dataset and reads the footers of its files.
pub(crate) async fn open(values: &[String], stores: &mut Stores, cpu: &CpuPool) -> Result<Vec<Input>, PrepareError> {
    let mut named: Vec<(String, String)> = Vec::new();
    let mut locations = Vec::new();
    for value in values.iter().map(|value| value.trim()).filter(|value| !value.is_empty()) {
        let (name, url) = parse(value)?;
        if named.iter().any(|(known, _)| *known == name) {
            return Err(PrepareError::Usage(format!("--dataset {value}: the name \"{name}\" is set twice")));
        }
        locations.push((name.clone(), Location::parse(&name, &url, stores)?));
        named.push((name, url));
    }
    let catalog = Catalog::new(locations, cpu);
    catalog.check_paths()?;
    let mut inputs = Vec::with_capacity(named.len());
    for (name, url) in named {
        let snapshot = catalog.dataset(&name)?.present().await?;
        inputs.push(Input { name, url, snapshot });
    }
    Ok(inputs)
}

fn parse(value: &str) -> Result<(String, String), PrepareError> {
    let wrong = |reason: String| PrepareError::Usage(format!("--dataset {value}: {reason}"));
    let (name, url) =
        value.split_once('=').ok_or_else(|| wrong("expected NAME=URL, such as flights=data/flights".to_owned()))?;
    let is_name = !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && !name.contains(['/', '\\', '"'])
        && !name.contains(char::is_control);
    if !is_name {
        return Err(wrong(format!("the name must be 1 to {NAME_BYTES_MAX} bytes without slashes and quotes")));
    }
    Ok((name.to_owned(), url.to_owned()))
}

/// Checks that no local file was replaced while the query ran. Reads of remote files are conditional.
pub(crate) async fn check_unchanged(inputs: &[Input]) -> Result<(), PrepareError> {
    for input in inputs {
        for file in input.snapshot.files() {
            let checked = input.snapshot.store().check_after_reads(file.object()).await;
            checked.map_err(|error| PrepareError::Changed(error.to_string()))?;
        }
    }
    Ok(())
}

// === impl InputRecord ===

impl InputRecord {
    pub(crate) fn new(input: &Input) -> Self {
        let modified = |at: DateTime<Utc>| at.to_rfc3339_opts(SecondsFormat::Micros, true);
        let files = input.snapshot.files().iter().map(|file| InputFile {
            path: file.display().to_owned(),
            bytes: file.object().size,
            etag: file.object().e_tag.clone(),
            modified: modified(file.object().last_modified),
        });
        Self {
            name: input.name.clone(),
            url: input.url.clone(),
            snapshot: input.snapshot.digest().to_owned(),
            rows: input.snapshot.row_count(),
            bytes: input.snapshot.byte_count(),
            files: files.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn names_and_urls_are_split_at_the_first_equals_sign() {
        assert_eq!(parse("a=/x/day=1").unwrap(), ("a".to_owned(), "/x/day=1".to_owned()));
        for value in ["a", "=x", "a/b=x", "a\"=x"] {
            assert!(parse(value).is_err(), "{value}");
        }
    }
}
