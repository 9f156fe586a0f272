//! The replica's side of a connection, throttled so that faults hit running streams, and cut as the schedule specifies.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

/// The interval in which one portion is sent.
pub(crate) const PORTION_TIME: Duration = Duration::from_millis(10);

/// A connection that is not cut.
const NEVER: u64 = u64::MAX;

/// A connection that sends a portion of bytes per interval.
#[derive(Debug)]
pub(crate) struct Wire<S> {
    stream: S,
    portion_bytes: usize,
    /// Bytes left of the current portion.
    left_bytes: usize,
    pause: Option<Pin<Box<Sleep>>>,
    cut: Arc<Cut>,
}

/// Bytes after which a connection is cut.
#[derive(Debug)]
struct Cut(AtomicU64);

/// The open connections of a replica.
#[derive(Debug, Default)]
pub(crate) struct Wires(Vec<Weak<Cut>>);

impl<S> Wire<S> {
    /// A connection that sends `portion_bytes` per [`PORTION_TIME`], registered with `wires`.
    pub(crate) fn new(stream: S, portion_bytes: usize, wires: &mut Wires) -> Self {
        let cut = Arc::new(Cut(AtomicU64::new(NEVER)));
        wires.0.push(Arc::downgrade(&cut));
        Self { stream, portion_bytes, left_bytes: portion_bytes, pause: None, cut }
    }
}

impl Wires {
    /// Cuts every open connection after this many more bytes. Returns their number.
    pub(crate) fn cut_after(&mut self, bytes: u64) -> usize {
        self.0.retain(|wire| wire.strong_count() > 0);
        for wire in self.0.iter().filter_map(Weak::upgrade) {
            wire.0.store(bytes, Ordering::Relaxed);
        }
        self.0.len()
    }
}

fn is_cut() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "cut by the schedule")
}

impl<S: AsyncRead + Unpin> AsyncRead for Wire<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.cut.0.load(Ordering::Relaxed) == 0 {
            return Poll::Ready(Err(is_cut()));
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Wire<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let Self { stream, portion_bytes, left_bytes, pause, cut } = &mut *self;
        let until_cut = cut.0.load(Ordering::Relaxed);
        if until_cut == 0 {
            return Poll::Ready(Err(is_cut()));
        }
        if *left_bytes == 0 {
            ready!(pause.get_or_insert_with(|| Box::pin(sleep(PORTION_TIME))).as_mut().poll(context));
            (*pause, *left_bytes) = (None, *portion_bytes);
        }
        let fits = bytes.len().min(*left_bytes).min(usize::try_from(until_cut).unwrap_or(usize::MAX));
        let written = ready!(Pin::new(stream).poll_write(context, &bytes[..fits]))?;
        *left_bytes -= written;
        if until_cut != NEVER {
            cut.0.store(until_cut - written as u64, Ordering::Relaxed);
        }
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
