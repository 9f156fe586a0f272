//! Arrow Flight over gRPC: bytes → checked requests, batches → the wire. The only room that knows gRPC.
//!
//! It decides nothing about data: requests go to `stream`, what comes back is encoded. Every error of the rooms below
//! turns into a gRPC code in one table, `status`.

mod access;
mod actions;
mod authority;
mod call;
mod command;
mod connection;
mod decode;
mod encode;
mod exchange;
mod last_words;
mod limits;
mod linger;
mod outgoing;
mod preface_timeout;
mod reflection;
mod request_timeout;
mod router;
mod serve;
mod service;
mod status;
mod ticket;
mod tls;
mod wire;
mod zero_nulls;

pub use access::Access;
pub use connection::{ConnectionSettings, serve_connections};
pub use encode::{Encoder, Message};
pub use linger::Lingering;
pub use reflection::{Reflection, ReflectionError};
pub use router::Router;
pub use serve::{BindError, Listener, ServeSettings, serve, tune};
pub use service::Service;
pub use wire::response;
