//! `--dataset` → pinned snapshots of the files that the query reads.

use std::sync::Arc;

use chrono::{DateTime, SecondsFormat, Utc};
use clap::Args;
use forebay_catalog::{Catalog, Location, Snapshot, Stores};
use forebay_runtime::{cpu_pool::CpuPool, error::near_names};
use forebay_server::config;
use serde::Serialize;

use crate::error::PrepareError;

/// Longest name of a dataset.
const NAME_BYTES_MAX: usize = 128;

/// The flags of datasets.
#[derive(Args, Clone, Debug)]
pub(crate) struct InputFlags {
    /// A dataset that is read, in the forms of forebay-server: a directory, a file or a glob of Parquet, the
    /// same in a bucket (s3://bucket/…, gs://…, az://container/…), or one file on a web server. May be repeated; in the
    /// environment, one per line.
    #[expect(clippy::doc_markdown, reason = "the text of --help")]
    #[arg(long, env = "FOREBAY_DATASET", value_name = "NAME=URL", value_delimiter = '\n')]
    pub(crate) dataset: Vec<String>,

    /// Unit in which a dataset's INT96 timestamps are read, as in forebay-server: us (the default) or ns. May be repeated.
    #[arg(long, env = "FOREBAY_INT96_UNIT", value_name = "NAME=UNIT", value_delimiter = '\n')]
    pub(crate) int96_unit: Vec<String>,

    /// File whose schema a dataset has, as in forebay-server: a Parquet file on this machine. May be repeated.
    #[arg(long, env = "FOREBAY_DATASET_SCHEMA", value_name = "NAME=FILE", value_delimiter = '\n')]
    pub(crate) dataset_schema: Vec<String>,

    /// Digest of the snapshot that a dataset must have, as forebay-server names it; another one is an error. May be
    /// repeated.
    #[arg(long, env = "FOREBAY_SNAPSHOT", value_name = "NAME=DIGEST", value_delimiter = '\n')]
    pub(crate) snapshot: Vec<String>,
}

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
pub(crate) async fn open(flags: &InputFlags, stores: &mut Stores, cpu: &CpuPool) -> Result<Vec<Input>, PrepareError> {
    let (catalog, named) = catalog(flags, stores, cpu)?;
    let inputs = pinned(&catalog, named, flags).await?;
    for Input { name, url, snapshot } in &inputs {
        if let Some(file) = snapshot.files().iter().find(|file| file.arrow().is_some()) {
            let reason =
                format!("--dataset {name}={url}: \"{}\" is an Arrow IPC file, and SQL reads Parquet", file.display());
            return Err(PrepareError::Usage(format!("{reason}: `forebay convert` writes it")));
        }
    }
    Ok(inputs)
}

/// Lists the datasets of a catalog and reads the footers of their files.
pub(crate) async fn pinned(
    catalog: &Catalog,
    named: Vec<(String, String)>,
    flags: &InputFlags,
) -> Result<Vec<Input>, PrepareError> {
    let mut inputs = Vec::with_capacity(named.len());
    for (name, url) in named {
        let snapshot = catalog.dataset(&name)?.present().await?;
        inputs.push(Input { name, url, snapshot });
    }
    check_snapshots(&inputs, &flags.snapshot)?;
    Ok(inputs)
}

/// The datasets, with their names and URLs in the order of the flags. Reads no files.
pub(crate) fn catalog(
    flags: &InputFlags,
    stores: &mut Stores,
    cpu: &CpuPool,
) -> Result<(Catalog, Vec<(String, String)>), PrepareError> {
    let units = config::int96_units(present(&flags.dataset), &flags.int96_unit)
        .map_err(|error| PrepareError::Usage(error.to_string()))?;
    let schemas = config::pinned_schemas(present(&flags.dataset), &flags.dataset_schema, &units)
        .map_err(|error| PrepareError::Usage(error.to_string()))?;
    let mut named: Vec<(String, String)> = Vec::new();
    let mut locations = Vec::new();
    for value in present(&flags.dataset) {
        let (name, url) = parse(value)?;
        if named.iter().any(|(known, _)| *known == name) {
            return Err(PrepareError::Usage(format!("--dataset {value}: the name \"{name}\" is set twice")));
        }
        let unit = units.get(name.as_str()).copied().unwrap_or_default();
        let location = Location::parse(&name, &url, stores)?.with_int96_unit(unit);
        if location.is_lake() {
            let reason = "lake tables are not supported yet: copy the table to Parquet files";
            return Err(PrepareError::Usage(format!("--dataset {value}: {reason}")));
        }
        locations.push((name.clone(), location.with_schema(schemas.get(name.as_str()).cloned())));
        named.push((name, url));
    }
    let catalog = Catalog::new(locations, cpu);
    catalog.check_paths()?;
    Ok((catalog, named))
}

fn present(values: &[String]) -> impl Iterator<Item = &str> {
    values.iter().map(|value| value.trim()).filter(|value| !value.is_empty())
}

/// Checks that datasets have the snapshots of `--snapshot`.
fn check_snapshots(inputs: &[Input], values: &[String]) -> Result<(), PrepareError> {
    for value in present(values) {
        let wrong = |reason: String| PrepareError::Usage(format!("--snapshot {value}: {reason}"));
        let (name, digest) = value.split_once('=').ok_or_else(|| wrong("expected NAME=DIGEST".to_owned()))?;
        let input = inputs.iter().find(|input| input.name == name).ok_or_else(|| {
            let near = near_names(name, inputs.iter().map(|input| input.name.as_str()));
            wrong(format!("no --dataset is named \"{name}\": {near}"))
        })?;
        let found = input.snapshot.digest();
        if found != digest {
            let reason = format!("dataset \"{name}\" is now snapshot {found}, not {digest}");
            return Err(PrepareError::Changed(reason));
        }
    }
    Ok(())
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
