//! The reason that begins the message of every gRPC status.

use std::fmt;

use crate::v1::Reason;

impl Reason {
    /// Writes a status message that begins with this reason.
    #[must_use]
    pub fn prefix(self, text: &str) -> String {
        format!("{self}: {text}")
    }

    /// What the reason means, in words that are the same for every call.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Unspecified => "no reason is given",
            Self::InvalidRequest => "a field of the request is wrong",
            Self::InvalidValue => "an output cannot hold a value of the data, such as a null",
            Self::OrderChanged => "the request resumes an epoch under another version of the order",
            Self::UnknownDataset => "no such dataset",
            Self::UnknownPlan => "no such fitted plan",
            Self::NotFitted => "the plan must be fitted first",
            Self::NotFittable => "the data does not give an op what it must learn",
            Self::EmptyDataset => "the dataset has no files or no rows",
            Self::SchemaDrift => "files differ in their schemas, or the data from that which the plan was fitted to",
            Self::Unrepresentable => "a value of the data cannot be represented",
            Self::StoreRefused => "the store rejects the server's credentials or request",
            Self::ViewFailed => "the SQL of a view failed",
            Self::UdfFailed => "a Python function failed, or is another one than the plan names",
            Self::TokenizerChanged => "the file of a tokenizer is another one than the plan names",
            Self::IncompatibleVersion => "client and server share no version of the protocol",
            Self::SnapshotChanged => "a file changed since the snapshot",
            Self::CorruptData => "a file is corrupt",
            Self::Limit => "the request exceeds a limit",
            Self::Overloaded => "a limit is reached for now",
            Self::ShuttingDown => "the server is shutting down",
            Self::StoreUnavailable => "the store does not respond",
            Self::Interrupted => "the server cannot continue the call",
            Self::Deadline => "the request did not arrive in time",
            Self::Cancelled => "the client cancelled the call",
            Self::UdfUnavailable => "no process serves a Python function of the plan",
            Self::Unauthenticated => "the credentials are missing or unknown",
            Self::PermissionDenied => "the caller may not do this",
            Self::Unimplemented => "the server does not offer this call, or a feature that a table needs",
            Self::Internal => "a bug of the server",
        }
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
