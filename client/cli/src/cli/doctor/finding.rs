//! The result of a check: what was found, and what to do.

use serde::Serialize;

/// The result of one check.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) check: &'static str,
    pub(super) status: Health,
    /// What was found.
    pub(super) found: String,
    /// What to do; empty if nothing.
    pub(super) advice: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Health {
    Ok,
    /// Works, but not as well as it could.
    Note,
    /// Does not work.
    Wrong,
}

impl Finding {
    pub(super) fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, status: Health::Ok, found: found.into(), advice: String::new() }
    }

    pub(super) fn note(check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { check, status: Health::Note, found: found.into(), advice: advice.into() }
    }

    pub(super) fn wrong(check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { check, status: Health::Wrong, found: found.into(), advice: advice.into() }
    }
}
