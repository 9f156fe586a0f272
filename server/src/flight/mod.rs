//! Arrow Flight over gRPC: bytes → checked requests, batches → the wire. The only room that knows gRPC.
//!
//! It decides nothing about data: requests go to `stream`, what comes back is encoded. Every error of the rooms below
//! turns into a gRPC code in one table, `status`.

mod actions;
mod authority;
mod blank;
mod calls;
mod command;
mod connection;
mod decode;
mod encode;
mod exchange;
mod linger;
mod outgoing;
mod serve;
mod service;
mod status;
mod ticket;
mod wire;

pub use connection::serve_connections;
pub use encode::{Encoder, Message};
pub use serve::{BindError, Listener, serve};
pub use service::Service;
pub use wire::response;
