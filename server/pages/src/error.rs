//! Pages that contradict themselves.

use std::borrow::Cow;

/// A damaged page, described for the operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PageError(Cow<'static, str>);

impl PageError {
    pub(crate) fn new(reason: impl Into<Cow<'static, str>>) -> Self {
        Self(reason.into())
    }
}
