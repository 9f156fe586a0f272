//! Descriptions in the state directory. The digest detects damage.

use std::cmp::Reverse;

use forebay_proto::{Encoding, decode, encode, v1};

use crate::state::{Kind, State, StateEntry, short_digest};

/// Descriptions to keep; those that were used longest ago are removed.
const KEPT_MAX: usize = 256;

/// Length of the digest before the message.
const DIGEST_BYTES: usize = 32;

/// Reads a description; none if it is missing or damaged.
pub(super) fn load(state: &State, key: &str) -> Option<v1::Description> {
    let bytes = state.read(Kind::Description, key).ok()??;
    let (digest, message) = bytes.split_at_checked(DIGEST_BYTES)?;
    if short_digest(&[key.as_bytes(), message]).as_bytes() != digest {
        return None;
    }
    state.mark_used(Kind::Description, key);
    decode(message).ok().map(|(description, _)| description)
}

/// Writes a description. If that fails, the next request computes it again.
pub(super) fn store(state: &State, key: &str, description: &v1::Description) {
    let message = encode(description, Encoding::Protobuf);
    let bytes = [short_digest(&[key.as_bytes(), &message]).as_bytes(), &message].concat();
    if let Err(error) = state.write(Kind::Description, key, &bytes) {
        tracing::warn!(%error, "cannot store a description; the next request computes it again");
    }
    let mut kept = state.entries(Kind::Description);
    kept.sort_by_key(|file| Reverse(file.used));
    for StateEntry { id, .. } in kept.into_iter().skip(KEPT_MAX) {
        // Another replica may have removed it.
        let _ = state.remove(Kind::Description, &id);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn keeps_the_latest_and_ignores_damaged_ones() {
        let folder = tempfile::tempdir().unwrap();
        let state = State::open(folder.path()).unwrap();
        let description = v1::Description { dataset: "t".into(), rows: 3, ..v1::Description::default() };
        for number in 0..KEPT_MAX + 9 {
            store(&state, &format!("{number:x}"), &description);
        }
        assert_eq!(state.ids(Kind::Description).len(), KEPT_MAX);
        store(&state, "abc", &description);
        assert_eq!(load(&state, "abc"), Some(description));
        let path = folder.path().join("descriptions/abc.binpb");
        let mut bytes = fs::read(&path).unwrap();
        for damaged in [bytes.len() - 1, 3] {
            bytes[damaged] ^= 1;
            fs::write(&path, &bytes).unwrap();
            assert_eq!(load(&state, "abc"), None);
            bytes[damaged] ^= 1;
        }
        fs::write(&path, "").unwrap();
        assert_eq!((load(&state, "abc"), load(&state, "def")), (None, None));
    }
}
