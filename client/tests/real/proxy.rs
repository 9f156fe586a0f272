//! A wire that breaks or lies: a loopback TCP proxy that does harm at a given byte of what a server sends.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// What happens to a connection; byte counts are of what the server sends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// Both sides are closed behind so many bytes.
    CutAfter(usize),
    /// The byte at this place arrives as another.
    FlipAt(usize),
}

/// A proxy before one server. The first connections suffer the faults, one each; those behind them are sound.
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
        // Ends with the test's process.
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let fault = faults.get(count.fetch_add(1, Ordering::SeqCst)).copied();
                // A server that is gone is one that refuses.
                let Ok(server) = TcpStream::connect(&server) else { continue };
                let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let total = Arc::clone(&total);
                thread::spawn(move || forward(from, to, None, &AtomicUsize::new(0)));
                thread::spawn(move || forward(server, client, fault, &total));
            }
        });
        Self { url, connections, bytes }
    }

    /// Connections that were accepted.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Bytes that came from the server, on all connections.
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
            Some(Fault::FlipAt(place)) if (sent..sent + read).contains(&place) => bytes[place - sent] ^= 0x01,
            _ => {}
        }
        sent += bytes.len();
        total.fetch_add(bytes.len(), Ordering::SeqCst);
        let is_cut = matches!(fault, Some(Fault::CutAfter(count)) if sent >= count);
        if to.write_all(bytes).is_err() || is_cut {
            break;
        }
    }
    // The other direction ends with this one.
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
