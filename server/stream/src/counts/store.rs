//! Results that are computed again if they are lost: kept in memory and under `--state`, where a digest detects damage.

use std::sync::Arc;

use bytes::Bytes;
use forebay_runtime::state::{Kind, State, StateError, short_digest};
use prost::Message;

use super::recent::SharedResults;
use crate::{environment::Environment, error::StreamError};

/// Length of the digest before a result.
const DIGEST_BYTES: usize = 32;

/// Results of one kind by what they depend on. Concurrent requests for one share its computation.
#[derive(Debug)]
pub(crate) struct Results<T> {
    recent: SharedResults<Arc<T>>,
    kind: Kind,
    /// Results under `--state`; those that were used longest ago are removed.
    kept_max: usize,
}

/// A result that is kept.
pub(crate) trait Storable: Sized + Send + Sync + 'static {
    /// The form in which it is stored.
    type Stored: Message + Default;
    /// What restoring it needs besides.
    type Context: Send + 'static;

    /// Stores the result.
    fn store(&self, context: &Self::Context) -> Self::Stored;

    /// Restores a result; none if it is of other rows, so that it is computed again.
    fn restore(stored: Self::Stored, context: &Self::Context) -> Option<Self>;
}

// === impl Results ===

impl<T: Storable> Results<T> {
    /// Keeps some results in memory, and further ones under `--state`.
    pub(crate) fn new(kind: Kind, cached_max: usize, kept_max: usize) -> Self {
        Self { recent: SharedResults::new(cached_max), kind, kept_max }
    }

    /// The result of a key, or the one that `compute` returns.
    pub(crate) async fn get(
        &self,
        environment: &Environment,
        key: &str,
        context: T::Context,
        compute: impl AsyncFnOnce() -> Result<T, StreamError>,
    ) -> Result<Arc<T>, StreamError> {
        let (cpu, state) = (&environment.cpu, &environment.state);
        let computed = async || {
            // On the CPU pool: a result may have millions of parts.
            let stored = load(state, self.kind, key).await;
            let restore = move || {
                let restored = stored.and_then(|stored| T::Stored::decode(stored).ok());
                let restored = restored.and_then(|stored| T::restore(stored, &context));
                (restored, context)
            };
            let (restored, context) = cpu.run(restore).await?;
            if let Some(result) = restored {
                return Ok(Arc::new(result));
            }
            let result = Arc::new(compute().await?);
            let of_job = Arc::clone(&result);
            let encoded = cpu.run(move || of_job.store(&context).encode_to_vec()).await?;
            store(state, self.kind, key, &encoded, self.kept_max).await;
            Ok(result)
        };
        self.recent.of(key).get_or_try_init(computed).await.map(Arc::clone)
    }
}

// === load, store ===

/// Reads a result; none if it is missing, damaged or of another key, or if the state cannot be read.
pub(crate) async fn load(state: &State, kind: Kind, key: &str) -> Option<Bytes> {
    let result = verified(key, &state.read(kind, key).await.ok()??)?;
    state.mark_used(kind, key).await;
    Some(result)
}

/// Writes a result, and removes those that were used longest ago beyond `kept_max`. If that fails, the next request
/// computes it again.
pub(crate) async fn store(state: &State, kind: Kind, key: &str, result: &[u8], kept_max: usize) {
    warn(state.write(kind, key, sealed(key, result)).await);
    state.trim(kind, kept_max).await;
}

/// The same, unless another server with this state has a result of the same key. Returns that one.
pub(crate) async fn store_first(state: &State, kind: Kind, key: &str, result: &[u8], kept_max: usize) -> Option<Bytes> {
    match state.create(kind, key, sealed(key, result)).await {
        Ok(Some(present)) => {
            let first = verified(key, &present);
            if first.is_none() {
                // Damaged.
                store(state, kind, key, result, kept_max).await;
            }
            first
        }
        written => {
            warn(written.map(drop));
            state.trim(kind, kept_max).await;
            None
        }
    }
}

fn sealed(key: &str, result: &[u8]) -> Vec<u8> {
    [short_digest(&[key.as_bytes(), result]).as_bytes(), result].concat()
}

/// The result without its digest, if that is right.
fn verified(key: &str, bytes: &Bytes) -> Option<Bytes> {
    let (digest, result) = bytes.split_at_checked(DIGEST_BYTES)?;
    (short_digest(&[key.as_bytes(), result]).as_bytes() == digest).then(|| bytes.slice(DIGEST_BYTES..))
}

fn warn(written: Result<(), StateError>) {
    if let Err(error) = written {
        tracing::warn!(%error, "cannot store a result; the next request computes it again");
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use forebay_runtime::cpu_pool::CpuPool;

    use super::*;

    #[tokio::test]
    async fn keeps_the_latest_and_ignores_damaged_and_renamed_ones() {
        let folder = tempfile::tempdir().unwrap();
        let state = State::open(folder.path(), folder.path(), &CpuPool::inline()).unwrap();
        let (kind, kept_max) = (Kind::Description, 20);
        for number in 0..kept_max + 9 {
            store(&state, kind, &format!("{number:x}"), b"result", kept_max).await;
        }
        assert_eq!(state.entries(kind).await.unwrap().len(), kept_max);
        store(&state, kind, "abc", b"result", kept_max).await;
        assert_eq!(load(&state, kind, "abc").await.unwrap(), &b"result"[..]);
        let path = folder.path().join("descriptions/abc.binpb");
        fs::copy(&path, folder.path().join("descriptions/def.binpb")).unwrap();
        assert_eq!(load(&state, kind, "def").await, None);
        let mut bytes = fs::read(&path).unwrap();
        for damaged in [bytes.len() - 1, 3] {
            bytes[damaged] ^= 1;
            fs::write(&path, &bytes).unwrap();
            assert_eq!(load(&state, kind, "abc").await, None);
            bytes[damaged] ^= 1;
        }
        fs::write(&path, "").unwrap();
        assert_eq!((load(&state, kind, "abc").await, load(&state, kind, "fff").await), (None, None));
    }
}
