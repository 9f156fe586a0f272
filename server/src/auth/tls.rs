//! TLS configuration: the server's certificate and the verification of client certificates; files are re-read when they
//! change.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rustls::{
    RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem, pem::PemObject},
    server::WebPkiClientVerifier,
};
use webpki::{EndEntityCert, KeyUsage};

use super::{error::AuthError, watched::Watched};

/// HTTP/2, the only protocol offered.
const ALPN: &[u8] = b"h2";

/// TLS 1.2 and 1.3 with the server's certificate.
pub struct Tls {
    loaded: Watched<Loaded>,
    checks_clients: bool,
}

/// The content of the files.
struct Loaded {
    config: Arc<ServerConfig>,
    /// Seconds since 1970 at which the first certificate of the chain expires; none if the certificate cannot be parsed.
    expires: Option<u64>,
}

impl Tls {
    /// Reads a certificate chain and its key. With `client_ca`, clients must present a certificate that it issued.
    pub fn open(chain: &Path, key: &Path, client_ca: Option<&Path>) -> Result<Self, AuthError> {
        let (chain, key, client_ca) = (chain.to_owned(), key.to_owned(), client_ca.map(Path::to_owned));
        let checks_clients = client_ca.is_some();
        let files = [Some(&chain), Some(&key), client_ca.as_ref()].into_iter().flatten().cloned().collect();
        let loaded = Watched::open(files, move || read(&chain, &key, client_ca.as_ref()))?;
        Ok(Self { loaded, checks_clients })
    }

    /// Replaces certificate, key and authorities for new connections.
    pub fn replace(&self, new: Self) {
        self.loaded.replace(new.loaded);
    }

    /// Returns whether clients must present a certificate.
    pub fn checks_clients(&self) -> bool {
        self.checks_clients
    }

    /// Returns the configuration of the files' current content.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.loaded.current().config)
    }

    /// Returns the time at which the first certificate of the current chain expires, in seconds since 1970.
    pub fn expires(&self) -> Option<u64> {
        self.loaded.current().expires
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Tls").field("checks_clients", &self.checks_clients).finish_non_exhaustive()
    }
}

fn read(chain: &PathBuf, key: &PathBuf, client_ca: Option<&PathBuf>) -> Result<Loaded, AuthError> {
    let content = |path: &Path, reason: String| AuthError::Content { path: path.to_owned(), reason };
    let certificates = certificates(chain)?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| pem_error(key, error, "a private key"))?;
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| content(chain, error.to_string()))?;
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in self::certificates(path)? {
                roots.add(certificate).map_err(|error| content(path, error.to_string()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|error| content(path, error.to_string()))?)
        }
    };
    let expires = certificates.iter().filter_map(expiry).min();
    let config = builder.with_single_cert(certificates, private);
    let reason =
        |error: rustls::Error| format!("the key does not match the certificate in {}: {error}", chain.display());
    let mut config = config.map_err(|error| content(key, reason(error)))?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(Loaded { config: Arc::new(config), expires })
}

/// Returns the time at which a certificate expires, in seconds since 1970.
///
/// webpki has no accessor for it, but its verification at the end of time names it: a certificate's dates are checked
/// before its issuer is looked for.
fn expiry(certificate: &CertificateDer<'_>) -> Option<u64> {
    let end_of_time = UnixTime::since_unix_epoch(Duration::from_secs(u64::MAX));
    let certificate = EndEntityCert::try_from(certificate).ok()?;
    let verified = certificate.verify_for_usage(&[], &[], &[], end_of_time, KeyUsage::server_auth(), None, None);
    match verified {
        Err(webpki::Error::CertExpired { not_after, .. }) => Some(not_after.as_secs()),
        _ => None,
    }
}

fn certificates(path: &PathBuf) -> Result<Vec<CertificateDer<'static>>, AuthError> {
    let expected = "PEM certificates";
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| pem_error(path, error, expected));
    match found {
        Ok(none) if none.is_empty() => Err(pem_error(path, pem::Error::NoItemsFound, expected)),
        other => other,
    }
}

fn pem_error(path: &Path, error: pem::Error, expected: &str) -> AuthError {
    match error {
        pem::Error::Io(source) => AuthError::Read { path: path.to_owned(), source },
        other => AuthError::Content { path: path.to_owned(), reason: format!("expected {expected}: {other}") },
    }
}
