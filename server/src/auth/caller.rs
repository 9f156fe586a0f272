//! Who calls, and what they may do.

use std::{net::IpAddr, sync::Arc};

use rustls::pki_types::CertificateDer;

use super::principals::Principal;

/// The other end of a connection.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// Where it calls from; none on a Unix socket.
    pub address: Option<IpAddr>,
    /// The certificate that it proved to hold, checked against `--tls-client-ca`.
    pub certificate: Option<CertificateDer<'static>>,
}

/// Who calls.
#[derive(Clone, Debug)]
pub struct Caller {
    /// A principal's name; without authentication, where the call comes from.
    pub(super) name: Arc<str>,
    /// What it may do; none: everything.
    pub(super) principal: Option<Arc<Principal>>,
}

impl Caller {
    /// Somebody who may do everything: calls from within.
    pub fn anyone() -> Self {
        Self { name: "anyone".into(), principal: None }
    }

    /// A principal's name; without authentication, where the call comes from.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Whether it may read every dataset.
    pub fn reads_everything(&self) -> bool {
        self.principal.as_ref().is_none_or(|principal| principal.reads_everything())
    }

    /// Whether it may read a dataset of this name.
    pub fn may_read(&self, dataset: &str) -> bool {
        self.principal.as_ref().is_none_or(|principal| principal.may_read(dataset))
    }

    /// The streams that it may have open, where its principal says.
    pub(super) fn streams_max(&self) -> Option<usize> {
        self.principal.as_ref()?.streams_max
    }
}
