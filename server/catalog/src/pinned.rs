//! Whether a file is still the pinned one.

use object_store::ObjectMeta;

/// A weak tag never matches in `If-Match`.
pub(super) fn is_strong(tag: &str) -> bool {
    !tag.starts_with("W/")
}

/// Whether two responses describe the same state of a file. Compares dates only without a strong `ETag`, because
/// listings have a finer resolution than reads, and versions only if both have one, because many listings do not.
pub(super) fn is_same(pinned: &ObjectMeta, now: &ObjectMeta) -> bool {
    let is_strong = pinned.e_tag.as_deref().is_some_and(is_strong);
    let is_other_version = pinned.version.is_some() && now.version.is_some() && pinned.version != now.version;
    pinned.size == now.size
        && !is_other_version
        && pinned.e_tag.as_deref().map(bare) == now.e_tag.as_deref().map(bare)
        && (is_strong || pinned.last_modified == now.last_modified)
}

/// A tag without its quotes, which Azure's listings omit.
fn bare(tag: &str) -> &str {
    tag.trim_matches('"')
}

#[cfg(test)]
mod tests {
    use object_store::path::Path;

    use super::*;

    #[test]
    fn compares_dates_of_weak_tags() {
        let meta = |tag: &str, seconds| ObjectMeta {
            location: Path::from("a"),
            last_modified: std::time::SystemTime::UNIX_EPOCH
                .checked_add(std::time::Duration::new(seconds, 0))
                .unwrap()
                .into(),
            size: 1,
            e_tag: Some(tag.to_owned()),
            version: None,
        };
        let version = |version: &str| ObjectMeta { version: Some(version.to_owned()), ..meta("\"a\"", 1) };
        assert!(is_same(&version("1"), &version("1")));
        assert!(!is_same(&version("1"), &version("2")));
        assert!(is_same(&version("1"), &meta("\"a\"", 1)));
        assert!(is_same(&meta("0x8", 1), &meta("\"0x8\"", 2)));
        assert!(!is_same(&meta("\"a\"", 1), &meta("\"b\"", 1)));
        assert!(is_same(&meta("W/\"a\"", 1), &meta("W/\"a\"", 1)));
        assert!(!is_same(&meta("W/\"a\"", 1), &meta("W/\"a\"", 2)));
    }
}
