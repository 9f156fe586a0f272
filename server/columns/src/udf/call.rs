//! One request to the process of a function: connection, time limit, memory of the answer, and errors.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use forebay_runtime::{
    budget::{Budget, Reservation},
    cpu_pool::CpuPool,
    metrics,
};
use tokio::{net::UnixStream, time};

use super::{
    error::UdfError,
    frame::{self, BODY_BYTES_MAX, Failed, FailureKind, FunctionAnswer, FunctionRequest},
    socket::FunctionSocket,
};

/// Time in which a process must describe a function: longer than its interpreter needs to start.
const DESCRIBE_TIME: Duration = Duration::from_secs(20);

/// Copies of an answer's body that exist at once: the bytes, and arrays that Arrow aligns.
const BODY_COPIES: u64 = 2;

/// A function and the socket that it is served on.
#[derive(Clone, Debug)]
pub(super) struct Channel {
    pub name: String,
    pub socket: Arc<FunctionSocket>,
    pub cpu: CpuPool,
}

/// The body of a result, and its memory.
pub(super) struct ResultBody {
    pub bytes: Vec<u8>,
    pub held: Reservation,
}

impl Channel {
    /// Requests the types and the digest of the function.
    pub(super) async fn describe(&self) -> Result<(frame::DescribedFunction, Vec<u8>), UdfError> {
        /// The most bytes of a schema.
        const SCHEMA_BYTES_MAX: u64 = 1 << 20;
        let described = time::timeout(DESCRIBE_TIME, async {
            let mut stream = self.send(&FunctionRequest::Describe(&self.name), &[]).await?;
            let lengths = frame::receive_lengths(&mut stream).await.map_err(|error| self.broken(&error))?;
            if lengths.body > SCHEMA_BYTES_MAX {
                return Err(self.protocol(format!("its schema has {} bytes", lengths.body)));
            }
            frame::receive(&mut stream, lengths).await.map_err(|error| self.broken(&error))
        });
        let Ok(described) = described.await else {
            return Err(self.protocol(format!("no answer within {} s", DESCRIBE_TIME.as_secs())));
        };
        match described? {
            (FunctionAnswer::Function(function), schema) => Ok((function, schema)),
            (FunctionAnswer::Error(failed), _) => Err(self.failed(failed, "")),
            (FunctionAnswer::Ok(_), _) => Err(self.protocol("it describes no function".to_owned())),
        }
    }

    /// Calls the function of this digest with a batch in Arrow IPC. Dropping the call ends it.
    pub(super) async fn call(&self, digest: &str, batch: &[u8], budget: &Budget) -> Result<ResultBody, UdfError> {
        let (started, limit) = (Instant::now(), self.socket.timeout());
        let called = time::timeout(limit, self.exchange(digest, batch, budget)).await;
        let called = called.unwrap_or_else(|_| Err(UdfError::TimedOut { name: self.name.clone(), limit }));
        metrics::udf_call(called.as_ref().map_or_else(UdfError::status, |_| "ok"), started.elapsed());
        called
    }

    async fn exchange(&self, digest: &str, batch: &[u8], budget: &Budget) -> Result<ResultBody, UdfError> {
        if batch.len() as u64 > BODY_BYTES_MAX {
            return Err(self.too_large("a call", batch.len() as u64));
        }
        let mut stream = self.send(&FunctionRequest::Call { call: &self.name, digest }, batch).await?;
        let lengths = frame::receive_lengths(&mut stream).await.map_err(|error| self.broken(&error))?;
        if lengths.body > BODY_BYTES_MAX {
            return Err(self.too_large("a result", lengths.body));
        }
        let held = budget.reserve(lengths.body.saturating_mul(BODY_COPIES));
        let held = held.map_err(|source| UdfError::Memory { name: self.name.clone(), source })?;
        match frame::receive(&mut stream, lengths).await.map_err(|error| self.broken(&error))? {
            (FunctionAnswer::Ok(succeeded), bytes) => {
                tracing::trace!(function = self.name, seconds = succeeded.seconds, "function returned");
                Ok(ResultBody { bytes, held })
            }
            (FunctionAnswer::Error(failed), _) => Err(self.failed(failed, digest)),
            (FunctionAnswer::Function(_), _) => {
                Err(self.protocol("it describes a function instead of calling it".to_owned()))
            }
        }
    }

    /// Connects and sends a request. A process that answers before it has read everything has an error to tell.
    async fn send(&self, request: &FunctionRequest<'_>, body: &[u8]) -> Result<UnixStream, UdfError> {
        let path = self.socket.path();
        let unreachable = |source| UdfError::Unreachable { name: self.name.clone(), path: path.to_owned(), source };
        let mut stream = UnixStream::connect(path).await.map_err(unreachable)?;
        match frame::send(&mut stream, request, body).await {
            Ok(()) => Ok(stream),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(stream),
            Err(error) => Err(self.broken(&error)),
        }
    }

    /// The error of a connection that broke: its process died.
    fn broken(&self, error: &io::Error) -> UdfError {
        let name = self.name.clone();
        match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                UdfError::Died { name, reason: "its process closed the connection without an answer".to_owned() }
            }
            _ => self.protocol(error.to_string()),
        }
    }

    fn failed(&self, failed: Failed, expected: &str) -> UdfError {
        let (name, Failed { kind, message }) = (self.name.clone(), failed);
        match kind {
            FailureKind::Raised => UdfError::Raised { name, traceback: message },
            FailureKind::Result => UdfError::Result { name, reason: message },
            FailureKind::Crashed => UdfError::Died { name, reason: message },
            FailureKind::Digest => UdfError::Changed { name, expected: expected.to_owned(), found: message },
            FailureKind::Unknown => self.protocol(message),
        }
    }

    pub(super) fn protocol(&self, reason: String) -> UdfError {
        UdfError::Protocol { name: self.name.clone(), path: self.socket.path().to_owned(), reason }
    }

    fn too_large(&self, what: &'static str, bytes: u64) -> UdfError {
        UdfError::TooLarge { name: self.name.clone(), what, bytes, limit: BODY_BYTES_MAX }
    }
}
