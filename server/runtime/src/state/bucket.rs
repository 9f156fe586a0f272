//! State in an object store, which replicas on different machines share. Conditional writes take the place of locks:
//! of concurrent writers of a name one succeeds, and the others continue from what it wrote.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, Hasher, RandomState},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;

use super::{
    error::StateError,
    kind::StateEntry,
    objects::{ObjectEntry, Objects, ObjectsError, StateObject},
    recent::RecentNames,
};

/// Time for which an object that was seen is treated as present. A plan that another replica removes is used that long.
const PRESENT: Duration = Duration::from_secs(5);

/// Time between two notes that an object is used. An object's own time changes only with its content.
const USE_STEP: Duration = Duration::from_hours(1);

/// Attempts of a conditional write. Each failed one means that another replica succeeded.
const ATTEMPTS_MAX: u32 = 16;

/// Growth of the longest pause before the next attempt.
const PAUSE: Duration = Duration::from_millis(20);

/// Objects of one kind that are listed: ten thousand plans and what notes their use.
const LISTED_MAX: usize = 20_000;

/// Objects that are measured for metrics.
const MEASURED_MAX: usize = 100_000;

/// Folder of empty objects, each of which notes by its time when the object of the same name was used.
pub(super) const USED_FOLDER: &str = "used";

/// State below a prefix of a store.
#[derive(Clone, Debug)]
pub(super) struct StateBucket {
    objects: Arc<dyn Objects>,
    present: Arc<RecentNames>,
    noted: Arc<RecentNames>,
}

impl StateBucket {
    pub(super) fn new(objects: Arc<dyn Objects>) -> Self {
        let (present, noted) = (RecentNames::new(PRESENT), RecentNames::new(USE_STEP));
        Self { objects, present: Arc::new(present), noted: Arc::new(noted) }
    }

    pub(super) async fn read(&self, name: &str) -> Result<Option<Bytes>, StateError> {
        Ok(self.get(name).await?.map(|object| object.bytes))
    }

    pub(super) async fn has(&self, name: &str) -> Result<bool, StateError> {
        if self.present.has(name) {
            return Ok(true);
        }
        Ok(self.head(name).await?.is_some())
    }

    /// Whether an object was seen a short time ago.
    pub(super) fn has_seen(&self, name: &str) -> bool {
        self.present.has(name)
    }

    /// Writes an object, or replaces it.
    pub(super) async fn write(&self, name: &str, bytes: &Bytes) -> Result<(), StateError> {
        self.update(name, |_| bytes.clone()).await.map(drop)
    }

    /// Writes an object unless one is present. Returns the present one.
    pub(super) async fn create(&self, name: &str, bytes: &Bytes) -> Result<Option<Bytes>, StateError> {
        for attempt in 0..ATTEMPTS_MAX {
            if self.put(name, bytes, None).await? {
                return Ok(None);
            }
            if let Some(present) = self.get(name).await? {
                return Ok(Some(present.bytes));
            }
            // It was removed in between.
            pause(attempt).await;
        }
        Err(self.contended(name))
    }

    /// Replaces an object by the result of `change`, which is applied again if another writer is first.
    pub(super) async fn update(
        &self,
        name: &str,
        change: impl Fn(Option<&[u8]>) -> Bytes + Send,
    ) -> Result<(), StateError> {
        // Most objects are written once, so the first attempt reads nothing.
        let mut present: Option<StateObject> = None;
        for attempt in 0..ATTEMPTS_MAX {
            let bytes = change(present.as_ref().map(|object| object.bytes.as_ref()));
            let is_same = present.as_ref().is_some_and(|object| object.bytes == bytes);
            if is_same || self.put(name, &bytes, present.as_ref()).await? {
                return Ok(());
            }
            pause(attempt).await;
            present = self.get(name).await?;
        }
        Err(self.contended(name))
    }

    /// Removes an object. Returns whether it existed.
    pub(super) async fn remove(&self, name: &str) -> Result<bool, StateError> {
        let existed = self.head(name).await?.is_some();
        if existed {
            self.delete(name).await?;
            self.delete(&used_name(name)).await?;
            self.noted.remove(name);
        }
        self.present.remove(name);
        Ok(existed)
    }

    /// Notes that an object is used. Errors are ignored: the note only orders lists and evictions.
    pub(super) async fn mark_used(&self, name: &str) {
        if self.noted.has(name) {
            return;
        }
        // A store that fails costs one attempt in this time.
        self.noted.add(name);
        let note = used_name(name);
        if let Ok(false) = self.objects.put(&note, Bytes::new(), None).await
            && let Ok(Some(earlier)) = self.objects.get(&note).await
        {
            // The same content with a new time.
            let _ = self.objects.put(&note, Bytes::new(), Some(&earlier.version)).await;
        }
    }

