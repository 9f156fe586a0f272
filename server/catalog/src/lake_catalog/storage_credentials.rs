//! The credentials for files that the answers of catalogs have.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use object_store::aws::AwsCredential;
use serde::Deserialize;

/// Where files are, and the properties that name credentials for them.
#[derive(Default, Deserialize)]
pub(super) struct StorageCredentials {
    #[serde(default)]
    prefix: String,
    #[serde(default)]
    pub config: BTreeMap<String, String>,
}

/// Credentials, and when they end.
pub(super) struct Handed {
    pub credential: AwsCredential,
    pub ends: Option<SystemTime>,
}

// === impl StorageCredentials ===

impl StorageCredentials {
    /// Those for a file, of all that a catalog hands out: those of the longest prefix of its URL.
    pub(super) fn of(file: &str, all: Vec<Self>) -> Option<Self> {
        all.into_iter().filter(|known| file.starts_with(&known.prefix)).max_by_key(|known| known.prefix.len())
    }
}

// === impl Handed ===

impl Handed {
    /// The credentials of properties as REST catalogs have them; `None` if they have none.
    pub(super) fn of_properties(mut properties: BTreeMap<String, String>) -> Option<Self> {
        let mut property = |name: &str| properties.remove(name).filter(|value| !value.is_empty());
        let (key_id, secret_key) = property("s3.access-key-id").zip(property("s3.secret-access-key"))?;
        let credential = AwsCredential { key_id, secret_key, token: property("s3.session-token") };
        let ends = property("s3.session-token-expires-at-ms").and_then(|text| text.parse().ok());
        Some(Self { credential, ends: ends.and_then(instant) })
    }
}

/// The time of milliseconds since 1970.
pub(super) fn instant(milliseconds: u64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_millis(milliseconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_of_a_file_has_its_credentials() {
        let all = || {
            ["s3://b", "s3://b/w/t", "s3://b/w"]
                .map(|prefix| StorageCredentials { prefix: prefix.to_owned(), ..Default::default() })
                .into()
        };
        let found = |file: &str| StorageCredentials::of(file, all()).map(|found| found.prefix);
        assert_eq!(found("s3://b/w/t/metadata/1").as_deref(), Some("s3://b/w/t"));
        assert_eq!(found("s3://b/w/u/metadata/1").as_deref(), Some("s3://b/w"));
        assert_eq!(found("s3://c/w"), None);
    }

    #[test]
    fn properties_without_a_key_are_no_credentials() {
        let of = |pairs: &[(&str, &str)]| {
            Handed::of_properties(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
        };
        assert!(of(&[("s3.access-key-id", "k"), ("s3.secret-access-key", "")]).is_none());
        let found =
            of(&[("s3.access-key-id", "k"), ("s3.secret-access-key", "s"), ("s3.session-token-expires-at-ms", "x")]);
        let found = found.unwrap();
        assert_eq!((found.credential.key_id.as_str(), found.credential.token, found.ends), ("k", None, None));
        assert_eq!(instant(1000), Some(UNIX_EPOCH + Duration::from_secs(1)));
    }
}
