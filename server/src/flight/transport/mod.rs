//! Connections: listeners, TLS, HTTP/2 with its limits and timeouts, the ring, and the router of calls.

mod accept;
mod authority;
mod connection;
mod goaway;
mod intercept;
mod linger;
mod permits;
mod preface_timeout;
mod reflection;
mod request_timeout;
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
