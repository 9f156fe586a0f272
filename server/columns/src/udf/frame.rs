//! Frames between the server and the processes of functions: JSON, and a body of Arrow IPC.
//!
//! ```text
//! length of the JSON u32 │ length of the body u64 │ JSON │ body        (little-endian)
//! ```
//!
//! A connection has one request and one answer. Lengths are checked before memory is allocated.

use std::io;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The most bytes of the JSON of a frame.
const JSON_BYTES_MAX: u32 = 1 << 16;

/// The most bytes of the body of a frame.
pub(super) const BODY_BYTES_MAX: u64 = 1 << 30;

const HEADER_BYTES: usize = size_of::<u32>() + size_of::<u64>();

/// A request of the server.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FunctionRequest<'a> {
    /// The types and the digest of a function.
    Describe(&'a str),
    /// The result of a function of this digest, for the batch in the body.
    #[serde(untagged)]
    Call { call: &'a str, digest: &'a str },
}

/// What a process answers.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FunctionAnswer {
    /// A function; the body is its schema.
    Function(DescribedFunction),
    /// A call that succeeded; the body is a batch of the result.
    Ok(Succeeded),
    /// A request that failed.
    Error(Failed),
}

/// A function, besides its types.
#[derive(Debug, Deserialize)]
pub(super) struct DescribedFunction {
    pub digest: String,
    /// The number of fields of the schema that are arguments; the next one is the result.
    pub arguments: usize,
    /// The size of the pool.
    pub processes: usize,
}

/// A call that succeeded.
#[derive(Debug, Deserialize)]
pub(super) struct Succeeded {
    /// Seconds in the function.
    pub seconds: f64,
}

/// A request that failed.
#[derive(Debug, Deserialize)]
pub(super) struct Failed {
    pub kind: FailureKind,
    pub message: String,
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FailureKind {
    /// The function raised an exception: the message is its traceback.
    Raised,
    /// Arguments or result are not as declared.
    Result,
    /// The process died.
    Crashed,
    /// The function has another digest.
    Digest,
    /// The process has no such function.
    Unknown,
}

/// The lengths of an answer that arrives.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrameLengths {
    json: u32,
    pub body: u64,
}

/// Writes a request.
pub(super) async fn send(
    stream: &mut (impl AsyncWrite + Unpin),
    request: &FunctionRequest<'_>,
    body: &[u8],
) -> io::Result<()> {
    let json = serde_json::to_vec(request)?;
    let mut start = Vec::with_capacity(HEADER_BYTES + json.len());
    start.extend((json.len() as u32).to_le_bytes());
    start.extend((body.len() as u64).to_le_bytes());
    start.extend(json);
    stream.write_all(&start).await?;
    stream.write_all(body).await
}

/// Reads the lengths of an answer.
pub(super) async fn receive_lengths(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<FrameLengths> {
    let lengths = FrameLengths { json: stream.read_u32_le().await?, body: stream.read_u64_le().await? };
    if lengths.json > JSON_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{} bytes of JSON", lengths.json)));
    }
    Ok(lengths)
}

/// Reads the rest of an answer, whose body the caller has room for.
pub(super) async fn receive(
    stream: &mut (impl AsyncRead + Unpin),
    lengths: FrameLengths,
) -> io::Result<(FunctionAnswer, Vec<u8>)> {
    let mut json = vec![0; lengths.json as usize];
    stream.read_exact(&mut json).await?;
    // Grows with what arrives: a length alone allocates nothing.
    let mut body = Vec::new();
    let read = stream.take(lengths.body).read_to_end(&mut body).await?;
    if read as u64 != lengths.body {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok((serde_json::from_slice(&json)?, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn received(bytes: &[u8]) -> io::Result<(FunctionAnswer, Vec<u8>)> {
        let mut stream = bytes;
        let lengths = receive_lengths(&mut stream).await?;
        receive(&mut stream, lengths).await
    }

    fn frame(json: &str, body: &[u8]) -> Vec<u8> {
        [(json.len() as u32).to_le_bytes().as_slice(), &(body.len() as u64).to_le_bytes(), json.as_bytes(), body]
            .concat()
    }

    #[tokio::test]
    async fn requests_have_the_documented_form() {
        let mut sent = Vec::new();
        send(&mut sent, &FunctionRequest::Describe("f"), b"").await.unwrap();
        send(&mut sent, &FunctionRequest::Call { call: "f", digest: "d" }, b"xy").await.unwrap();
        let expected = [frame(r#"{"describe":"f"}"#, b""), frame(r#"{"call":"f","digest":"d"}"#, b"xy")].concat();
        assert_eq!(String::from_utf8_lossy(&sent), String::from_utf8_lossy(&expected));
    }

    #[tokio::test]
    async fn answers_are_read_and_damaged_ones_are_errors() {
        let ok = frame(r#"{"ok":{"seconds":0.5}}"#, b"body");
        let (answer, body) = received(&ok).await.unwrap();
        assert!(matches!(answer, FunctionAnswer::Ok(Succeeded { seconds: 0.5 })));
        assert_eq!(body, b"body");
        let failed = frame(r#"{"error":{"kind":"raised","message":"m"}}"#, b"");
        let (answer, _) = received(&failed).await.unwrap();
        assert!(matches!(answer, FunctionAnswer::Error(Failed { kind: FailureKind::Raised, .. })));
        for damaged in [&ok[..ok.len() - 1], &ok[..7], b"", &frame("{}", b""), &frame("[", b""), &[0xff; 12]] {
            assert!(received(damaged).await.is_err());
        }
    }
}
