//! Listeners: TCP and Unix sockets that serve the same calls, until the server drains.

use std::{
    future, io,
    net::SocketAddr,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use arrow_flight::flight_service_server::FlightServiceServer;
use forebay_runtime::shutdown::{Phase, ShutdownWatch};
use forebay_stream::SENDING_BYTES;
use futures::future::join_all;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener};
use tonic::server::NamedService;
use tonic_health::{
    ServingStatus,
    pb::health_server::HealthServer,
    server::{HealthReporter, HealthService},
};

#[cfg(target_os = "linux")]
use super::rings::{RingSettings, serve_rings};
use super::{
    authority::with_plain_authority,
    connection::{ConnectionSettings, serve_connections},
    linger::lingering,
    permits::ConnectionPermits,
    reflection::{Reflection, ReflectionError},
    router::Router,
    tls::shake_hands,
};
use crate::{
    auth::{Peer, Tls},
    flight::{refusal_sample, service::Service},
};

/// Send buffer of a loopback connection. The kernel would let it grow to megabytes, whose pages are cold in the CPU
/// caches: a fifth of the CPU time of sending. Over a network the buffer must grow.
const LOOPBACK_BUFFER_BYTES: usize = 256 << 10;

/// Connections that may wait to be accepted; `net.core.somaxconn` may allow fewer.
const BACKLOG: u32 = 4096;

/// Names under which health is reported: the whole server, and the Flight service.
const HEALTH_NAMES: [&str; 2] = ["", <FlightServiceServer<Service> as NamedService>::NAME];

/// A bound address.
#[derive(Debug)]
pub enum Listener {
    /// A TCP port, with TLS or without.
    Tcp(TcpListener, Option<Arc<Tls>>),
    /// A Unix socket.
    Unix(UnixListener, SocketFile),
    /// The ring next to a Unix socket.
    #[cfg(target_os = "linux")]
    Ring(UnixListener, SocketFile),
}

/// The file of a Unix socket. Dropping it removes the file, unless the path has another one by then.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode; none if they could not be read.
    identity: Option<(u64, u64)>,
}

/// Settings of the connections and calls.
#[derive(Clone, Copy, Debug)]
pub struct ServeSettings {
    /// Age at which a client is sent GOAWAY, so that it reconnects; zero: never.
    pub connection_age: Duration,
    /// Time after that until the connection is closed.
    pub connection_grace: Duration,
    /// Idle time before a keepalive ping; zero: none.
    pub keepalive: Duration,
    /// Time for the TLS handshake, for the HTTP/2 preface, and where calls need credentials, for the first of them.
    pub handshake: Duration,
    /// Limit of open connections.
    pub connections_max: usize,
    /// Limit of open connections from one address.
    pub connections_per_address: usize,
    /// Whether gRPC reflection is enabled.
    pub reflection: bool,
}

/// Why the server cannot listen.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {source}")]
pub struct BindError {
    address: String,
    source: io::Error,
}

impl Listener {
    /// Binds a TCP address; port 0 selects a free one. With TLS, plaintext connections are rejected.
    pub fn tcp(address: SocketAddr, tls: Option<Arc<Tls>>) -> Result<Self, BindError> {
        listen(address)
            .map(|listener| Self::Tcp(listener, tls))
            .map_err(|source| BindError { address: address.to_string(), source })
    }

    /// Binds a Unix socket. Replaces the socket file of a server that has ended, but not of a running one.
    pub fn unix(path: &Path) -> Result<Self, BindError> {
        bind_unix(path).map(|(listener, file)| Self::Unix(listener, file))
    }

    /// Binds the ring of a Unix socket, whose path ends in `.ring`.
    #[cfg(target_os = "linux")]
    pub fn ring(path: &Path) -> Result<Self, BindError> {
        let mut path = path.as_os_str().to_owned();
        path.push(".ring");
        bind_unix(Path::new(&path)).map(|(listener, file)| Self::Ring(listener, file))
    }

    /// What the server says when it is ready: the URL that clients connect to.
    pub fn announcement(&self) -> String {
        match self {
            Self::Tcp(listener, tls) => {
                let scheme = if tls.is_some() { "grpc+tls" } else { "grpc" };
                let address = listener.local_addr().map_or_else(|_| "?".to_owned(), |address| address.to_string());
                format!("listening on {scheme}://{address}")
            }
            Self::Unix(_, file) => format!("listening on grpc+unix://{}", file.path.display()),
            #[cfg(target_os = "linux")]
            Self::Ring(_, file) => format!("ring on {}", file.path.display()),
        }
    }
}

