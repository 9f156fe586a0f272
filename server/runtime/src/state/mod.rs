//! State that survives a restart and that replicas may share: fitted plans, counts and results, under `--state`.
//!
//! It is in a directory of this machine, or in an object store through [`Objects`], whose requests never block a thread.
//! Scratch data, which no other machine reads, is always in a directory. This module handles kinds and ids; callers
//! interpret the content.

mod bucket;
mod directory;
mod error;
mod kind;
mod objects;
pub mod private;
mod probe;
mod recent;
mod retention;

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use sha2::{Digest, Sha256};

pub use error::{StateError, is_configuration};
pub use kind::{Kind, StateEntry, StateUsage, is_id};
pub use objects::{ObjectEntry, ObjectVersion, Objects, ObjectsError, StateObject};
pub use probe::check_objects;
pub use retention::{PlansFull, Retention};

use crate::cpu_pool::CpuPool;
use bucket::StateBucket;
use directory::{StateDirectory, bytes_below, create_folder};
use kind::{SPILL_FOLDER, VIEW_FOLDER};
use retention::RESULTS;

/// The state of a server. Cheap to clone.
#[derive(Clone, Debug)]
pub struct State {
    place: Backend,
    scratch: PathBuf,
    cpu: CpuPool,
    retention: Retention,
}

/// Where state is.
#[derive(Clone, Debug)]
enum Backend {
    Directory(StateDirectory),
    Bucket(StateBucket),
}

impl State {
    /// Opens a directory, and one for scratch data; creates what does not exist. The CPU pool reads and writes files.
    pub fn open(root: &Path, scratch: &Path, cpu: &CpuPool) -> Result<Self, StateError> {
        let directory = StateDirectory::new(root);
        directory.create()?;
        let state = Self::new(Backend::Directory(directory), scratch, cpu);
        state.create_scratch()?;
        Ok(state)
    }

    /// A directory, also for scratch data, without creating it: there is no state in one that does not exist.
    pub fn at(root: &Path, cpu: &CpuPool) -> Self {
        Self::new(Backend::Directory(StateDirectory::new(root)), root, cpu)
    }

    /// State in an object store that was [checked](check_objects), and scratch data in a directory, which is created if
    /// it does not exist.
    pub fn in_store(objects: Arc<dyn Objects>, scratch: &Path, cpu: &CpuPool) -> Result<Self, StateError> {
        let place = Backend::Bucket(StateBucket::new(objects));
        let state = Self::new(place, scratch, cpu);
        state.create_scratch()?;
        Ok(state)
    }

    fn new(place: Backend, scratch: &Path, cpu: &CpuPool) -> Self {
        Self { place, scratch: scratch.to_owned(), cpu: cpu.clone(), retention: Retention::DEFAULT }
    }

    /// Sets how much is kept.
    #[must_use]
    pub fn with_retention(self, retention: Retention) -> Self {
        Self { retention, ..self }
    }

    fn create_scratch(&self) -> Result<(), StateError> {
        [self.spill_directory(), self.view_directory()].iter().try_for_each(|path| create_folder(path))
    }

    /// Whether it is in an object store, whose requests cost time and money.
    pub fn is_remote(&self) -> bool {
        matches!(self.place, Backend::Bucket(_))
    }

    /// The pool for the work of encoding and decoding what is stored.
    pub fn cpu(&self) -> &CpuPool {
        &self.cpu
    }

    /// Returns the directory for spilled data of fits and views.
    pub fn spill_directory(&self) -> PathBuf {
        self.scratch.join(SPILL_FOLDER)
    }

    /// Returns the directory for results of views.
    pub fn view_directory(&self) -> PathBuf {
        self.scratch.join(VIEW_FOLDER)
    }

