//! One `DoGet`: its request, and the messages of its response.

use std::{sync::Arc, time::Duration};

use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::{
    Request, Uri,
    client::conn::http2::{Builder, SendRequest},
    header::{HeaderName, HeaderValue},
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::timeout,
};
use tokio_rustls::TlsConnector;

use crate::{
    ReceiveError, Tls,
    body::BodyPool,
    connect::{Socket, SocketNumber},
    link::Sender,
    messages::MessageReader,
    status,
};

const DO_GET: &str = "/arrow.flight.protocol.FlightService/DoGet";
const USER_AGENT: &str = concat!("forebay-receive/", env!("CARGO_PKG_VERSION"));

/// Flow control window of the stream: what may arrive while the reader is busy.
const STREAM_WINDOW_BYTES: u32 = 8 << 20;

/// Flow control window of the connection: HTTP/2's maximum, so that only the stream's applies.
const CONNECTION_WINDOW_BYTES: u32 = i32::MAX as u32;

/// Maximum size of an HTTP/2 frame. Each frame costs a header, a wake-up and a queue entry.
const FRAME_BYTES_MAX: u32 = 256 << 10;

/// Idle time before a keepalive ping, and time limit of its response, as in the Rust client.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(20);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Time limit of TLS's and HTTP/2's handshakes.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Time for a call that is over to tell the server.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(200);

/// What a call sends, and where.
#[derive(Clone, Debug)]
pub struct Call {
    /// Name or address of the host, without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// None for a connection in plain text.
    pub tls: Option<Tls>,
    /// Names and values of additional headers.
    pub headers: Vec<(String, String)>,
    /// The ticket.
    pub ticket: Vec<u8>,
}

impl Call {
    /// Connects, and hands over all messages and their end. An error that it returns is the end, not handed over.
    pub(crate) async fn run(
        &self,
        number: Arc<SocketNumber>,
        pool: Arc<BodyPool>,
        sender: &Sender,
    ) -> Result<(), ReceiveError> {
        let request = self.request()?;
        let reader = MessageReader::new(pool);
        let socket = sender.unless_stopped(Socket::connect(&self.host, self.port, number)).await?;
        let Some(Tls(config)) = &self.tls else {
            return Box::pin(exchange(socket, request, reader, sender)).await;
        };
        let name = ServerName::try_from(self.host.clone());
        let name = name.map_err(|_| ReceiveError::Options(format!("{:?} is not a host name", self.host)))?;
        let connector = TlsConnector::from(Arc::clone(config));
        let encrypted = sender.unless_stopped(limited(connector.connect(name, socket))).await?;
        Box::pin(exchange(encrypted, request, reader, sender)).await
    }

    fn request(&self) -> Result<Request<Full<Bytes>>, ReceiveError> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        let uri = format!("{scheme}://{host}:{}{DO_GET}", self.port);
        let uri: Uri = uri.parse().map_err(|error| ReceiveError::Options(format!("{uri:?}: {error}")))?;
        let mut request = Request::post(uri)
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("user-agent", USER_AGENT)
            .body(Full::new(ticket_message(&self.ticket)?))
            .map_err(|error| ReceiveError::Options(error.to_string()))?;
        let invalid = |name| ReceiveError::Options(format!("the header {name:?} cannot be sent"));
        for (name, value) in &self.headers {
            let key = HeaderName::try_from(name.as_str()).map_err(|_| invalid(name))?;
            let mut value = HeaderValue::try_from(value.as_str()).map_err(|_| invalid(name))?;
            value.set_sensitive(true);
            request.headers_mut().append(key, value);
        }
        Ok(request)
    }
}

