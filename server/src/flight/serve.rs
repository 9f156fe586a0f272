//! Listeners: TCP and Unix sockets, each a gRPC server over the one service, until the server drains.

use std::{
    io,
    net::SocketAddr,
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
};

use arrow_flight::flight_service_server::FlightServiceServer;
use futures::{StreamExt, future::try_join_all};
use tokio::net::{TcpListener, UnixListener};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Server, server::TcpIncoming};

use super::{Service, authority::UnixConnection, linger::Lingering};
use crate::shutdown::{Phase, ShutdownWatch};

/// The largest gRPC message that is taken in. What is larger than a message of ours may be is refused in our own words.
pub(super) const REQUEST_BYTES_MAX: usize = 2 * forebay_proto::JSON_BYTES_MAX;

/// A bound address.
#[derive(Debug)]
pub enum Listener {
    /// A TCP port.
    Tcp(TcpListener),
    /// A Unix socket; its file is removed at the end.
    Unix(UnixListener, PathBuf),
}

/// Why the server cannot listen, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be bound.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The address.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// A listener broke.
    #[error("gRPC: {0}")]
    Transport(#[from] tonic::transport::Error),
}

impl Listener {
    /// Binds a TCP address; port 0 picks a free one.
    pub async fn tcp(address: SocketAddr) -> Result<Self, ServeError> {
        let bound = TcpListener::bind(address).await;
        bound.map(Self::Tcp).map_err(|source| ServeError::Bind { address: address.to_string(), source })
    }

    /// Binds a Unix socket. A socket that a dead server left behind is replaced, a live one is not.
    pub fn unix(path: &Path) -> Result<Self, ServeError> {
        let error = |source| ServeError::Bind { address: format!("unix:{}", path.display()), source };
        let is_socket = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
        let is_dead = || {
            let answer = std::os::unix::net::UnixStream::connect(path);
            answer.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
        };
        if is_socket && is_dead() {
            std::fs::remove_file(path).map_err(error)?;
        }
        UnixListener::bind(path).map(|listener| Self::Unix(listener, path.to_owned())).map_err(error)
    }

    /// The URL that clients connect to.
    pub fn url(&self) -> String {
        match self {
            Self::Tcp(listener) => {
                listener.local_addr().map_or_else(|_| "grpc://?".to_owned(), |address| format!("grpc://{address}"))
            }
            Self::Unix(_, path) => format!("grpc+unix://{}", path.display()),
        }
    }
}

/// Serves on all listeners until the server drains and the last stream has ended.
pub async fn serve(service: Service, listeners: Vec<Listener>, shutdown: ShutdownWatch) -> Result<(), ServeError> {
    let serving = listeners.into_iter().map(|listener| serve_one(service.clone(), listener, shutdown.clone()));
    try_join_all(serving).await.map(|_| ())
}

async fn serve_one(service: Service, listener: Listener, shutdown: ShutdownWatch) -> Result<(), ServeError> {
    let flight = FlightServiceServer::new(service)
        .max_decoding_message_size(REQUEST_BYTES_MAX)
        .max_encoding_message_size(usize::MAX);
    let server = Server::builder().add_service(flight);
    let draining = async move { shutdown.reached(Phase::Draining).await };
    match listener {
        Listener::Tcp(listener) => {
            let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
            let incoming = incoming.map(|stream| stream.map(Lingering::new));
            server.serve_with_incoming_shutdown(incoming, draining).await?;
        }
        Listener::Unix(listener, path) => {
            let incoming = UnixListenerStream::new(listener)
                .map(|stream| stream.map(|stream| Lingering::new(UnixConnection::new(stream))));
            let served = server.serve_with_incoming_shutdown(incoming, draining).await;
            // It may have been removed already.
            let _ = std::fs::remove_file(path);
            served?;
        }
    }
    Ok(())
}
