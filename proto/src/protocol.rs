//! The version of the protocol, which client and server tell each other in headers of each call.
//!
//! A client sends the protocol that it uses. A server refuses one that it does not support (`INCOMPATIBLE_VERSION`),
//! and sends the newest one that it supports with every response. A call without the headers is not refused: any Arrow
//! Flight client can send it.

/// The newest protocol that this version supports. Increased by a change that the other side must know; new fields,
/// actions and reasons are not such changes.
pub const PROTOCOL: u32 = 1;

/// The oldest protocol that this version supports.
pub const PROTOCOL_OLDEST: u32 = 1;

/// The header with the protocol, a decimal integer.
pub const PROTOCOL_HEADER: &str = "forebay-protocol";

/// The header with the version of the program, for messages.
pub const VERSION_HEADER: &str = "forebay-version";

/// The version of this program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Returns the version in a header if it can be part of a message, otherwise `of unknown version`.
#[must_use]
pub fn shown_version(header: Option<&str>) -> &str {
    const BYTES_MAX: usize = 64;
    let is_shown =
        |text: &&str| !text.is_empty() && text.len() <= BYTES_MAX && text.bytes().all(|byte| byte.is_ascii_graphic());
    header.filter(is_shown).unwrap_or("of unknown version")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_versions_without_spaces_and_control_characters() {
        assert_eq!(shown_version(Some("1.2.3")), "1.2.3");
        for header in [None, Some(""), Some("a b"), Some("\u{1b}[2J"), Some("ä")] {
            assert_eq!(shown_version(header), "of unknown version", "{header:?}");
        }
        assert_eq!(shown_version(Some(&"1".repeat(65))), "of unknown version");
    }

    #[test]
    fn the_newest_protocol_is_supported() {
        const { assert!(PROTOCOL_OLDEST <= PROTOCOL) };
        assert_eq!(VERSION.split('.').count(), 3);
    }
}