/// A `Ticket` as a message of gRPC.
fn ticket_message(ticket: &[u8]) -> Result<Bytes, ReceiveError> {
    let mut field = BytesMut::with_capacity(ticket.len() + 16);
    // Protobuf's field 1, with a length.
    field.put_u8(1 << 3 | 2);
    let mut length = ticket.len();
    while length >= 0x80 {
        field.put_u8((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    field.put_u8((length & 0x7f) as u8);
    field.put_slice(ticket);
    let length = u32::try_from(field.len()).map_err(|_| ReceiveError::Options("a ticket beyond 4 GiB".to_owned()))?;
    let mut message = BytesMut::with_capacity(field.len() + 5);
    message.put_u8(0);
    message.put_u32(length);
    message.put_slice(&field);
    Ok(message.freeze())
}

/// Awaits a handshake within its time limit.
async fn limited<T, E>(handshake: impl Future<Output = Result<T, E>>) -> Result<T, ReceiveError>
where
    E: std::error::Error + 'static,
{
    let result = timeout(HANDSHAKE_TIMEOUT, handshake).await;
    let result = result
        .map_err(|_| ReceiveError::Unreached(format!("no handshake within {} s", HANDSHAKE_TIMEOUT.as_secs())))?;
    result.map_err(|error| ReceiveError::unreached(&error))
}

/// Speaks HTTP/2 on a connection until the end of the call, and hands the end over.
async fn exchange<I>(
    io: I,
    request: Request<Full<Bytes>>,
    reader: MessageReader,
    sender: &Sender,
) -> Result<(), ReceiveError>
where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES_MAX)
        .keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .keep_alive_while_idle(true);
    let (requests, connection) = sender.unless_stopped(limited(builder.handshake(TokioIo::new(io)))).await?;
    let connection = tokio::spawn(connection);
    sender.end(sender.unless_stopped(messages(requests, request, reader, sender)).await);
    // Without the call, the connection ends by itself.
    timeout(CLOSE_TIMEOUT, connection).await.ok();
    Ok(())
}

/// Hands over the messages of the response.
async fn messages(
    mut requests: SendRequest<Full<Bytes>>,
    request: Request<Full<Bytes>>,
    mut reader: MessageReader,
    sender: &Sender,
) -> Result<(), ReceiveError> {
    let response = requests.send_request(request).await.map_err(|error| ReceiveError::lost(&error))?;
    status::check(response.status(), response.headers())?;
    let mut end = status::status(response.headers());
    let mut frames = response.into_body();
    while let Some(frame) = frames.frame().await {
        let frame = match frame.map_err(|error| ReceiveError::lost(&error))?.into_data() {
            Ok(data) => {
                let mut piece = &data[..];
                while let Some(message) = reader.read(&mut piece)? {
                    sender.send(message).await?;
                }
                continue;
            }
            Err(frame) => frame,
        };
        if let Ok(trailers) = frame.into_trailers() {
            end = status::status(&trailers);
        }
    }
    match end {
        Some(Ok(())) if !reader.is_between() => Err(ReceiveError::malformed("the stream ends within it")),
        Some(end) => end,
        None => Err(ReceiveError::Lost("the server ended the stream without a status".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(host: &str, headers: &[(&str, &str)]) -> Call {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Call { host: host.to_owned(), port: 8815, tls: None, headers, ticket: b"ticket".to_vec() }
    }

    #[test]
    fn requests_name_the_call_the_host_and_the_headers() {
        let request = call("::1", &[("authorization", "Bearer a")]).request().unwrap();
        let uri = "http://[::1]:8815/arrow.flight.protocol.FlightService/DoGet";
        assert_eq!(request.uri().to_string(), uri);
        assert_eq!(request.headers()["authorization"], "Bearer a");
        assert_eq!(request.headers()["te"], "trailers");
    }

    #[test]
    fn headers_and_hosts_that_cannot_be_sent_are_errors() {
        for (host, headers) in [("a b", &[][..]), ("a", &[("a b", "c")][..]), ("a", &[("a", "b\nc")][..])] {
            assert!(matches!(call(host, headers).request(), Err(ReceiveError::Options(_))), "{host} {headers:?}");
        }
    }

    #[test]
    fn a_ticket_is_a_message_of_protobuf_and_grpc() {
        assert_eq!(&ticket_message(b"abc").unwrap()[..], b"\0\0\0\0\x05\x0a\x03abc");
        let long = ticket_message(&[b'x'; 300]).unwrap();
        assert_eq!((&long[..8], long.len()), (&b"\0\0\0\x01\x2f\x0a\xac\x02"[..], 308));
    }
}
