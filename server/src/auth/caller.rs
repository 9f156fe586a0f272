//! Callers and their permissions.

use std::{net::IpAddr, sync::Arc};

use rustls::pki_types::CertificateDer;

use super::principals::Principal;

/// The remote end of a connection.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// Its IP address; none on a Unix socket.
    pub address: Option<IpAddr>,
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
}

impl Caller {
    /// Returns a caller without restrictions, for calls within the process.
    pub fn anyone() -> Self {
        Self { name: "anyone".into(), principal: None }
    }

    /// Returns the principal's name; without authentication, the client's address.
    pub fn name(&self) -> &Arc<str> {
        &self.name
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
