//! Counterpart of `traces` for builds without the feature `otlp`: a collector is refused, and there are no traces.

use std::time::Duration;

use tracing::Span;
use tracing_subscriber::layer::Identity;

/// Traces that are sent, which cannot exist.
#[derive(Debug)]
pub(super) enum Traces {}

/// The reason why traces cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The build sends no traces.
    #[error("this forebay-server was built without its feature `otlp`; `make build` builds it with every feature")]
    NotBuilt,
}

/// Refuses every collector.
pub fn check_endpoint(_: &str) -> Result<(), TraceError> {
    Err(TraceError::NotBuilt)
}

/// Leaves a call's span as it is.
pub fn join(_: &Span, _: &'static str, _: impl Fn(&str) -> Option<String>) {}

/// Leaves a call's span as it is.
pub fn failed(_: &Span, _: &str) {}

// === impl Traces ===

impl Traces {
    pub(super) fn start(_: &str) -> Result<Self, TraceError> {
        Err(TraceError::NotBuilt)
    }

    pub(super) fn layer(&self) -> Identity {
        match *self {}
    }

    pub(super) fn end(&self, _: Duration) {
        match *self {}
    }
}
