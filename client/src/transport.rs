//! Transport: where connections and random numbers come from. By default both are the operating system's.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::codegen::Service;
use tonic::transport::{Channel, Endpoint, Uri};

use crate::Credentials;

/// Where a client's connections and its chance come from, so that a simulation has both in its hand: two runs that are
/// given the same then do the same.
pub trait Transport: fmt::Debug + Send + Sync {
    /// Connects to a port of a host.
    fn connect(&self, host: &str, port: u16) -> BoxFuture<'static, io::Result<Box<dyn Wire>>>;

    /// A number in 0…1, another one each time.
    fn chance(&self) -> f64;
}

/// A connection: bytes both ways.
pub trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

/// How a client gets at servers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Link {
    /// What it shows of itself there.
    pub credentials: Credentials,
    /// Where connections and chance come from, if not from the system.
    pub transport: Option<Arc<dyn Transport>>,
}

/// Makes connections for tonic.
struct Connector(Arc<dyn Transport>);

impl Link {
    /// Over the system's own connections.
    pub(crate) fn of(credentials: Credentials) -> Self {
        Self { credentials, transport: None }
    }

    /// Connects to a server, within the endpoint's time.
    pub(crate) async fn connect(&self, endpoint: &Endpoint) -> Result<Channel, tonic::transport::Error> {
        match &self.transport {
            None => endpoint.connect().await,
            Some(transport) => endpoint.connect_with_connector(Connector(Arc::clone(transport))).await,
        }
    }

    /// A number in 0…1, another one each time. (The standard library seeds each hasher at random.)
    pub(crate) fn chance(&self) -> f64 {
        match &self.transport {
            None => (RandomState::new().build_hasher().finish() >> 11) as f64 / (1_u64 << 53) as f64,
            Some(transport) => transport.chance(),
        }
    }
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
