//! A client that discards what it reads: an upper bound for the rate of a DoGet or of a raw socket.
//!
//! Arguments: `grpc` or `raw`, the address, the number of batches. Prints one line of JSON: bytes and seconds.

use std::{env, error::Error, time::Instant};

use arrow_flight::Ticket;
use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::{Request, body::Body, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// Flow-control window: more than a batch.
const WINDOW_BYTES: u32 = 16 << 20;

/// Largest HTTP/2 frame.
const FRAME_BYTES: u32 = 1 << 20;

/// Bytes per read from a raw socket.
const READ_BYTES: usize = 1 << 20;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [kind, address, count] = arguments.as_slice() else { return Err("grpc|raw ADDRESS BATCHES".into()) };
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let begin = Instant::now();
    let bytes = match kind.as_str() {
        "grpc" => grpc(stream, count).await?,
        "raw" => raw(stream, count.parse()?).await?,
        other => return Err(format!("there is no kind \"{other}\"").into()),
    };
    let seconds = begin.elapsed().as_secs_f64();
    println!("{}", serde_json::json!({ "bytes": bytes, "seconds": seconds }));
    Ok(())
}

async fn grpc(stream: TcpStream, count: &str) -> Result<u64, Box<dyn Error>> {
    let (mut sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES)
        .handshake(TokioIo::new(stream))
        .await?;
    let connection = tokio::spawn(connection);
    let ticket = Ticket { ticket: Bytes::copy_from_slice(count.as_bytes()) }.encode_to_vec();
    let mut message = BytesMut::new();
    message.put_u8(0);
    message.put_u32(u32::try_from(ticket.len())?);
    message.put_slice(&ticket);
    let request = Request::post("http://localhost/arrow.flight.protocol.FlightService/DoGet")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Full::new(message.freeze()))?;
    let mut body = sender.send_request(request).await?.into_body();
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame?;
        if let Some(data) = frame.data_ref() {
            bytes += data.len() as u64;
        }
        if let Some(trailers) = frame.trailers_ref() {
            let status = trailers.get("grpc-status").ok_or("no status")?;
            if status != "0" {
                return Err(format!("status {status:?}").into());
            }
        }
    }
    if !body.is_end_stream() || bytes == 0 {
        return Err("the stream ended early".into());
    }
    connection.abort();
    Ok(bytes)
}

async fn raw(mut stream: TcpStream, count: u64) -> Result<u64, Box<dyn Error>> {
    stream.write_u64_le(count).await?;
    let (mut buffer, mut bytes) = (vec![0; READ_BYTES], 0);
    loop {
        match stream.read(&mut buffer).await? {
            0 => return Ok(bytes),
            count => bytes += count as u64,
        }
    }
}
