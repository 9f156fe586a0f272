//! Source of connections and random numbers; the operating system by default.

use std::{
    collections::hash_map::RandomState,
    fmt,
    hash::{BuildHasher, Hasher},
    io,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::future::BoxFuture;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time,
};
use tonic::{
    codegen::Service,
    transport::{Channel, Endpoint, Uri},
};

use crate::{
    Credentials, address,
    handshake::{Mismatch, with_scheme},
};

/// Time limit of the handshake that finds out whether a port is for TLS.
const PROBE_TIMEOUT: Duration = Duration::from_millis(1500);

/// Source of a client's connections and random numbers. A simulation implements it to make runs reproducible.
pub trait Transport: fmt::Debug + Send + Sync {
    /// Connects to a port of a host.
    fn connect(&self, host: &str, port: u16) -> BoxFuture<'static, io::Result<Box<dyn Wire>>>;

    /// Returns a random number in 0..1.
    fn chance(&self) -> f64;
}

/// Byte stream of a connection.
pub trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

/// How a client connects to servers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Link {
    /// Credentials it presents.
    pub credentials: Credentials,
    /// Replaces the operating system's connections and random numbers.
    pub transport: Option<Arc<dyn Transport>>,
}

/// Adapts a [`Transport`] to tonic.
struct Connector(Arc<dyn Transport>);

impl Link {
    /// Uses the operating system's connections.
    pub(crate) fn of(credentials: Credentials) -> Self {
        Self { credentials, transport: None }
    }

    /// Connects to a server within the endpoint's timeout.
    pub(crate) async fn connect(&self, endpoint: &Endpoint) -> Result<Channel, tonic::transport::Error> {
        match &self.transport {
            None => endpoint.connect().await,
            Some(transport) => endpoint.connect_with_connector(Connector(Arc::clone(transport))).await,
        }
    }

    /// Returns a random number in 0..1. The standard library seeds each hasher at random.
    pub(crate) fn chance(&self) -> f64 {
        match &self.transport {
            None => (RandomState::new().build_hasher().finish() >> 11) as f64 / (1_u64 << 53) as f64,
            Some(transport) => transport.chance(),
        }
    }
}

/// Finds out by a handshake whether the port of a plain URL is for TLS.
pub(crate) async fn tls_port(url: &str) -> Option<Mismatch> {
    let tls_url = with_scheme(url, "grpc+tls");
    let endpoint = address::endpoint(&tls_url, &Credentials::default()).ok()?.connect_timeout(PROBE_TIMEOUT);
    let is_tls = match time::timeout(PROBE_TIMEOUT, endpoint.connect()).await.ok()? {
        Ok(_) => true,
        Err(error) => !matches!(Mismatch::of(&error, &tls_url), None | Some(Mismatch::PlainPort(_))),
    };
    is_tls.then_some(Mismatch::TlsPort(tls_url))
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Box<dyn Wire>>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connected = self.0.connect(uri.host().unwrap_or_default(), uri.port_u16().unwrap_or_default());
        Box::pin(async move { connected.await.map(TokioIo::new) })
    }
}
