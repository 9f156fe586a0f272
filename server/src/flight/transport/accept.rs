//! Accepts connections until the server has drained, each in a task.

use std::{io, net::IpAddr, time::Duration};

use forebay_runtime::shutdown::{Phase, ShutdownWatch};
use tokio::{task::JoinSet, time};

use super::permits::{ConnectionPermit, ConnectionPermits};

/// Pause after a failed accept, as when no file descriptor is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves every connection that `accept` returns with its address, until the server has drained.
///
/// `accept` owns the listener, which stays open during the drain: a client that connects then learns that it should use
/// another replica, where a refused connection could mean a crash or a wrong address.
pub(super) async fn accept_connections<Accepted, Serving>(
    accept: impl AsyncFn() -> io::Result<(Option<IpAddr>, Accepted)>,
    permits: &ConnectionPermits,
    shutdown: &ShutdownWatch,
    serve: impl Fn(Accepted, ConnectionPermit) -> Serving,
) where
    Serving: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = shutdown.reached(Phase::Closed) => break,
            accepted = accept() => accepted,
        };
        while connections.try_join_next().is_some() {}
        match accepted {
            Ok((address, accepted)) => {
                if let Some(permit) = permits.acquire(address) {
                    connections.spawn(serve(accepted, permit));
                }
            }
            Err(error) => {
                tracing::warn!(%error, "connection not accepted");
                time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(accept);
    // Each connection sends its GOAWAY while the runtime still runs.
    connections.shutdown().await;
}
