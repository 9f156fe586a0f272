//! Credentials that a client presents, and the authorities it trusts; the headers of its calls.

use std::fmt;

use forebay_proto::protocol::{PROTOCOL, PROTOCOL_HEADER, VERSION, VERSION_HEADER};
use tonic::{
    Status,
    metadata::{Ascii, MetadataValue},
    service::Interceptor,
    transport::{Certificate, ClientTlsConfig, Identity},
};

use crate::{Error, Result};

/// Bearer token, client certificate and trusted authorities (the system's by default). The token is sent with every
/// call, but only over TLS, to a Unix socket or to this machine.
#[derive(Clone, Default)]
pub struct Credentials {
    token: Option<MetadataValue<Ascii>>,
    ca: Option<Certificate>,
    identity: Option<Identity>,
}

/// Adds the token, the version and the protocol of this client to every call.
#[derive(Clone)]
pub(crate) struct CallHeaders(Option<MetadataValue<Ascii>>);

impl Credentials {
    /// Sends this bearer token with every call.
    pub fn with_token(self, token: &str) -> Result<Self> {
        let value = MetadataValue::try_from(format!("Bearer {}", token.trim()));
        let mut value = value.ok().filter(|_| !token.trim().is_empty()).ok_or(Error::Token)?;
        value.set_sensitive(true);
        Ok(Self { token: Some(value), ..self })
    }

    /// Trusts only servers whose certificate was issued by these authorities, in PEM.
    #[must_use]
    pub fn with_ca(self, pem: impl AsRef<[u8]>) -> Self {
        Self { ca: Some(Certificate::from_pem(pem)), ..self }
    }

    /// Presents this certificate chain, with its key, to servers that request one; both in PEM.
    #[must_use]
    pub fn with_certificate(self, chain_pem: impl AsRef<[u8]>, key_pem: impl AsRef<[u8]>) -> Self {
        Self { identity: Some(Identity::from_pem(chain_pem, key_pem)), ..self }
    }

    pub(crate) fn has_token(&self) -> bool {
        self.token.is_some()
    }

    pub(crate) fn call_headers(&self) -> CallHeaders {
        CallHeaders(self.token.clone())
    }

    /// The headers of a call as text.
    pub(crate) fn headers(&self) -> Vec<(String, String)> {
        let token = self.token.as_ref().and_then(|token| token.to_str().ok());
        let token = token.map(|token| ("authorization".to_owned(), token.to_owned()));
        let versions = [(VERSION_HEADER, VERSION.to_owned()), (PROTOCOL_HEADER, PROTOCOL.to_string())];
        token.into_iter().chain(versions.map(|(name, value)| (name.to_owned(), value))).collect()
    }

    pub(crate) fn tls(&self) -> ClientTlsConfig {
        let config = match &self.ca {
            Some(ca) => ClientTlsConfig::new().ca_certificate(ca.clone()),
            None => ClientTlsConfig::new().with_enabled_roots(),
        };
        match &self.identity {
            Some(identity) => config.identity(identity.clone()),
            None => config,
        }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Credentials")
            .field("token", &self.token.is_some())
            .field("ca", &self.ca.is_some())
            .field("certificate", &self.identity.is_some())
            .finish()
    }
}

impl fmt::Debug for CallHeaders {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("CallHeaders")
    }
}

impl Interceptor for CallHeaders {
    fn call(&mut self, mut request: tonic::Request<()>) -> std::result::Result<tonic::Request<()>, Status> {
        if let Some(token) = &self.0 {
            request.metadata_mut().insert("authorization", token.clone());
        }
        request.metadata_mut().insert(VERSION_HEADER, MetadataValue::from_static(VERSION));
        request.metadata_mut().insert(PROTOCOL_HEADER, PROTOCOL.into());
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::Credentials;

    #[test]
    fn rejects_tokens_unfit_for_a_header_and_prints_no_secret() {
        for token in ["", " \n", "a\nb", "\u{7f}"] {
            assert!(Credentials::default().with_token(token).is_err(), "{token:?}");
        }
        let known = Credentials::default().with_token("open sesame\n").unwrap().with_ca("PEM");
        let shown = format!("{known:?} {:?}", known.call_headers());
        assert!(!shown.contains("sesame") && !shown.contains("PEM"), "{shown}");
    }
}
