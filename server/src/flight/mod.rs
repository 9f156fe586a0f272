//! Arrow Flight over gRPC: bytes → checked requests, batches → the wire. The only room that knows gRPC.
//!
//! It decides nothing about data: requests go to `stream`, what comes back is encoded. Every error of the rooms below
//! turns into a gRPC code in one table, `status`.

mod actions;
mod authority;
mod blank;
mod command;
mod decode;
mod encode;
mod exchange;
mod linger;
mod outgoing;
mod serve;
mod service;
mod status;
mod ticket;

pub use serve::{Listener, ServeError, serve};
pub use service::Service;
