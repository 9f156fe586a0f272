//! The module `forebay._native`: receives the messages of one call, and hashes bodies, without the interpreter's lock.
//!
//! `forebay._client.native` turns messages into batches; `forebay-receive` does the work.

#![deny(unsafe_code)]

use std::{ptr, slice, time::Duration};

use forebay_receive::{Body, BodyBuffer, Call, Message, ReceiveError, Received, Receiver, Tls};
use pyo3::{create_exception, exceptions::PyException, prelude::*, types::PyBytes};
use xxhash_rust::xxh3;

/// Interval of checks for signals, which only the main thread handles.
const SIGNALS_INTERVAL: Duration = Duration::from_millis(50);

create_exception!(_native, StatusError, PyException, "The server ended the call with this code and message.");
create_exception!(_native, MalformedError, PyException, "The server sent something other than Flight messages.");
create_exception!(_native, UnreachedError, PyException, "There is no connection to a Flight server.");
create_exception!(_native, LostError, PyException, "The connection broke during the call.");
create_exception!(_native, OptionsError, PyException, "The certificates or headers cannot be used.");
create_exception!(_native, ClosedError, PyException, "The call was closed.");

/// Metadata, header and body of a message.
type Parts<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Option<BodyMemory>);

/// A call that is under way.
#[pyclass(frozen, module = "forebay._native")]
struct DoGet {
    receiver: Receiver,
}

/// Memory of a message's body: `size` bytes at `address`, as long as this object exists.
#[pyclass(frozen, module = "forebay._native")]
struct BodyMemory {
    body: Body,
}

/// The memory that a body is in: whole pages, `size` bytes at `address`, which later bodies may use, too.
#[pyclass(frozen, name = "BodyBuffer", module = "forebay._native")]
struct PythonBodyBuffer {
    buffer: BodyBuffer,
}

#[pymethods]
impl DoGet {
    /// Begins a call without waiting. `tls` has the authorities, and the certificate chain and its key if there are any,
    /// in PEM; None for plain text.
    #[new]
    fn new(
        host: String,
        port: u16,
        tls: Option<(String, Option<(String, String)>)>,
        headers: Vec<(String, String)>,
        ticket: Vec<u8>,
    ) -> PyResult<Self> {
        let tls = tls.map(|(authorities, identity)| {
            let identity = identity.as_ref().map(|(chain, key)| (chain.as_str(), key.as_str()));
            Tls::new(&authorities, identity)
        });
        let tls = tls.transpose().map_err(raised)?;
        let receiver = Receiver::open(Call { host, port, tls, headers, ticket }).map_err(raised)?;
        Ok(Self { receiver })
    }

    /// Waits for the next message without the interpreter's lock; returns None at the end. Signals are handled
    /// meanwhile in the main thread, as `handles_signals` says.
    fn read<'py>(&self, py: Python<'py>, handles_signals: bool) -> PyResult<Option<Parts<'py>>> {
        let interval = handles_signals.then_some(SIGNALS_INTERVAL);
        loop {
            match py.detach(|| self.receiver.next(interval)).map_err(raised)? {
                Received::Message(message) => return Ok(Some(parts(py, message))),
                Received::End => return Ok(None),
                Received::Nothing => py.check_signals()?,
            }
        }
    }

    /// Ends the call and a read that waits in another thread. Never waits.
    fn close(&self) {
        self.receiver.close();
    }

    /// The number of the connection's socket; None while it is not open.
    #[getter]
    fn socket(&self) -> Option<i32> {
        self.receiver.socket()
    }
}

#[pymethods]
impl BodyMemory {
    /// The address of the first byte, a multiple of 64.
    #[getter]
    fn address(&self) -> usize {
        self.body.address()
    }

    /// The number of bytes.
    #[getter]
    fn size(&self) -> usize {
        self.body.len()
    }

    /// The memory that it is in.
    #[getter]
    fn buffer(&self) -> PythonBodyBuffer {
        PythonBodyBuffer { buffer: self.body.buffer() }
    }
}

#[pymethods]
impl PythonBodyBuffer {
    /// A number that no other buffer of this process has.
    #[getter]
    fn number(&self) -> u64 {
        self.buffer.number()
    }

    /// The address of the first byte, a multiple of 4096.
    #[getter]
    fn address(&self) -> usize {
        self.buffer.address()
    }

    /// The number of bytes, a multiple of 4096.
    #[getter]
    fn size(&self) -> usize {
        self.buffer.len()
    }

    /// Keeps the memory until `release`, even if no body is in it, and after the call's end.
    fn keep(&self) {
        self.buffer.keep();
    }

    /// Whether its memory is there only because it was kept.
    #[getter]
    fn is_retired(&self) -> bool {
        self.buffer.is_retired()
    }

    /// Ends `keep`.
    fn release(&self) {
        self.buffer.release();
    }
}

/// XXH3-64 of `size` bytes at `address`, such as a `pyarrow.Buffer` has, which the caller keeps for the time of the call.
#[pyfunction]
#[expect(unsafe_code, reason = "memory of pyarrow has an address and a size")]
fn xxh3_64(py: Python<'_>, address: usize, size: usize) -> u64 {
    if size == 0 {
        return xxh3::xxh3_64(&[]);
    }
    py.detach(|| {
        // SAFETY: the caller passes memory that it keeps, and nothing writes to it: a body is whole when it is hashed.
        let body = unsafe { slice::from_raw_parts(ptr::with_exposed_provenance::<u8>(address), size) };
        xxh3::xxh3_64(body)
    })
}

fn parts(py: Python<'_>, message: Message) -> Parts<'_> {
    let body = message.body.filter(|body| !body.is_empty()).map(|body| BodyMemory { body });
    (PyBytes::new(py, &message.metadata), PyBytes::new(py, &message.header), body)
}

fn raised(error: ReceiveError) -> PyErr {
    match error {
        ReceiveError::Status { code, message } => StatusError::new_err((code, message)),
        ReceiveError::Malformed(_) => MalformedError::new_err(error.to_string()),
        ReceiveError::Unreached(cause) => UnreachedError::new_err(cause),
        ReceiveError::Lost(cause) => LostError::new_err(cause),
        ReceiveError::Options(cause) => OptionsError::new_err(cause),
        ReceiveError::Closed => ClosedError::new_err(error.to_string()),
    }
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<DoGet>()?;
    module.add_class::<BodyMemory>()?;
    module.add_class::<PythonBodyBuffer>()?;
    module.add_function(wrap_pyfunction!(xxh3_64, module)?)?;
    let py = module.py();
    module.add("StatusError", py.get_type::<StatusError>())?;
    module.add("MalformedError", py.get_type::<MalformedError>())?;
    module.add("UnreachedError", py.get_type::<UnreachedError>())?;
    module.add("LostError", py.get_type::<LostError>())?;
    module.add("OptionsError", py.get_type::<OptionsError>())?;
    module.add("ClosedError", py.get_type::<ClosedError>())
}
