//! Listeners: TCP and Unix sockets, each a gRPC server over the one service, until the server drains.

use std::{
    io,
    net::SocketAddr,
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
};

use futures::future::join_all;
use tokio::net::{TcpListener, UnixListener};

use super::{Service, authority::UnixConnection, calls::Calls, connection::serve_connections, linger::Lingering};
use crate::{shutdown::ShutdownWatch, stream::SENDING_BYTES};

/// A bound address.
#[derive(Debug)]
pub enum Listener {
    /// A TCP port.
    Tcp(TcpListener),
    /// A Unix socket.
    Unix(UnixListener, SocketFile),
}

/// The file of a Unix socket; dropping it removes it.
#[derive(Debug)]
pub struct SocketFile(PathBuf);

/// Why the server cannot listen.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {source}")]
pub struct BindError {
    address: String,
    source: io::Error,
}

impl Listener {
    /// Binds a TCP address; port 0 picks a free one.
    pub async fn tcp(address: SocketAddr) -> Result<Self, BindError> {
        let bound = TcpListener::bind(address).await;
        bound.map(Self::Tcp).map_err(|source| BindError { address: address.to_string(), source })
    }

    /// Binds a Unix socket. A socket that a dead server left behind is replaced, a live one is not.
    pub fn unix(path: &Path) -> Result<Self, BindError> {
        let error = |source| BindError { address: format!("unix:{}", path.display()), source };
        let is_socket = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
        let is_dead = || {
            let answer = std::os::unix::net::UnixStream::connect(path);
            answer.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
        };
        if is_socket && is_dead() {
            std::fs::remove_file(path).map_err(error)?;
        }
        UnixListener::bind(path).map(|listener| Self::Unix(listener, SocketFile(path.to_owned()))).map_err(error)
    }

    /// The URL that clients connect to.
    pub fn url(&self) -> String {
        match self {
            Self::Tcp(listener) => {
                listener.local_addr().map_or_else(|_| "grpc://?".to_owned(), |address| format!("grpc://{address}"))
            }
            Self::Unix(_, SocketFile(path)) => format!("grpc+unix://{}", path.display()),
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // It may have been removed already.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Serves on all listeners until the server drains and the last stream has ended.
pub async fn serve(service: Service, listeners: Vec<Listener>, shutdown: ShutdownWatch) {
    let calls = Calls::new(service);
    join_all(listeners.into_iter().map(|listener| serve_one(calls.clone(), listener, &shutdown))).await;
}

async fn serve_one(calls: Calls, listener: Listener, shutdown: &ShutdownWatch) {
    let answer = move |call| calls.clone().answer(call);
    match listener {
        Listener::Tcp(listener) => {
            let accept = async move || {
                let (stream, _) = listener.accept().await?;
                // The end of a batch does not wait for the beginning of the next one. A connection that is gone already
                // is told by its first read, and is no reason to stop accepting.
                let _ = stream.set_nodelay(true);
                Ok(Lingering::new(stream))
            };
            serve_connections(answer, accept, SENDING_BYTES, shutdown).await;
        }
        Listener::Unix(listener, _file) => {
            let accept = async move || Ok(Lingering::new(UnixConnection::new(listener.accept().await?.0)));
            serve_connections(answer, accept, SENDING_BYTES, shutdown).await;
        }
    }
}
