//! TLS on a TCP connection: the handshake and the certificate of the client.

use std::io;

use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::auth::{Peer, Tls};

/// Performs the handshake, with the current certificate of the server.
pub(super) async fn shake_hands(tls: &Tls, stream: TcpStream, peer: Peer) -> io::Result<(TlsStream<TcpStream>, Peer)> {
    let stream = TlsAcceptor::from(tls.config()).accept(stream).await?;
    let certificates = stream.get_ref().1.peer_certificates();
    let certificate = certificates.and_then(|chain| chain.first()).map(|first| first.clone().into_owned());
    Ok((stream, Peer { certificate, ..peer }))
}
