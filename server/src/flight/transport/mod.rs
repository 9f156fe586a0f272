//! Connections: listeners, TLS, HTTP/2 with its limits and timeouts, and the router of calls.

mod authority;
mod connection;
mod goaway;
mod intercept;
mod linger;
mod preface_timeout;
mod reflection;
mod request_timeout;
mod router;
mod serve;
mod tls;

pub use connection::{ConnectionSettings, serve_connections};
pub use linger::lingering;
pub use reflection::{Reflection, ReflectionError};
pub use router::{CallBody, Router};
pub use serve::{BindError, Listener, ServeSettings, serve, tune};
