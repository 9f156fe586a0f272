//! Results in the state directory that are computed again if they are lost. A digest detects damage.

use std::cmp::Reverse;

use crate::state::{Kind, State, StateEntry, short_digest};

/// Length of the digest before the result.
const DIGEST_BYTES: usize = 32;

/// Reads a result; none if it is missing, damaged or of another key.
pub(super) fn load(state: &State, kind: Kind, key: &str) -> Option<Vec<u8>> {
    let mut bytes = state.read(kind, key).ok()??;
    let (digest, result) = bytes.split_at_checked(DIGEST_BYTES)?;
    if short_digest(&[key.as_bytes(), result]).as_bytes() != digest {
        return None;
    }
    state.mark_used(kind, key);
    Some(bytes.split_off(DIGEST_BYTES))
}

/// Writes a result, and removes those that were used longest ago beyond `kept_max`. If that fails, the next request
/// computes it again.
pub(super) fn store(state: &State, kind: Kind, key: &str, result: &[u8], kept_max: usize) {
    let bytes = [short_digest(&[key.as_bytes(), result]).as_bytes(), result].concat();
    if let Err(error) = state.write(kind, key, &bytes) {
        tracing::warn!(%error, "cannot store a result; the next request computes it again");
    }
    let mut kept = state.entries(kind);
    kept.sort_by_key(|file| Reverse(file.used));
    for StateEntry { id, .. } in kept.into_iter().skip(kept_max) {
        // Another replica may have removed it.
        let _ = state.remove(kind, &id);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn keeps_the_latest_and_ignores_damaged_and_renamed_ones() {
        let folder = tempfile::tempdir().unwrap();
        let state = State::open(folder.path()).unwrap();
        let (kind, kept_max) = (Kind::Description, 20);
        for number in 0..kept_max + 9 {
            store(&state, kind, &format!("{number:x}"), b"result", kept_max);
        }
        assert_eq!(state.ids(kind).len(), kept_max);
        store(&state, kind, "abc", b"result", kept_max);
        assert_eq!(load(&state, kind, "abc").unwrap(), b"result");
        let path = folder.path().join("descriptions/abc.binpb");
        fs::copy(&path, folder.path().join("descriptions/def.binpb")).unwrap();
        assert_eq!(load(&state, kind, "def"), None);
        let mut bytes = fs::read(&path).unwrap();
        for damaged in [bytes.len() - 1, 3] {
            bytes[damaged] ^= 1;
            fs::write(&path, &bytes).unwrap();
            assert_eq!(load(&state, kind, "abc"), None);
            bytes[damaged] ^= 1;
        }
        fs::write(&path, "").unwrap();
        assert_eq!((load(&state, kind, "abc"), load(&state, kind, "fff")), (None, None));
    }
}
