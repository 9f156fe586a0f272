//! The pins of files in a plan: the URL of a store names Forebay's store, and a path carries the size, time and tags of its file.
//!
//! A plan on the wire has no other place for them, and an executor needs them to read the same state of a file as the process
//! that planned the query.

use chrono::DateTime;
use datafusion::{error::DataFusionError, execution::object_store::ObjectStoreUrl};
use object_store::{ObjectMeta, path::Path};
use serde::{Deserialize, Serialize};
use url::Url;

/// The scheme of the URLs of stores in plans.
pub(crate) const SCHEME: &str = "forebay-pinned";

/// What identifies the state of a file.
#[derive(Debug, Deserialize, Serialize)]
struct Pin {
    #[serde(rename = "s")]
    size: u64,
    #[serde(rename = "m")]
    modified_ns: i64,
    #[serde(rename = "t", default, skip_serializing_if = "Option::is_none")]
    e_tag: Option<String>,
    #[serde(rename = "v", default, skip_serializing_if = "Option::is_none")]
    version: Option<String>,
}

/// The URL in a plan of the store at `store`, a URL such as `s3://bucket/`.
pub(crate) fn store_url(store: &str) -> Result<ObjectStoreUrl, DataFusionError> {
    ObjectStoreUrl::parse(format!("{SCHEME}://{}", to_hex(store.as_bytes())))
}

/// The URL of the store that a URL in a plan names; `None` if it is not one of these.
pub(crate) fn store_of(url: &Url) -> Option<String> {
    let host = url.host_str().filter(|_| url.scheme() == SCHEME)?;
    String::from_utf8(of_hex(host)?).ok()
}

/// The path in a plan of a pinned file.
pub(crate) fn pinned_path(object: &ObjectMeta) -> Result<Path, DataFusionError> {
    let modified_ns = object.last_modified.timestamp_nanos_opt();
    let modified_ns = modified_ns.ok_or_else(|| {
        DataFusionError::Execution(format!("{}: its time is not between 1677 and 2262", object.location))
    })?;
    let pin = Pin { size: object.size, modified_ns, e_tag: object.e_tag.clone(), version: object.version.clone() };
    let pin = serde_json::to_vec(&pin).map_err(|error| DataFusionError::External(error.into()))?;
    Path::parse(format!("{}/{}", to_hex(&pin), object.location))
        .map_err(|error| DataFusionError::External(error.into()))
}

/// The pinned file of a path in a plan; `None` if the path carries no pin.
pub(crate) fn pinned_object(path: &Path) -> Option<ObjectMeta> {
    let (pin, location) = path.as_ref().split_once('/')?;
    let Pin { size, modified_ns, e_tag, version } = serde_json::from_slice(&of_hex(pin)?).ok()?;
    let location = Path::parse(location).ok()?;
    Some(ObjectMeta { location, last_modified: DateTime::from_timestamp_nanos(modified_ns), size, e_tag, version })
}

fn to_hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect()
}

fn of_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.chars().map(|digit| digit.to_digit(16)).collect::<Option<Vec<_>>>()?;
    let pairs = digits.chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return None;
    }
    pairs.map(|pair| u8::try_from(pair[0] * 16 + pair[1]).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_survive_the_wire() {
        for location in ["a.parquet", "data/day=1/x y%20z ü.parquet"] {
            let object = ObjectMeta {
                location: Path::parse(location).unwrap(),
                last_modified: DateTime::from_timestamp_nanos(1_700_000_000_123_456_789),
                size: 42,
                e_tag: Some("\"é-1\"".to_owned()),
                version: None,
            };
            let sent = Path::parse(pinned_path(&object).unwrap().as_ref()).unwrap();
            assert_eq!(pinned_object(&sent).unwrap(), object);
        }
        for path in ["a.parquet", "data/a.parquet", "7b7d/a.parquet", "7b7/a.parquet"] {
            assert_eq!(pinned_object(&Path::parse(path).unwrap()), None, "{path}");
        }
    }

    #[test]
    fn stores_survive_the_wire() {
        for store in ["/", "s3://bucket/", "abfss://container@account.dfs.core.windows.net/", "http://host:8080/"] {
            let url = store_url(store).unwrap();
            assert_eq!(store_of(url.as_ref()).as_deref(), Some(store));
        }
        for url in ["s3://bucket/", "file:///", "forebay-pinned://xyz/"] {
            assert_eq!(store_of(&Url::parse(url).unwrap()), None, "{url}");
        }
    }
}