    /// Reads what is stored; `None` if nothing is. The id must satisfy [`is_id`], as in all functions with an id.
    pub async fn read(&self, kind: Kind, id: &str) -> Result<Option<Bytes>, StateError> {
        match &self.place {
            Backend::Directory(directory) => {
                let (directory, id) = (directory.clone(), id.to_owned());
                Ok(self.cpu.run(move || directory.read(kind, &id)).await??.map(Bytes::from))
            }
            Backend::Bucket(bucket) => bucket.read(&kind.file_name(id)).await,
        }
    }

    /// Returns whether something is stored. What another server removes from an object store is noticed within seconds.
    pub async fn has(&self, kind: Kind, id: &str) -> Result<bool, StateError> {
        match &self.place {
            // A look at one name is less work than a change of threads.
            Backend::Directory(directory) => Ok(directory.has(kind, id)),
            Backend::Bucket(bucket) => bucket.has(&kind.file_name(id)).await,
        }
    }

    /// Returns the first of these kinds of which something is stored.
    pub async fn find(&self, kinds: &[Kind], id: &str) -> Result<Option<Kind>, StateError> {
        if let Backend::Bucket(bucket) = &self.place
            && let Some(kind) = kinds.iter().find(|kind| bucket.has_seen(&kind.file_name(id)))
        {
            return Ok(Some(*kind));
        }
        for kind in kinds {
            if self.has(*kind, id).await? {
                return Ok(Some(*kind));
            }
        }
        Ok(None)
    }

    /// Writes atomically: no reader sees a part.
    pub async fn write(&self, kind: Kind, id: &str, bytes: impl Into<Bytes>) -> Result<(), StateError> {
        let bytes = bytes.into();
        match &self.place {
            Backend::Directory(directory) => {
                let (directory, id) = (directory.clone(), id.to_owned());
                self.cpu.run(move || directory.write(kind, &id, &bytes)).await?
            }
            Backend::Bucket(bucket) => bucket.write(&kind.file_name(id), &bytes).await,
        }
    }

    /// Writes unless another server with the same object store wrote first. Returns what that one wrote. Of servers that
    /// share a directory, the last one to write wins.
    pub async fn create(&self, kind: Kind, id: &str, bytes: impl Into<Bytes>) -> Result<Option<Bytes>, StateError> {
        match &self.place {
            Backend::Directory(_) => self.write(kind, id, bytes).await.map(|()| None),
            Backend::Bucket(bucket) => bucket.create(&kind.file_name(id), &bytes.into()).await,
        }
    }

    /// Replaces what is stored by the result of `change`. In an object store, concurrent changes are all kept.
    pub async fn update(
        &self,
        kind: Kind,
        id: &str,
        change: impl Fn(Option<&[u8]>) -> Bytes + Send,
    ) -> Result<(), StateError> {
        match &self.place {
            Backend::Directory(_) => {
                // A file that cannot be read is replaced.
                let present = self.read(kind, id).await.ok().flatten();
                self.write(kind, id, change(present.as_deref())).await
            }
            Backend::Bucket(bucket) => bucket.update(&kind.file_name(id), change).await,
        }
    }

    /// Removes what is stored. Returns whether it existed.
    pub async fn remove(&self, kind: Kind, id: &str) -> Result<bool, StateError> {
        match &self.place {
            Backend::Directory(directory) => directory.remove(kind, id),
            Backend::Bucket(bucket) => bucket.remove(&kind.file_name(id)).await,
        }
    }

    /// Notes that something is used now. A note is exact to a minute in a directory, and to an hour in an object store.
    pub async fn mark_used(&self, kind: Kind, id: &str) {
        match &self.place {
            Backend::Directory(directory) => directory.mark_used(kind, id),
            Backend::Bucket(bucket) => bucket.mark_used(&kind.file_name(id)).await,
        }
    }

    /// Returns all of a kind, in no particular order.
    pub async fn entries(&self, kind: Kind) -> Result<Vec<StateEntry>, StateError> {
        match &self.place {
            Backend::Directory(directory) => {
                let directory = directory.clone();
                Ok(self.cpu.run(move || directory.entries(kind)).await?)
            }
            Backend::Bucket(bucket) => bucket.entries(kind.folder(), kind.extension()).await,
        }
    }

