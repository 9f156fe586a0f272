//! TLS of a call: trusted authorities and the client's certificate, from PEM.

use std::{cmp::Reverse, sync::Arc};

use rustls::{
    CipherSuite, ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

use crate::ReceiveError;

/// Settings of TLS.
#[derive(Clone, Debug)]
pub struct Tls(pub(crate) Arc<ClientConfig>);

impl Tls {
    /// Trusts the authorities, and presents the certificate chain and its key, if given. All are in PEM.
    ///
    /// # Errors
    ///
    /// If there is no usable authority, or the certificate or key cannot be read.
    pub fn new(authorities: &str, identity: Option<(&str, &str)>) -> Result<Self, ReceiveError> {
        let mut roots = RootCertStore::empty();
        // A system's bundle may have certificates that rustls does not accept.
        let (added, _) = roots.add_parsable_certificates(certificates(authorities)?);
        if added == 0 {
            return Err(ReceiveError::Options("no certificate of an authority".to_owned()));
        }
        let mut provider = ring::default_provider();
        // Hardware computes AES; 128 bits cost less than 256.
        provider.cipher_suites.sort_by_key(|suite| {
            Reverse(matches!(
                suite.suite(),
                CipherSuite::TLS13_AES_128_GCM_SHA256
                    | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
                    | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
            ))
        });
        let builder = ClientConfig::builder_with_provider(Arc::new(provider));
        let builder = builder.with_safe_default_protocol_versions().map_err(unusable)?.with_root_certificates(roots);
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => {
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(unusable)?;
                builder.with_client_auth_cert(certificates(chain)?, key).map_err(unusable)?
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Self(Arc::new(config)))
    }
}

fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, ReceiveError> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().map_err(unusable)
}

fn unusable(error: impl std::fmt::Display) -> ReceiveError {
    ReceiveError::Options(format!("cannot use the certificates: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_is_no_certificate_is_refused() {
        for authorities in ["", "no certificate", "-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n"] {
            assert!(matches!(Tls::new(authorities, None), Err(ReceiveError::Options(_))), "{authorities}");
        }
    }
}
