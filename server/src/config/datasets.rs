//! `--dataset`, `--int96-unit` and `--dataset-schema` → names and locations.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use forebay_catalog::{Int96Unit, Location, PinnedSchema, Stores};
use forebay_runtime::error::near_names;

use super::{
    error::{ConfigError, ConfigProblems, wrong},
    flags::Flags,
};

/// Longest name of a dataset.
const NAME_BYTES_MAX: usize = 128;

/// Returns every valid dataset, in the order of the command line, and the problems of the others.
pub(super) fn open(flags: &Flags) -> (Vec<(String, Location)>, ConfigProblems) {
    let mut problems = ConfigProblems::default();
    let mut datasets: Vec<(String, Location)> = Vec::new();
    let mut stores = Stores::new(flags.storage_requests_max as usize);
    let values = || flags.dataset.iter().map(|value| value.trim()).filter(|value| !value.is_empty());
    for value in values() {
        let Some((name, location)) = problems.one(dataset(value, &mut stores, flags.dataset_files_max as usize)) else {
            continue;
        };
        if datasets.iter().any(|(known, _)| *known == name) {
            problems.one::<()>(Err(wrong("dataset", value, format!("the name \"{name}\" is set twice"))));
        } else {
            datasets.push((name, location));
        }
    }
    if values().next().is_none() {
        problems.one::<()>(Err(wrong("dataset", "", "at least one NAME=URL is required")));
    }
    let units = problems.one(int96_units(values(), &flags.int96_unit)).unwrap_or_default();
    let schemas = problems.one(pinned_schemas(values(), &flags.dataset_schema, &units)).unwrap_or_default();
    for (name, _) in
        datasets.iter().filter(|(name, location)| location.is_lake() && schemas.contains_key(name.as_str()))
    {
        let reason = format!("\"{name}\" is a lake table, which has its own schema: remove the flag");
        problems.one::<()>(Err(wrong("dataset-schema", name, reason)));
    }
    let completed = |(name, location): (String, Location)| {
        let unit = units.get(name.as_str()).copied().unwrap_or_default();
        let location = location.with_int96_unit(unit).with_schema(schemas.get(name.as_str()).cloned());
        (name, location)
    };
    (datasets.into_iter().map(completed).collect(), problems)
}

fn dataset(value: &str, stores: &mut Stores, files_max: usize) -> Result<(String, Location), ConfigError> {
    let allowed = "expected NAME=URL, such as flights=data/flights";
    let (name, url) = value.split_once('=').ok_or_else(|| wrong("dataset", value, allowed))?;
    check_name(name).map_err(|reason| wrong("dataset", value, format!("{reason}; {allowed}")))?;
    let location = Location::parse(name, url, stores)?.with_files_max(files_max);
    Ok((name.to_owned(), location))
}

/// Checks the name of a dataset.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let is_name = !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && !name.contains(['/', '\\'])
        && !name.contains(char::is_control);
    if is_name { Ok(()) } else { Err(format!("the name must be 1 to {NAME_BYTES_MAX} bytes without slashes")) }
}

/// Returns the unit of INT96 timestamps of each of these `--dataset` values that an `--int96-unit` value names.
pub fn int96_units<'a>(
    datasets: impl Iterator<Item = &'a str>,
    values: &'a [String],
) -> Result<BTreeMap<&'a str, Int96Unit>, ConfigError> {
    of_datasets("int96-unit", datasets, values, |_, unit| match unit {
        "us" => Ok(Int96Unit::Microseconds),
        "ns" => Ok(Int96Unit::Nanoseconds),
        _ => Err("expected NAME=us or NAME=ns, such as flights=ns".to_owned()),
    })
}

/// Returns the pinned schema of each of these `--dataset` values that a `--dataset-schema` value names. Reads the
/// footers of their files.
pub fn pinned_schemas<'a>(
    datasets: impl Iterator<Item = &'a str>,
    values: &'a [String],
    units: &BTreeMap<&str, Int96Unit>,
) -> Result<BTreeMap<&'a str, Arc<PinnedSchema>>, ConfigError> {
    of_datasets("dataset-schema", datasets, values, |name, path| {
        if path.is_empty() {
            return Err("expected NAME=FILE, such as flights=schemas/flights.parquet".to_owned());
        }
        let read = PinnedSchema::read(Path::new(path), units.get(name).copied().unwrap_or_default());
        read.map(Arc::new).map_err(|reason| format!("cannot read the schema of a Parquet file: {reason}"))
    })
}

/// Parses values of the form NAME=VALUE, each for one of the datasets.
fn of_datasets<'a, T>(
    flag: &'static str,
    datasets: impl Iterator<Item = &'a str>,
    values: &'a [String],
    parse: impl Fn(&str, &str) -> Result<T, String>,
) -> Result<BTreeMap<&'a str, T>, ConfigError> {
    let names: Vec<&str> = datasets.filter_map(|value| value.split_once('=')).map(|(name, _)| name).collect();
    let mut parsed: BTreeMap<&str, T> = BTreeMap::new();
    for value in values.iter().map(|value| value.trim()).filter(|value| !value.is_empty()) {
        let wrong = |reason: String| wrong(flag, value, reason);
        let (name, rest) = value.split_once('=').unwrap_or((value, ""));
        let of_name = parse(name, rest).map_err(wrong)?;
        if !names.contains(&name) {
            let near = near_names(name, names.iter().copied());
            return Err(wrong(format!("no --dataset is named \"{name}\": {near}")));
        }
        if parsed.insert(name, of_name).is_some() {
            return Err(wrong(format!("the name \"{name}\" is set twice")));
        }
    }
    Ok(parsed)
}
