//! The reason that begins the message of every gRPC status.

use std::fmt;

use crate::v1::Reason;

impl Reason {
    /// Writes a status message that begins with this reason.
    #[must_use]
    pub fn prefix(self, text: &str) -> String {
        format!("{self}: {text}")
    }

    /// Splits a status message into its reason and its text; `Unspecified` and the whole message where it names none.
    #[must_use]
    pub fn split(message: &str) -> (Self, &str) {
        let named = message.split_once(": ").and_then(|(name, text)| Some((Self::from_str_name(name)?, text)));
        named.unwrap_or((Self::Unspecified, message))
    }
}

/// The name as it is in a message: `NOT_FITTED`.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str_name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_what_it_prefixed() {
        let message = Reason::NotFitted.prefix("plan.outputs[0]: standardize");
        assert_eq!(message, "NOT_FITTED: plan.outputs[0]: standardize");
        assert_eq!(Reason::split(&message), (Reason::NotFitted, "plan.outputs[0]: standardize"));
    }

    #[test]
    fn leaves_other_messages_whole() {
        for message in ["", "plan.filter: wrong", "NOT_FITTED", "NOT_FITTED:", "not_fitted: x", "x: NOT_FITTED: y"] {
            assert_eq!(Reason::split(message), (Reason::Unspecified, message));
        }
    }
}
