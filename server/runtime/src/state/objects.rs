//! The interface to an object store that holds state. `catalog`, which has the clients of stores, implements it.

use std::{fmt, time::SystemTime};

use async_trait::async_trait;
use bytes::Bytes;

/// The objects under a prefix of a store that supports conditional writes. Names are paths below the prefix. Every
/// request ends within a bounded time.
#[async_trait]
pub trait Objects: fmt::Debug + Send + Sync {
    /// The URL of an object, or of the prefix for an empty name.
    fn url(&self, name: &str) -> String;

    /// Reads an object; `None` if it does not exist.
    async fn get(&self, name: &str) -> Result<Option<StateObject>, ObjectsError>;

    /// The size and time of an object; `None` if it does not exist.
    async fn head(&self, name: &str) -> Result<Option<ObjectEntry>, ObjectsError>;

    /// Writes an object if the present one is still `replaced`: none, or one of this version. Returns whether it did.
    async fn put(&self, name: &str, bytes: Bytes, replaced: Option<&ObjectVersion>) -> Result<bool, ObjectsError>;

    /// Removes an object, if it exists.
    async fn delete(&self, name: &str) -> Result<(), ObjectsError>;

    /// Lists the objects below a folder, or below the prefix for an empty name, at most `max` of them.
    async fn list(&self, folder: &str, max: usize) -> Result<Vec<ObjectEntry>, ObjectsError>;
}

/// An object and its version.
#[derive(Clone, Debug)]
pub struct StateObject {
    /// Its content.
    pub bytes: Bytes,
    /// Its version.
    pub version: ObjectVersion,
}

/// What identifies the content of an object to its store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectVersion {
    /// The `ETag`.
    pub e_tag: Option<String>,
    /// The version or generation, of stores that have one.
    pub version: Option<String>,
}

/// The metadata of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectEntry {
    /// Its name below the prefix.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// The time of the last write.
    pub written: SystemTime,
}

/// A failed request to the store.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{reason}")]
pub struct ObjectsError {
    /// What is wrong, with the URL of the object and what to do.
    pub reason: String,
    /// Whether the store or its settings must be changed: a retry does not help.
    pub is_refused: bool,
}