    /// Returns the objects of a folder; ids are their names below it, without the ending.
    pub(super) async fn entries(&self, folder: &str, ending: &str) -> Result<Vec<StateEntry>, StateError> {
        let failed = |source| StateError::Objects { action: "list state", source };
        let used_folder = used_name(folder);
        let id = |folder: &str, name: &str| {
            let file = name.strip_prefix(folder)?.strip_prefix('/')?;
            Some(file.strip_suffix(ending)?.strip_suffix('.')?.to_owned())
        };
        let notes = self.objects.list(&used_folder, LISTED_MAX).await.map_err(failed)?;
        let notes: BTreeMap<String, _> =
            notes.into_iter().filter_map(|note| Some((id(&used_folder, &note.name)?, note.written))).collect();
        let listed = self.objects.list(folder, LISTED_MAX).await.map_err(failed)?;
        let entry = |object: ObjectEntry| {
            let id = id(folder, &object.name)?;
            let used = notes.get(&id).map_or(object.written, |noted| object.written.max(*noted));
            Some(StateEntry { id, bytes: object.bytes, used })
        };
        Ok(listed.into_iter().filter_map(entry).collect())
    }

    /// Returns one object of a folder.
    pub(super) async fn entry(&self, name: &str, id: &str) -> Result<Option<StateEntry>, StateError> {
        let Some(object) = self.head(name).await? else { return Ok(None) };
        let note = self.objects.head(&used_name(name)).await.map_err(failed_read)?;
        let used = note.map_or(object.written, |note| note.written.max(object.written));
        Ok(Some(StateEntry { id: id.to_owned(), bytes: object.bytes, used }))
    }

    /// Returns the bytes of all objects, and the number of those in `folders`.
    pub(super) async fn usage(&self, folders: &[&str]) -> Result<(u64, usize), StateError> {
        let listed = self.objects.list("", MEASURED_MAX).await;
        let listed = listed.map_err(|source| StateError::Objects { action: "measure state", source })?;
        let is_in = |name: &str, folder: &&str| name.strip_prefix(*folder).is_some_and(|rest| rest.starts_with('/'));
        let is_in_folder = |name: &str| folders.iter().any(|folder| is_in(name, folder));
        let count = listed.iter().filter(|object| is_in_folder(&object.name)).count();
        Ok((listed.iter().map(|object| object.bytes).sum(), count))
    }

    async fn get(&self, name: &str) -> Result<Option<StateObject>, StateError> {
        let found = self.objects.get(name).await.map_err(failed_read)?;
        self.note_presence(name, found.is_some());
        Ok(found)
    }

    async fn head(&self, name: &str) -> Result<Option<ObjectEntry>, StateError> {
        let found = self.objects.head(name).await.map_err(failed_read)?;
        self.note_presence(name, found.is_some());
        Ok(found)
    }

    async fn put(&self, name: &str, bytes: &Bytes, replaced: Option<&StateObject>) -> Result<bool, StateError> {
        let written = self.objects.put(name, bytes.clone(), replaced.map(|object| &object.version)).await;
        let is_written = written.map_err(failed_write)?;
        if is_written {
            self.present.add(name);
        }
        Ok(is_written)
    }

    async fn delete(&self, name: &str) -> Result<(), StateError> {
        let deleted = self.objects.delete(name).await;
        deleted.map_err(|source| StateError::Objects { action: "remove state", source })
    }

    fn note_presence(&self, name: &str, is_present: bool) {
        if is_present { self.present.add(name) } else { self.present.remove(name) }
    }

    fn contended(&self, name: &str) -> StateError {
        let url = self.objects.url(name);
        let reason = format!("{url}: other servers wrote first in {ATTEMPTS_MAX} attempts; try again");
        failed_write(ObjectsError { reason, is_refused: false })
    }
}

/// Waits before the next attempt, for a time that differs between servers.
async fn pause(attempt: u32) {
    let share = RandomState::new().build_hasher().finish() as f64 / u64::MAX as f64;
    tokio::time::sleep((PAUSE * attempt).mul_f64(share)).await;
}

fn used_name(name: &str) -> String {
    format!("{USED_FOLDER}/{name}")
}

fn failed_read(source: ObjectsError) -> StateError {
    StateError::Objects { action: "read state", source }
}

fn failed_write(source: ObjectsError) -> StateError {
    StateError::Objects { action: "write state", source }
}
