//! Connections: listeners, TLS, HTTP/2 with its limits and timeouts, the ring, and the router of calls.

mod accept;
mod answer_body;
mod authority;
mod connection;
mod field_count;
mod first_call;
mod goaway;
mod intercept;
mod linger;
mod message_bounds;
mod permits;
mod preface_timeout;
mod received_body;
mod reflection;
#[cfg(target_os = "linux")]
mod rings;
mod router;
mod serve;
mod tls;

pub use connection::{ConnectionSettings, serve_connections};
pub use linger::lingering;
pub use reflection::{Reflection, ReflectionError};
#[cfg(target_os = "linux")]
pub use rings::{RingSettings, serve_prepared, serve_ring};
pub use router::{CallBody, Router};
pub use serve::{BindError, Listener, ServeSettings, serve, tune};
