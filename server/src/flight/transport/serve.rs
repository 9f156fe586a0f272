//! Listeners: TCP and Unix sockets, each a gRPC server over the one service, until the server drains.

use std::{
    future, io,
    net::SocketAddr,
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use arrow_flight::flight_service_server::FlightServiceServer;
use futures::future::join_all;
use socket2::SockRef;
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream, UnixListener},
    time,
};
use tonic::server::NamedService;
use tonic_health::{
    ServingStatus,
    pb::health_server::HealthServer,
    server::{HealthReporter, HealthService},
};

use super::{
    authority::with_plain_authority,
    connection::{ConnectionSettings, Places, serve_connections},
    linger::lingering,
    reflection::{Reflection, ReflectionError},
    router::Router,
    tls::shake_hands,
};
use crate::{
    auth::{Peer, Tls},
    flight::service::Service,
    shutdown::{Phase, ShutdownWatch},
    stream::SENDING_BYTES,
};

/// What the kernel holds of a connection to a client on this machine. It would let it grow to megabytes, whose pages are
/// cold in the caches when they are written and read: a fifth of the CPU time of sending. Over a network it has to grow.
const LOOPBACK_BUFFER_BYTES: usize = 256 << 10;

/// Connections that wait to be accepted, where the system allows as many (net.core.somaxconn).
const BACKLOG: u32 = 4096;

/// The time in which a draining server says so to whoever asks about its health on a connection that is still open.
const HEALTH_FAREWELL: Duration = Duration::from_secs(1);

/// A bound address.
#[derive(Debug)]
pub enum Listener {
    /// A TCP port, with TLS or without.
    Tcp(TcpListener, Option<Arc<Tls>>),
    /// A Unix socket.
    Unix(UnixListener, SocketFile),
}

/// The file of a Unix socket; dropping it removes it.
#[derive(Debug)]
pub struct SocketFile(PathBuf);

/// How calls are served.
#[derive(Clone, Copy, Debug)]
pub struct ServeSettings {
    /// The age at which a connection is asked to go; zero: never.
    pub connection_age: Duration,
    /// So much later it is closed.
    pub connection_grace: Duration,
    /// After so long without a word from a client it is asked whether it is still there; zero: never.
    pub keepalive: Duration,
    /// The time in which a client must have shaken hands and said that it speaks HTTP/2.
    pub handshake: Duration,
    /// Connections that may be open at once.
    pub connections_max: usize,
    /// Whether tools may ask for the calls and their messages.
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
    /// Binds a TCP address; port 0 picks a free one. With TLS nothing else is spoken there.
    pub fn tcp(address: SocketAddr, tls: Option<Arc<Tls>>) -> Result<Self, BindError> {
        listen(address)
            .map(|listener| Self::Tcp(listener, tls))
            .map_err(|source| BindError { address: address.to_string(), source })
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
            Self::Tcp(listener, tls) => {
                let scheme = if tls.is_some() { "grpc+tls" } else { "grpc" };
                let address = listener.local_addr().map_or_else(|_| "?".to_owned(), |address| address.to_string());
                format!("{scheme}://{address}")
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
pub async fn serve(
    service: Service,
    listeners: Vec<Listener>,
    settings: ServeSettings,
    shutdown: ShutdownWatch,
) -> Result<(), ReflectionError> {
    let mut reporter = HealthReporter::new();
    let health = HealthServer::new(HealthService::from_health_reporter(reporter.clone()));
    reporter.set_serving::<FlightServiceServer<Service>>().await;
    let reflection = settings.reflection.then(Reflection::new).transpose()?;
    let calls = Router::new(service, health, reflection);
    let connections = ConnectionSettings {
        sending_bytes: SENDING_BYTES,
        age_max: settings.connection_age,
        grace: settings.connection_grace,
        keepalive: settings.keepalive,
        handshake: settings.handshake,
        places: Places::new(settings.connections_max),
    };
    let serving = join_all(
        listeners.into_iter().map(|listener| serve_one(calls.clone(), listener, connections.clone(), &shutdown)),
    );
    let telling = async {
        shutdown.reached(Phase::Draining).await;
        reporter.set_not_serving::<FlightServiceServer<Service>>().await;
        reporter.set_service_status("", ServingStatus::NotServing).await;
        time::sleep(HEALTH_FAREWELL).await;
        // Whoever still watches would hold the drain up to its end.
        reporter.clear_service_status(<FlightServiceServer<Service> as NamedService>::NAME).await;
        reporter.clear_service_status("").await;
        future::pending::<()>().await;
    };
    tokio::select! {
        _ = serving => {}
        () = telling => {}
    }
    Ok(())
}

/// Binds a TCP address with room for a crowd: clients of a replica that failed come all at once.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A server that comes back finds its port while connections of the one before are still being forgotten.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Sets a connection's options. One that is gone already is told by its first read, and is no reason to stop accepting.
pub fn tune(stream: &TcpStream, peer: SocketAddr) {
    // The end of a batch does not wait for the beginning of the next one.
    let _ = stream.set_nodelay(true);
    if peer.ip().to_canonical().is_loopback() {
        let _ = SockRef::from(stream).set_send_buffer_size(LOOPBACK_BUFFER_BYTES);
    }
}

async fn serve_one(calls: Router, listener: Listener, settings: ConnectionSettings, shutdown: &ShutdownWatch) {
    let answer = move |call| calls.clone().answer(call);
    match listener {
        Listener::Tcp(listener, None) => {
            let accept = async move || {
                let (stream, address) = listener.accept().await?;
                tune(&stream, address);
                let peer = Peer { address: Some(address.ip()), certificate: None };
                Ok(future::ready(Ok((lingering(stream), peer))))
            };
            serve_connections(answer, accept, settings, shutdown).await;
        }
        Listener::Tcp(listener, Some(tls)) => {
            let accept = async move || {
                let (stream, address) = listener.accept().await?;
                tune(&stream, address);
                let peer = Peer { address: Some(address.ip()), certificate: None };
                let tls = Arc::clone(&tls);
                Ok(async move {
                    let (stream, peer) = shake_hands(&tls, stream, peer).await?;
                    Ok((lingering(stream), peer))
                })
            };
            serve_connections(answer, accept, settings, shutdown).await;
        }
        Listener::Unix(listener, _file) => {
            let accept = async move || {
                let stream = lingering(with_plain_authority(listener.accept().await?.0));
                Ok(future::ready(Ok((stream, Peer::default()))))
            };
            serve_connections(answer, accept, settings, shutdown).await;
        }
    }
}
