//! Gauges of what changes outside of calls: the server's certificate and the state directory.

use std::{
    convert::Infallible,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{task::spawn_blocking, time};

use crate::{auth::Tls, metrics, state::State};

/// Shortest pause between two readings.
const PAUSE: Duration = Duration::from_secs(5);

/// A pause is at least this many times as long as the reading before it: a directory of a million files, or one on a
/// slow network, takes at most a hundredth of a thread.
const PAUSE_SHARE: u32 = 100;

/// Keeps the gauges up to date until the future is dropped.
pub async fn refresh(state: State, tls: Option<Arc<Tls>>) -> Infallible {
    loop {
        let (state, tls) = (state.clone(), tls.clone());
        let start = Instant::now();
        let read = spawn_blocking(move || {
            if let Some(expires) = tls.and_then(|tls| tls.expires()) {
                metrics::certificate_expiry(expires);
            }
            let usage = state.usage();
            metrics::state(usage.bytes, usage.plans);
        });
        if let Err(error) = read.await {
            tracing::error!(%error, "cannot measure the state directory");
        }
        time::sleep(PAUSE.max(start.elapsed() * PAUSE_SHARE)).await;
    }
}
