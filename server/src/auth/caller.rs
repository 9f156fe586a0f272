//! Callers and their permissions.

use std::{fmt, net::SocketAddr, sync::Arc};

use forebay_runtime::tenant::Tenant;
use rustls::pki_types::CertificateDer;

use super::principals::Principal;

/// Name of callers without credentials on a server that requires none, in logs and metrics.
pub const ANONYMOUS: &str = "anonymous";

/// Name of callers whose credentials are missing or wrong, in logs and metrics.
pub const UNKNOWN: &str = "unknown";

/// The remote end of a connection.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// Its address; none on a Unix socket.
    pub address: Option<SocketAddr>,
    /// Its verified client certificate, issued by an authority of `--tls-client-ca`.
    pub certificate: Option<CertificateDer<'static>>,
}

/// An authenticated or anonymous caller.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The principal's name; without authentication, the client's address.
    pub(super) name: Arc<str>,
    /// Its permissions; none: no restrictions.
    pub(super) principal: Option<Arc<Principal>>,
    /// Whether credentials prove the name.
    pub(super) is_authenticated: bool,
}

impl Caller {
    /// Returns a caller without restrictions, for calls within the process.
    pub fn anyone() -> Self {
        Self { name: "anyone".into(), principal: None, is_authenticated: false }
    }

    /// Returns the principal's name; without authentication, the client's address.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Returns to whom its CPU time and memory are accounted.
    pub fn tenant(&self) -> Tenant {
        Tenant::new(&self.name)
    }

    /// Returns whether credentials prove its name.
    pub fn is_authenticated(&self) -> bool {
        self.is_authenticated
    }

    /// Returns its name in the file of principals, if it is there.
    pub fn principal_name(&self) -> Option<&Arc<str>> {
        self.principal.as_ref().map(|principal| &principal.name)
    }

    /// Returns whether it may read every dataset.
    pub fn reads_everything(&self) -> bool {
        self.principal.as_ref().is_none_or(|principal| principal.reads_everything())
    }

    /// Returns whether it may read the dataset of this name.
    pub fn may_read(&self, dataset: &str) -> bool {
        self.principal.as_ref().is_none_or(|principal| principal.may_read(dataset))
    }

    /// Returns the principal's limit of open streams, if it has one.
    pub(super) fn streams_max(&self) -> Option<usize> {
        self.principal.as_ref()?.streams_max
    }
}

/// Address and port, or "unix".
impl fmt::Display for Peer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(address) => SocketAddr::new(address.ip().to_canonical(), address.port()).fmt(formatter),
            None => formatter.write_str("unix"),
        }
    }
}
