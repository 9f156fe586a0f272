//! Arrow Flight over gRPC: bytes → validated requests, batches → the wire. No other module uses gRPC.
//!
//! `transport` accepts connections and routes calls, `rpc` has a module for each call, `wire` encodes and decodes
//! Flight messages. It makes no decisions about data: requests go to `stream`, and the batches that `stream` returns
//! are encoded. `status` maps the errors of all modules to gRPC codes.

mod access;
mod access_log;
mod call;
mod call_facts;
mod call_memory;
mod client_protocol;
mod context;
mod descriptor;
mod limits;
mod refusal_sample;
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
#[cfg(target_os = "linux")]
pub use transport::{RingSettings, serve_prepared, serve_ring};
pub use wire::{Encoder, Message, response};
