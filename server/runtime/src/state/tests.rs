//! State in a store that is in memory: concurrent writers, and stores without conditional writes.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

use async_trait::async_trait;

use super::*;

/// Objects in memory, each with the number of its version.
#[derive(Debug, Default)]
struct MemoryObjects {
    objects: Mutex<BTreeMap<String, (Bytes, u64, SystemTime)>>,
    requests: AtomicUsize,
    ignores: Ignored,
}

/// The conditions that a store ignores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Ignored {
    #[default]
    None,
    Absence,
    Version,
    /// Writes with a version have no effect.
    Replacement,
}

#[async_trait]
impl Objects for MemoryObjects {
    fn url(&self, name: &str) -> String {
        format!("memory://{name}")
    }

    async fn get(&self, name: &str) -> Result<Option<StateObject>, ObjectsError> {
        self.turn().await;
        let found = self.objects.lock().unwrap().get(name).cloned();
        Ok(found.map(|(bytes, version, _)| {
            let version = ObjectVersion { e_tag: None, version: Some(version.to_string()) };
            StateObject { bytes, version }
        }))
    }

    async fn head(&self, name: &str) -> Result<Option<ObjectEntry>, ObjectsError> {
        Ok(self.list(name, usize::MAX).await?.into_iter().find(|entry| entry.name == name))
    }

    async fn put(&self, name: &str, bytes: Bytes, replaced: Option<&ObjectVersion>) -> Result<bool, ObjectsError> {
        self.turn().await;
        let mut objects = self.objects.lock().unwrap();
        let present = objects.get(name).map(|(_, version, _)| version.to_string());
        let is_met = match (&present, replaced) {
            (_, Some(_)) if self.ignores == Ignored::Version => true,
            (_, Some(_)) if self.ignores == Ignored::Replacement => return Ok(true),
            (_, None) if self.ignores == Ignored::Absence => true,
            (present, replaced) => *present == replaced.and_then(|version| version.version.clone()),
        };
        if is_met {
            let version = present.map_or(0, |version| version.parse::<u64>().unwrap() + 1);
            objects.insert(name.to_owned(), (bytes, version, SystemTime::now()));
        }
        Ok(is_met)
    }

    async fn delete(&self, name: &str) -> Result<(), ObjectsError> {
        self.turn().await;
        self.objects.lock().unwrap().remove(name);
        Ok(())
    }

    async fn list(&self, folder: &str, max: usize) -> Result<Vec<ObjectEntry>, ObjectsError> {
        self.turn().await;
        let objects = self.objects.lock().unwrap();
        let listed = objects.iter().filter(|(name, _)| name.starts_with(folder));
        let entry = |(name, (bytes, _, written)): (&String, &(Bytes, u64, SystemTime))| ObjectEntry {
            name: name.clone(),
            bytes: bytes.len() as u64,
            written: *written,
        };
        Ok(listed.map(entry).take(max).collect())
    }
}

impl MemoryObjects {
    /// Counts a request, and lets other tasks go first.
    async fn turn(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        tokio::task::yield_now().await;
    }

    fn requests(&self) -> usize {
        self.requests.swap(0, Ordering::Relaxed)
    }
}

/// Two servers with one store.
fn servers() -> (Arc<MemoryObjects>, [State; 2], tempfile::TempDir) {
    let (objects, scratch) = (Arc::new(MemoryObjects::default()), tempfile::tempdir().unwrap());
    let open = || State::in_store(Arc::clone(&objects) as _, scratch.path(), &CpuPool::inline()).unwrap();
    (Arc::clone(&objects), [open(), open()], scratch)
}

/// Adds a letter to what is stored.
fn with_letter(letter: u8) -> impl Fn(Option<&[u8]>) -> Bytes {
    move |present| {
        let mut letters = present.unwrap_or_default().to_vec();
        if !letters.contains(&letter) {
            letters.push(letter);
        }
        letters.sort_unstable();
        letters.into()
    }
}

#[tokio::test(start_paused = true)]
async fn concurrent_updates_of_one_object_are_all_kept() {
    let (_, [first, second], _scratch) = servers();
    let updates = (b'a'..=b'h').map(|letter| {
        let state = if letter % 2 == 0 { &first } else { &second };
        state.update(Kind::PlanRecord, "ab", with_letter(letter))
    });
    futures::future::try_join_all(updates).await.unwrap();
    assert_eq!(first.read(Kind::PlanRecord, "ab").await.unwrap().unwrap(), &b"abcdefgh"[..]);
}

