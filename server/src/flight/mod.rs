//! Arrow Flight over gRPC: bytes → checked requests, batches → the wire. The only room that knows gRPC.
//!
//! It decides nothing about data: requests go to `stream`, what comes back is encoded. Every error of the rooms below
//! turns into a gRPC code in one table, `status`.

mod access;
mod call;
mod context;
mod descriptor;
mod limits;
mod rpc;
mod service;
mod status;
mod ticket;
mod transport;
mod wire;

pub use access::Access;
pub use limits::MessageLimits;
pub use service::Service;
pub use transport::{
    BindError, CallBody, ConnectionSettings, Listener, Reflection, ReflectionError, Router, ServeSettings, lingering,
    serve, serve_connections, tune,
};
pub use wire::{Encoder, Message, response};
