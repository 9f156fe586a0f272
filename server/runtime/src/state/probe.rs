//! Checks at start that an object store can hold state.

use std::hash::{BuildHasher, Hasher, RandomState};

use bytes::Bytes;

use super::{
    error::StateError,
    objects::{Objects, ObjectsError},
};

/// What an operator can do about a store without conditional writes.
const REMEDY: &str = "servers that share state there could overwrite each other: use a store that supports If-None-Match and \
                      If-Match on PUT, and do not set AWS_CONDITIONAL_PUT=disabled, or use a directory";

/// Contents of an object.
const FIRST: &[u8] = b"first";
const SECOND: &[u8] = b"second";

/// Checks that objects can be written, read and removed, and that the store refuses writes whose condition is not met.
/// Leaves nothing behind.
pub async fn check_objects(objects: &dyn Objects) -> Result<(), StateError> {
    let random = [RandomState::new(), RandomState::new()].map(|state| state.build_hasher().finish());
    let name = format!("probe-{:016x}{:016x}", random[0], random[1]);
    let failed = |source| StateError::Objects { action: "check the store", source };
    // A client that repeats a request whose response was lost finds its own object.
    objects.put(&name, Bytes::from_static(FIRST), None).await.map_err(failed)?;
    let checked = check(objects, &name).await;
    let removed = objects.delete(&name).await;
    checked.and(removed).map_err(failed)
}

async fn check(objects: &dyn Objects, name: &str) -> Result<(), ObjectsError> {
    let url = objects.url("");
    let refused = |reason: &str| ObjectsError { reason: format!("{url}: {reason}"), is_refused: true };
    let created_twice = objects.put(name, Bytes::from_static(SECOND), None).await?;
    let Some(present) = objects.get(name).await? else {
        return Err(refused("an object that was written cannot be read: use a store with strong consistency"));
    };
    if created_twice || present.bytes != FIRST {
        return Err(refused(&format!("the store ignores the condition of a write (If-None-Match): {REMEDY}")));
    }
    let is_replaced = objects.put(name, Bytes::from_static(SECOND), Some(&present.version)).await?;
    let now = objects.get(name).await?.map(|object| object.bytes);
    if now.as_deref() != Some(SECOND) {
        let found = if is_replaced { "a write has no effect" } else { "it refuses a write whose condition is met" };
        return Err(refused(&format!("the store does not replace objects conditionally ({found}): {REMEDY}")));
    }
    if objects.put(name, Bytes::from_static(FIRST), Some(&present.version)).await? {
        return Err(refused(&format!("the store ignores the condition of a write (If-Match): {REMEDY}")));
    }
    Ok(())
}