#[tokio::test(start_paused = true)]
async fn of_concurrent_creations_one_wins_and_the_others_read_it() {
    let (_, [first, second], _scratch) = servers();
    let (one, other) = tokio::join!(first.create(Kind::Fit, "ab", "one"), second.create(Kind::Fit, "ab", "other"));
    let stored = first.read(Kind::Fit, "ab").await.unwrap().unwrap();
    match (one.unwrap(), other.unwrap()) {
        (None, Some(seen)) => assert_eq!((seen, stored), (Bytes::from("one"), Bytes::from("one"))),
        (Some(seen), None) => assert_eq!((seen, stored), (Bytes::from("other"), Bytes::from("other"))),
        both => panic!("{both:?}"),
    }
    let secrets = [first.secret("key", b"first").await.unwrap(), second.secret("key", b"other").await.unwrap()];
    assert_eq!(secrets, [b"first"; 2]);
}

#[tokio::test(start_paused = true)]
async fn a_write_replaces_what_differs_and_repeats_nothing() {
    let (objects, [first, second], _scratch) = servers();
    first.write(Kind::Plan, "ab", "plan").await.unwrap();
    assert_eq!(objects.requests(), 1);
    second.write(Kind::Plan, "ab", "plan").await.unwrap();
    // An attempt to create it, and a look at what is there.
    assert_eq!(objects.requests(), 2);
    objects.put("plans/ab.binpb", "damaged".into(), None).await.unwrap();
    first.write(Kind::Plan, "ab", "repaired").await.unwrap();
    assert_eq!(second.read(Kind::Plan, "ab").await.unwrap().unwrap(), "repaired");
}

#[tokio::test(start_paused = true)]
async fn a_removal_is_noticed_by_other_servers_within_seconds() {
    let (objects, [first, second], _scratch) = servers();
    first.write(Kind::Plan, "ab", "plan").await.unwrap();
    assert!(second.has(Kind::Plan, "ab").await.unwrap());
    objects.requests();
    assert!(second.has(Kind::Plan, "ab").await.unwrap());
    assert_eq!(objects.requests(), 0);
    assert!(first.remove(Kind::Plan, "ab").await.unwrap());
    assert!(!first.has(Kind::Plan, "ab").await.unwrap());
    tokio::time::advance(Duration::from_secs(6)).await;
    assert!(!second.has(Kind::Plan, "ab").await.unwrap());
    assert!(!second.remove(Kind::Plan, "ab").await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn uses_are_noted_once_an_hour_and_order_the_entries() {
    let (objects, [first, second], _scratch) = servers();
    for id in ["aa", "bb"] {
        first.write(Kind::Fit, id, "result").await.unwrap();
    }
    let used = async |state: &State, id: &str| {
        let entries = state.entries(Kind::Fit).await.unwrap();
        entries.into_iter().find(|entry| entry.id == id).unwrap().used
    };
    first.mark_used(Kind::Fit, "aa").await;
    assert!(used(&second, "aa").await > used(&second, "bb").await);
    objects.requests();
    first.mark_used(Kind::Fit, "aa").await;
    assert_eq!(objects.requests(), 0);
    second.mark_used(Kind::Fit, "bb").await;
    second.mark_used(Kind::Fit, "aa").await;
    assert!(used(&first, "aa").await > used(&first, "bb").await);
    assert_eq!(first.entry(Kind::Fit, "aa").await.unwrap().unwrap().used, used(&first, "aa").await);
    assert_eq!(first.entries(Kind::Fit).await.unwrap().len(), 2);
    assert_eq!(first.usage().await.unwrap(), StateUsage { bytes: 12, plans: 0 });
    assert!(first.remove(Kind::Fit, "aa").await.unwrap());
    assert_eq!(objects.objects.lock().unwrap().keys().collect::<Vec<_>>(), ["fits/bb.txt", "used/fits/bb.txt"]);
}

#[tokio::test]
async fn stores_without_conditional_writes_are_refused() {
    for (ignores, words) in [
        (Ignored::None, ""),
        (Ignored::Absence, "If-None-Match"),
        (Ignored::Version, "If-Match"),
        (Ignored::Replacement, "does not replace objects"),
    ] {
        let objects = MemoryObjects { ignores, ..MemoryObjects::default() };
        let checked = check_objects(&objects).await;
        assert_eq!(checked.is_ok(), words.is_empty());
        if let Err(error) = checked {
            let text = error.to_string();
            assert!(error.is_refused() && text.contains(words) && text.contains("memory://"), "{text}");
        }
        assert!(objects.objects.lock().unwrap().is_empty());
    }
}
