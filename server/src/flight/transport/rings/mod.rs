//! The ring: `DoGet` for clients on this machine, with the batches in shared memory (`ring.proto` has the protocol).
//!
//! `PATH.ring` accepts connections of one call each. A call is `DoGet`'s: the router authenticates and admits it, and
//! `rpc::do_get` makes its messages. Instead of an HTTP/2 body, each Arrow body is written into a slot of a memfd that the
//! client has mapped, and the socket carries the rest.
//!
//! The server writes to the memfd by `pwritev` without mapping or reading it, so a client can damage only what it reads
//! itself. `hello` reads requests, `frames` has the layout of the socket's bytes, `slots` tracks which slots are out,
//! `memory` is the memfd, `link` the socket, and `calls` runs a connection.

mod calls;
mod frames;
mod hello;
mod link;
mod memory;
mod slots;

pub(super) use calls::serve_rings;
pub use calls::{RingSettings, serve_prepared, serve_ring};
