//! Guards of gauges: dropping one counts the end of an exchange, a fit, a run of a view or a connection.

use std::time::Instant;

use metrics::counter;

use super::handles::handles;

/// The outcome of a stream or an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamStatus {
    /// Every batch was sent.
    Complete,
    /// The client disconnected.
    Cancelled,
    /// An error was sent.
    Failed,
}

/// Updates `forebay_exchanges_active` and `forebay_exchanges_total`. An exchange dropped before [`Self::end`] was
/// cancelled.
#[derive(Debug)]
pub struct ExchangeGuard {
    status: StreamStatus,
}

/// Updates `forebay_fits_active`.
#[derive(Debug)]
pub struct FitGuard(());

/// Updates `forebay_view_runs_active`, `forebay_view_runs_total` and `forebay_view_run_seconds`. A run dropped before
/// [`Self::succeeded`] failed.
#[derive(Debug)]
pub struct ViewRunGuard {
    started: Instant,
    status: StreamStatus,
}

/// Updates `forebay_connections_active`.
#[derive(Debug)]
pub struct ConnectionGuard(());

/// Why a stream releases its memory before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseReason {
    /// The client takes no batch.
    Unread,
    /// Another client needs the memory.
    Shortage,
}

/// Updates `forebay_streams_paused` and `forebay_stream_pauses_total`.
#[derive(Debug)]
pub struct PausedGuard(());

// === impl PauseReason ===

impl PauseReason {
    pub(super) const ALL: [Self; 2] = [Self::Unread, Self::Shortage];

    /// Returns its label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Unread => "unread",
            Self::Shortage => "shortage",
        }
    }
}

// === impl PausedGuard ===

impl PausedGuard {
    /// Counts a stream that is paused.
    pub fn open(reason: PauseReason) -> Self {
        counter!("forebay_stream_pauses_total", "reason" => reason.label()).increment(1);
        handles().streams_paused.increment(1);
        Self(())
    }
}

impl Drop for PausedGuard {
    fn drop(&mut self) {
        handles().streams_paused.decrement(1);
    }
}

// === impl StreamStatus ===

impl StreamStatus {
    pub(super) const ALL: [Self; 3] = [Self::Complete, Self::Cancelled, Self::Failed];

    /// Returns its label.
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
    /// Counts an exchange that opens.
    pub fn open() -> Self {
        handles().exchanges_active.increment(1.0);
        Self { status: StreamStatus::Cancelled }
    }

    /// Sets the outcome of the exchange.
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
    /// Counts a fit that starts.
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

// === impl ViewRunGuard ===

impl ViewRunGuard {
    /// Counts a run that starts.
    pub fn open() -> Self {
        handles().view_runs_active.increment(1.0);
        Self { started: Instant::now(), status: StreamStatus::Failed }
    }

    /// Notes that the run has a result.
    pub fn succeeded(&mut self) {
        self.status = StreamStatus::Complete;
    }
}

impl Drop for ViewRunGuard {
    fn drop(&mut self) {
        handles().view_runs_active.decrement(1.0);
        counter!("forebay_view_runs_total", "status" => self.status.label()).increment(1);
        handles().view_run_seconds.record(self.started.elapsed().as_secs_f64());
    }
}

// === impl ConnectionGuard ===

impl ConnectionGuard {
    /// Counts an accepted connection.
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
