//! Gauges of what changes outside of calls: the server's certificate and the state.

use std::{
    convert::Infallible,
    sync::Arc,
    time::{Duration, Instant},
};

use forebay_runtime::{metrics, state::State};
use tokio::{task::spawn_blocking, time};

use crate::auth::Tls;

/// Shortest pause between two readings.
const PAUSE: Duration = Duration::from_secs(5);

/// A pause is at least this many times as long as the reading before it: a directory of a million files, or one on a
/// slow network, takes at most a hundredth of a thread.
const PAUSE_SHARE: u32 = 100;

/// The same for an object store, whose listings cost money.
const PAUSE_REMOTE: Duration = Duration::from_mins(5);

/// Keeps the gauges up to date until the future is dropped.
pub async fn refresh(state: State, tls: Option<Arc<Tls>>) -> Infallible {
    tokio::join!(refresh_state(state), refresh_certificate(tls)).0
}

async fn refresh_state(state: State) -> Infallible {
    let shortest = if state.is_remote() { PAUSE_REMOTE } else { PAUSE };
    loop {
        let start = Instant::now();
        match state.usage().await {
            Ok(usage) => metrics::state(usage.bytes, usage.plans),
            Err(error) => tracing::warn!(%error, "cannot measure the state"),
        }
        time::sleep(shortest.max(start.elapsed() * PAUSE_SHARE)).await;
    }
}

async fn refresh_certificate(tls: Option<Arc<Tls>>) -> Infallible {
    loop {
        let tls = tls.clone();
        let read = spawn_blocking(move || {
            if let Some(expires) = tls.and_then(|tls| tls.expires()) {
                metrics::certificate_expiry(expires);
            }
        });
        if let Err(error) = read.await {
            tracing::error!(%error, "cannot read the expiry of the certificate");
        }
        time::sleep(PAUSE).await;
    }
}