/// Binds a Unix socket, in place of the file of one that no server listens on.
fn bind_unix(path: &Path) -> Result<(UnixListener, SocketFile), BindError> {
    let error = |source| BindError { address: format!("unix:{}", path.display()), source };
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    let is_stale = || {
        let connected = std::os::unix::net::UnixStream::connect(path);
        connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    };
    if is_socket && is_stale() {
        std::fs::remove_file(path).map_err(error)?;
    }
    UnixListener::bind(path).map(|listener| (listener, SocketFile::new(path))).map_err(error)
}

// === impl SocketFile ===

impl SocketFile {
    /// The file that was just bound.
    fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), identity: identity(path) }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Another server may have been started at this path after the file was removed.
        if self.identity.is_some() && identity(&self.path) == self.identity {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Device and inode of the file at a path.
fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

/// Serves on all listeners until the server has drained: new calls are refused from the beginning of the drain.
pub async fn serve(
    service: Service,
    listeners: Vec<Listener>,
    settings: ServeSettings,
    shutdown: ShutdownWatch,
) -> Result<(), ReflectionError> {
    let mut reporter = HealthReporter::new();
    let health = HealthServer::new(HealthService::from_health_reporter(reporter.clone()));
    for name in HEALTH_NAMES {
        reporter.set_service_status(name, ServingStatus::Serving).await;
    }
    let reflection = settings.reflection.then(Reflection::new).transpose()?;
    let first_call = if service.requires_credentials() { settings.handshake } else { Duration::ZERO };
    let router = Router::new(service, health, reflection);
    let connections = ConnectionSettings {
        sending_bytes: SENDING_BYTES,
        age_max: settings.connection_age,
        grace: settings.connection_grace,
        keepalive: settings.keepalive,
        handshake: settings.handshake,
        first_call,
        permits: ConnectionPermits::new(settings.connections_max, settings.connections_per_address),
    };
    let serving = join_all(
        listeners.into_iter().map(|listener| serve_one(router.clone(), listener, connections.clone(), &shutdown)),
    );
    let reporting = async {
        shutdown.reached(Phase::Draining).await;
        for name in HEALTH_NAMES {
            reporter.set_service_status(name, ServingStatus::NotServing).await;
        }
        shutdown.reached(Phase::Drained).await;
        for name in HEALTH_NAMES {
            // Ends the open health watches, which would delay the end of their connections; checks continue.
            reporter.clear_service_status(name).await;
            reporter.set_service_status(name, ServingStatus::NotServing).await;
        }
        future::pending::<()>().await;
    };
    tokio::select! {
        _ = serving => {}
        () = reporting => {}
        never = refusal_sample::report() => match never {},
    }
    refusal_sample::write_left_out();
    Ok(())
}

/// Binds a TCP address with a long backlog: the clients of a failed replica connect all at once.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A restarted server can bind its port while old connections are in TIME_WAIT.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Sets the options of a connection. Errors are ignored: the first read reports a closed connection.
pub fn tune(stream: &TcpStream, peer: SocketAddr) {
    // The end of a batch is sent without waiting for the next one.
    let _ = stream.set_nodelay(true);
    if peer.ip().to_canonical().is_loopback() {
        let _ = SockRef::from(stream).set_send_buffer_size(LOOPBACK_BUFFER_BYTES);
    }
}

async fn serve_one(router: Router, listener: Listener, settings: ConnectionSettings, shutdown: &ShutdownWatch) {
    let calls = router.clone();
    let answer = move |call| calls.clone().answer(call);
    match listener {
        Listener::Tcp(listener, None) => {
            let accept = async move || {
                let (stream, address) = listener.accept().await?;
                tune(&stream, address);
                let peer = Peer { address: Some(address), certificate: None };
                Ok((Some(address.ip()), future::ready(Ok((lingering(stream), peer)))))
            };
            serve_connections(answer, accept, settings, shutdown).await;
        }
        Listener::Tcp(listener, Some(tls)) => {
            let accept = async move || {
                let (stream, address) = listener.accept().await?;
                tune(&stream, address);
                let peer = Peer { address: Some(address), certificate: None };
                let tls = Arc::clone(&tls);
                let opening = async move {
                    let (stream, peer) = shake_hands(&tls, stream, peer).await?;
                    Ok((lingering(stream), peer))
                };
                Ok((Some(address.ip()), opening))
            };
            serve_connections(answer, accept, settings, shutdown).await;
        }
        Listener::Unix(listener, _file) => {
            let accept = async move || {
                let stream = lingering(with_plain_authority(listener.accept().await?.0));
                Ok((None, future::ready(Ok((stream, Peer::default())))))
            };
            serve_connections(answer, accept, settings, shutdown).await;
        }
        #[cfg(target_os = "linux")]
        Listener::Ring(listener, _file) => {
            let rings = RingSettings { handshake: settings.handshake };
            serve_rings(router, listener, rings, &settings.permits, shutdown).await;
        }
    }
}
