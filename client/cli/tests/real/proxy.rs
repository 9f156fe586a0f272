//! Loopback TCP proxy that cuts a connection or corrupts a byte at a given position of the server's output.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// Fault of a connection. Byte counts refer to the server's output.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// Closes both sides after this many bytes.
    CutAfter(usize),
    /// Flips a bit of the byte at this position.
    FlipAt(usize),
}

/// Proxy of one server. Each fault applies to one connection, in order; later connections have none.
pub(crate) struct Proxy {
    pub(crate) url: String,
    connections: Arc<AtomicUsize>,
    bytes: Arc<AtomicUsize>,
}

impl Proxy {
    pub(crate) fn start(server_url: &str, faults: Vec<Fault>) -> Self {
        let server = server_url.strip_prefix("grpc://").unwrap().to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("grpc://{}", listener.local_addr().unwrap());
        let connections = Arc::new(AtomicUsize::new(0));
        let bytes = Arc::new(AtomicUsize::new(0));
        let (count, total) = (Arc::clone(&connections), Arc::clone(&bytes));
        // Runs until the test's process ends.
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let fault = faults.get(count.fetch_add(1, Ordering::SeqCst)).copied();
                // An unreachable server refuses the connection.
                let Ok(server) = TcpStream::connect(&server) else { continue };
                let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let total = Arc::clone(&total);
                thread::spawn(move || forward(from, to, None, &AtomicUsize::new(0)));
                thread::spawn(move || forward(server, client, fault, &total));
            }
        });
        Self { url, connections, bytes }
    }

    /// Returns the number of accepted connections.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Returns the bytes received from the server, over all connections.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::SeqCst)
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, fault: Option<Fault>, total: &AtomicUsize) {
    let mut buffer = vec![0; 64 << 10];
    let mut sent = 0;
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        let mut bytes = &mut buffer[..read];
        match fault {
            Some(Fault::CutAfter(count)) => bytes = &mut bytes[..read.min(count - sent)],
            Some(Fault::FlipAt(position)) if (sent..sent + read).contains(&position) => bytes[position - sent] ^= 0x01,
            _ => {}
        }
        sent += bytes.len();
        total.fetch_add(bytes.len(), Ordering::SeqCst);
        let is_cut = matches!(fault, Some(Fault::CutAfter(count)) if sent >= count);
        if to.write_all(bytes).is_err() || is_cut {
            break;
        }
    }
    // Closes the other direction too.
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