    /// Returns one of a kind; `None` if it does not exist.
    pub async fn entry(&self, kind: Kind, id: &str) -> Result<Option<StateEntry>, StateError> {
        match &self.place {
            Backend::Directory(directory) => Ok(directory.entry(kind, id)),
            Backend::Bucket(bucket) => bucket.entry(&kind.file_name(id), id).await,
        }
    }

    /// Removes results of a kind that were not used for a time, and those beyond `count_max` or the limit of bytes that were
    /// used longest ago.
    pub async fn trim(&self, kind: Kind, count_max: usize) {
        // The next result is stored with another list.
        let entries = self.entries(kind).await.unwrap_or_default();
        for id in self.retention.surplus_results(entries, count_max).into_iter().filter(|id| is_id(id)) {
            // Another replica may have removed it.
            let _ = self.remove(kind, &id).await;
        }
    }

    /// Removes results that were not used for a time.
    pub async fn trim_unused_results(&self) {
        for kind in RESULTS {
            self.trim(kind, usize::MAX).await;
        }
    }

    /// The plans of a kind that go before one of `bytes` is written; an error if plans that were used lately leave no room.
    pub async fn plans_in_the_way(&self, kind: Kind, bytes: u64) -> Result<Result<Vec<String>, PlansFull>, StateError> {
        Ok(self.retention.plans_in_the_way(kind, self.entries(kind).await?, bytes))
    }

    /// The plans of requests that were not used for a time.
    pub async fn unused_inline_plans(&self) -> Result<Vec<String>, StateError> {
        Ok(self.retention.unused(self.entries(Kind::InlinePlan).await?))
    }

    /// Measures the state. Reads the metadata of every file, or lists the objects.
    pub async fn usage(&self) -> Result<StateUsage, StateError> {
        let (place, views) = (self.place.clone(), self.view_directory());
        // Not on the CPU pool: a directory on a slow network would delay streams.
        let measure = move || {
            let usage = match place {
                Backend::Directory(directory) => directory.usage(),
                Backend::Bucket(_) => StateUsage::default(),
            };
            StateUsage { bytes: usage.bytes + bytes_below(&views), ..usage }
        };
        let mut usage = tokio::task::spawn_blocking(measure).await.unwrap_or_default();
        if let Backend::Bucket(bucket) = &self.place {
            let (bytes, plans) = bucket.usage(&Kind::PLANS.map(Kind::folder)).await?;
            usage.bytes += bytes;
            usage.plans = plans;
        }
        Ok(usage)
    }

    /// Returns a secret shared by all servers with this state. The first one creates it; a file is readable only by its
    /// owner.
    pub async fn secret(&self, name: &str, new: &[u8]) -> Result<Vec<u8>, StateError> {
        match &self.place {
            Backend::Directory(directory) => directory.secret(name, new),
            Backend::Bucket(bucket) => {
                let new = Bytes::copy_from_slice(new);
                let present = bucket.create(name, &new).await?;
                Ok(present.unwrap_or(new).into())
            }
        }
    }
}

/// Returns an id for these parts, of which none can continue in the next one: their lengths are digested, too.
pub fn parts_digest(parts: &[&[u8]]) -> String {
    let lengths: Vec<[u8; 8]> = parts.iter().map(|part| (part.len() as u64).to_le_bytes()).collect();
    let digested = lengths.iter().zip(parts).flat_map(|(length, part)| [length.as_slice(), part]);
    short_digest(&digested.collect::<Vec<_>>())
}

/// Returns an id for these bytes: the first 32 hexadecimal digits of their SHA-256.
pub fn short_digest(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part);
    }
    hash.finalize()[..16].iter().fold(String::with_capacity(32), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests;
