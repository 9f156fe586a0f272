//! `--dataset` and `--int96-unit` → names and locations.

use std::collections::BTreeMap;

use super::{
    error::{ConfigError, wrong},
    flags::Flags,
};
use crate::{
    catalog::{Int96Unit, Location, Stores},
    error::near_names,
};

/// Longest name of a dataset.
const NAME_BYTES_MAX: usize = 128;

/// Returns every dataset, in the order of the command line.
pub(super) fn open(flags: &Flags) -> Result<Vec<(String, Location)>, ConfigError> {
    let mut datasets: Vec<(String, Location)> = Vec::new();
    let mut stores = Stores::new(flags.storage_requests_max as usize);
    for value in flags.dataset.iter().map(|value| value.trim()).filter(|value| !value.is_empty()) {
        let (name, location) = dataset(value, &mut stores)?;
        if datasets.iter().any(|(known, _)| *known == name) {
            return Err(wrong("dataset", value, format!("the name \"{name}\" is set twice")));
        }
        datasets.push((name, location));
    }
    if datasets.is_empty() {
        return Err(wrong("dataset", "", "at least one NAME=URL is required"));
    }
    with_int96_units(datasets, &flags.int96_unit)
}

fn dataset(value: &str, stores: &mut Stores) -> Result<(String, Location), ConfigError> {
    let allowed = "expected NAME=URL, such as flights=data/flights";
    let (name, url) = value.split_once('=').ok_or_else(|| wrong("dataset", value, allowed))?;
    let named = !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && !name.contains(['/', '\\'])
        && !name.contains(char::is_control);
    if !named {
        let reason = format!("the name must be 1 to {NAME_BYTES_MAX} bytes without slashes; {allowed}");
        return Err(wrong("dataset", value, reason));
    }
    Ok((name.to_owned(), Location::parse(name, url, stores)?))
}

/// Sets the unit of INT96 timestamps of each dataset named in `values`.
fn with_int96_units(
    datasets: Vec<(String, Location)>,
    values: &[String],
) -> Result<Vec<(String, Location)>, ConfigError> {
    let mut units: BTreeMap<&str, Int96Unit> = BTreeMap::new();
    for value in values.iter().map(|value| value.trim()).filter(|value| !value.is_empty()) {
        let wrong = |reason: String| wrong("int96-unit", value, reason);
        let (name, unit) = value.split_once('=').unwrap_or((value, ""));
        let unit = match unit {
            "us" => Int96Unit::Microseconds,
            "ns" => Int96Unit::Nanoseconds,
            _ => return Err(wrong("expected NAME=us or NAME=ns, such as flights=ns".to_owned())),
        };
        if !datasets.iter().any(|(known, _)| known == name) {
            let near = near_names(name, datasets.iter().map(|(known, _)| known.as_str()));
            return Err(wrong(format!("no --dataset is named \"{name}\": {near}")));
        }
        if units.insert(name, unit).is_some() {
            return Err(wrong(format!("the name \"{name}\" is set twice")));
        }
    }
    let with_unit = |(name, location): (String, Location)| {
        let unit = units.get(name.as_str()).copied().unwrap_or_default();
        (name, location.with_int96_unit(unit))
    };
    Ok(datasets.into_iter().map(with_unit).collect())
}
