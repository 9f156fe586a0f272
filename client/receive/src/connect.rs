//! The connection of a call, and the number of its socket for a forked process to close.

use std::{
    io::{self, IoSlice},
    net::Shutdown,
    os::fd::AsRawFd,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::timeout,
};

use crate::ReceiveError;

/// Time limit of a connection attempt, over all addresses of the host.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The number of a call's socket while it is open.
#[derive(Debug)]
pub(crate) struct SocketNumber(AtomicI32);

/// A TCP connection that publishes its number.
pub(crate) struct Socket {
    stream: TcpStream,
    number: Arc<SocketNumber>,
}

// === impl SocketNumber ===

impl Default for SocketNumber {
    fn default() -> Self {
        Self(AtomicI32::new(-1))
    }
}

impl SocketNumber {
    pub(crate) fn get(&self) -> Option<i32> {
        Some(self.0.load(Ordering::SeqCst)).filter(|number| *number >= 0)
    }
}

// === impl Socket ===

impl Socket {
    /// Connects to the first address of the host that accepts.
    pub(crate) async fn connect(host: &str, port: u16, number: Arc<SocketNumber>) -> Result<Self, ReceiveError> {
        let connected = timeout(CONNECT_TIMEOUT, TcpStream::connect((host, port))).await;
        let stream = connected
            .map_err(|_| ReceiveError::Unreached(format!("no connection within {} s", CONNECT_TIMEOUT.as_secs())))?
            .map_err(|error| ReceiveError::unreached(&error))?;
        stream.set_nodelay(true).map_err(|error| ReceiveError::unreached(&error))?;
        number.0.store(stream.as_raw_fd(), Ordering::SeqCst);
        Ok(Self { stream, number })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // Before the number can be that of another file.
        self.number.0.store(-1, Ordering::SeqCst);
        // A forked process may have a copy, which would keep the connection open. It fails if the server has closed it.
        SockRef::from(&self.stream).shutdown(Shutdown::Both).ok();
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
