//! A Python process that reads ORC files with pyarrow: a request is a file, an answer several frames. What a damaged file
//! does to the library happens to that process.

use std::{
    io::{self, BufReader, Read, Write},
    os::unix::{ffi::OsStrExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

/// What the process runs.
const PROGRAM: &str = include_str!("reader.py");

/// What is read of a file.
#[derive(Clone, Copy, Debug)]
pub(super) enum Request {
    Schema,
    Rows,
}

/// A part of an answer.
#[derive(Debug)]
pub(super) enum Frame {
    /// The process can read files.
    Hello,
    /// The number of rows, and a stream of Arrow IPC that has only the schema.
    Schema { rows: u64, stream: Vec<u8> },
    /// A stream of a record batch.
    Batch(Vec<u8>),
    /// The file is complete.
    Done,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum ReadError {
    /// The process cannot read any file.
    Python(String),
    /// The file is at fault.
    File(String),
}

/// The process. Dropping it ends it.
pub(super) struct OrcProcess {
    python: PathBuf,
    child: Child,
    requests: ChildStdin,
    frames: BufReader<ChildStdout>,
}

// === impl OrcProcess ===

impl OrcProcess {
    /// Starts a Python.
    pub(super) fn start(python: &Path) -> Result<Self, String> {
        let mut command = Command::new(python);
        // A key of the terminal stops this program only, which reports that and ends the other.
        command.args(["-c", PROGRAM]).process_group(0);
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = spawned.map_err(|error| unusable(python, &format!("cannot be started: {error}")))?;
        let (Some(requests), Some(frames)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(unusable(python, "has no input or output"));
        };
        let mut started = Self { python: python.to_owned(), child, requests, frames: BufReader::new(frames) };
        match started.frame() {
            Ok(Frame::Hello) => Ok(started),
            Err(ReadError::Python(reason)) => Err(reason),
            Ok(_) | Err(ReadError::File(_)) => Err(unusable(python, "is not a Python that runs")),
        }
    }

    /// Requests a file. The answer is read to its end, or the process is not used again.
    pub(super) fn send(&mut self, request: Request, path: &Path) -> Result<(), ReadError> {
        let kind = match request {
            Request::Schema => b'S',
            Request::Rows => b'R',
        };
        let path = path.as_os_str().as_bytes();
        let mut message = vec![kind];
        message.extend((path.len() as u64).to_le_bytes());
        message.extend(path);
        // If the process has ended, its frames say why.
        match self.requests.write_all(&message) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(ReadError::Python(error.to_string())),
            _ => Ok(()),
        }
    }

    /// The next frame of the answer.
    pub(super) fn frame(&mut self) -> Result<Frame, ReadError> {
        let (mut kind, mut length, mut data) = ([0], [0; 8], Vec::new());
        self.frames.read_exact(&mut kind).map_err(|error| self.ended(&error))?;
        // Another program may say anything, and then wait.
        let [kind] = kind;
        if !b"HSBDEM".contains(&kind) {
            return Err(ReadError::Python(unusable(&self.python, "answers as no Python does")));
        }
        self.frames.read_exact(&mut length).map_err(|error| self.ended(&error))?;
        let length = u64::from_le_bytes(length);
        let read = self.frames.by_ref().take(length).read_to_end(&mut data);
        let is_whole = read.map_err(|error| self.ended(&error))? as u64 == length;
        if !is_whole {
            return Err(self.ended(&io::ErrorKind::UnexpectedEof.into()));
        }
        match (kind, data.split_first_chunk::<8>()) {
            (b'S', Some((rows, stream))) => {
                Ok(Frame::Schema { rows: u64::from_le_bytes(*rows), stream: stream.to_vec() })
            }
            (b'H', _) => Ok(Frame::Hello),
            (b'B', _) => Ok(Frame::Batch(data)),
            (b'D', _) => Ok(Frame::Done),
            (b'E', _) => Err(ReadError::File(String::from_utf8_lossy(&data).into_owned())),
            _ => {
                let reason = format!("cannot import pyarrow.orc ({})", String::from_utf8_lossy(&data));
                Err(ReadError::Python(unusable(&self.python, &reason)))
            }
        }
    }

    /// Why there are no more frames.
    fn ended(&mut self, error: &io::Error) -> ReadError {
        if error.kind() != io::ErrorKind::UnexpectedEof {
            return ReadError::Python(format!("cannot read from \"{}\": {error}", self.python.display()));
        }
        let status = self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        ReadError::File(format!("pyarrow ended while it read the file ({status})"))
    }
}

impl Drop for OrcProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn unusable(python: &Path, reason: &str) -> String {
    format!(
        "ORC files are read by pyarrow, and \"{}\" {reason}: install pyarrow there, or name a Python that has it with \
         --python",
        python.display()
    )
}
