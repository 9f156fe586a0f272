//! What is open now: gauges that are right however a thing ends.

use metrics::counter;

use super::handles::handles;

/// How a stream or an exchange ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamStatus {
    /// Every batch was sent.
    Complete,
    /// The client went away.
    Cancelled,
    /// An error was sent.
    Failed,
}

/// Keeps `forebay_exchanges_active` and `forebay_exchanges_total` right: an exchange that is dropped before it says
/// otherwise was cancelled.
#[derive(Debug)]
pub struct ExchangeGuard {
    status: StreamStatus,
}

/// Keeps `forebay_fits_active` right however the fit ends.
#[derive(Debug)]
pub struct FitGuard(());

/// The same for `forebay_connections_active`.
#[derive(Debug)]
pub struct ConnectionGuard(());

// === impl StreamStatus ===

impl StreamStatus {
    pub(super) const ALL: [Self; 3] = [Self::Complete, Self::Cancelled, Self::Failed];

    /// Its label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
        }
    }
}

// === impl ExchangeGuard ===

impl ExchangeGuard {
    /// An exchange has opened.
    pub fn open() -> Self {
        handles().exchanges_active.increment(1.0);
        Self { status: StreamStatus::Cancelled }
    }

    /// Says how the exchange ends.
    pub fn end(&mut self, status: StreamStatus) {
        self.status = status;
    }
}

impl Drop for ExchangeGuard {
    fn drop(&mut self) {
        handles().exchanges_active.decrement(1.0);
        counter!("forebay_exchanges_total", "status" => self.status.label()).increment(1);
    }
}

// === impl FitGuard ===

impl FitGuard {
    /// A fit has started.
    pub fn open() -> Self {
        handles().fits_active.increment(1.0);
        Self(())
    }
}

impl Drop for FitGuard {
    fn drop(&mut self) {
        handles().fits_active.decrement(1.0);
    }
}

// === impl ConnectionGuard ===

impl ConnectionGuard {
    /// A connection was accepted.
    pub fn open() -> Self {
        handles().connections_active.increment(1.0);
        Self(())
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        handles().connections_active.decrement(1.0);
    }
}
