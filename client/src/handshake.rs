//! What client and server disagree on when a connection fails, found in the transport's errors.

use std::{error::Error as StdError, io, iter};

use rustls::CertificateError;

/// What a client and a server disagree on, and what to change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// The URL is not for TLS, but the port is.
    #[error("this port speaks TLS: use {0}")]
    TlsPort(String),
    /// The URL is for TLS, but the port is not.
    #[error("this port does not speak TLS: use {0}")]
    PlainPort(String),
    /// The client does not trust the certificate's issuer.
    #[error(
        "the server's certificate was not issued by a trusted authority: give the authority with --ca FILE or FOREBAY_CA \
         (Credentials::with_ca)"
    )]
    Authority,
    /// The certificate has other names than the URL.
    #[error("the server's certificate is for {names}, not for {host}: connect to one of its names")]
    Name {
        /// The host of the URL.
        host: String,
        /// The names of the certificate.
        names: String,
    },
    /// The certificate has expired.
    #[error("the server's certificate has expired: its operator must renew it")]
    Expired,
    /// The certificate is not valid yet.
    #[error("the server's certificate is not valid yet: check this machine's clock")]
    NotYetValid,
    /// The server accepts only clients with a certificate.
    #[error(
        "the server requires a client certificate: give --cert FILE and --key FILE, or FOREBAY_CERT and FOREBAY_KEY \
         (Credentials::with_certificate)"
    )]
    ClientCertificate,
    /// The server rejects the handshake, for example because it does not trust the client's certificate.
    #[error("the server rejected the TLS handshake ({0}); is the client certificate issued by its --tls-client-ca?")]
    Rejected(String),
}

impl Mismatch {
    /// Finds a mismatch in the error of a connection to `url`.
    pub(crate) fn of(error: &(dyn StdError + 'static), url: &str) -> Option<Self> {
        let Some(error) = tls_error(error) else {
            // h2 keeps only the text of an error that ends an established connection.
            return root_cause(error).strip_prefix("received fatal alert: ").map(Self::of_alert);
        };
        match error {
            rustls::Error::InvalidMessage(_) => Some(Self::PlainPort(with_scheme(url, "grpc"))),
            rustls::Error::InvalidCertificate(certificate) => Some(match certificate {
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => Self::Expired,
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => Self::NotYetValid,
                CertificateError::NotValidForNameContext { expected, presented } => {
                    Self::Name { host: expected.to_str().into_owned(), names: names(presented) }
                }
                _ => Self::Authority,
            }),
            rustls::Error::AlertReceived(alert) => Some(Self::of_alert(&format!("{alert:?}"))),
            _ => None,
        }
    }

    fn of_alert(alert: &str) -> Self {
        if alert == "CertificateRequired" { Self::ClientCertificate } else { Self::Rejected(alert.to_owned()) }
    }
}

/// Returns the message of the innermost source of an error.
pub(crate) fn root_cause(error: &(dyn StdError + 'static)) -> String {
    chain(error).last().map(ToString::to_string).unwrap_or_default()
}

/// Returns the error of TLS among the sources of an error.
fn tls_error<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a rustls::Error> {
    chain(error).find_map(|error| match error.downcast_ref::<io::Error>() {
        // The source of an `io::Error` is that of the error that it wraps.
        Some(wrapper) => tls_error(wrapper.get_ref()?),
        None => error.downcast_ref(),
    })
}

/// Returns an error and its sources.
fn chain<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    iter::successors(Some(error), |error: &&'a (dyn StdError + 'static)| {
        let error: &'a (dyn StdError + 'static) = *error;
        error.source()
    })
}

/// The same host and port with another scheme.
pub(crate) fn with_scheme(url: &str, scheme: &str) -> String {
    let place = url.split_once("://").map_or(url, |(_, place)| place);
    format!("{scheme}://{place}")
}

/// The names of a certificate, from rustls's form `DnsName("a.example")`.
fn names(presented: &[String]) -> String {
    let name = |text: &String| {
        let inner = text.split_once('(').map_or(text.as_str(), |(_, inner)| inner.trim_end_matches(')'));
        inner.trim_matches('"').to_owned()
    };
    let names: Vec<String> = presented.iter().map(name).collect();
    if names.is_empty() { "no name".to_owned() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use rustls::{AlertDescription, InvalidMessage, pki_types::ServerName};

    use super::*;

    fn of(error: rustls::Error) -> Option<Mismatch> {
        let wrapped = io::Error::new(io::ErrorKind::InvalidData, io::Error::other(error));
        Mismatch::of(&wrapped, "grpc+tls://a:1")
    }

    #[test]
    fn finds_mismatches_in_errors_of_tls() {
        use rustls::Error::{AlertReceived, General, InvalidCertificate};
        let plain = of(rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType));
        assert_eq!(plain, Some(Mismatch::PlainPort("grpc://a:1".to_owned())));
        assert_eq!(of(InvalidCertificate(CertificateError::UnknownIssuer)), Some(Mismatch::Authority));
        assert_eq!(of(InvalidCertificate(CertificateError::Expired)), Some(Mismatch::Expired));
        assert_eq!(of(AlertReceived(AlertDescription::CertificateRequired)), Some(Mismatch::ClientCertificate));
        assert_eq!(of(AlertReceived(AlertDescription::UnknownCA)), Some(Mismatch::Rejected("UnknownCA".to_owned())));
        assert_eq!(of(General(String::new())), None);
        let by_h2 = io::Error::other("received fatal alert: CertificateRequired");
        assert_eq!(Mismatch::of(&by_h2, "grpc+tls://a:1"), Some(Mismatch::ClientCertificate));
        assert_eq!(Mismatch::of(&io::Error::other("reset"), "grpc://a:1"), None);
        let presented = vec!["DnsName(\"b.example\")".to_owned(), "IpAddress(10.1.2.3)".to_owned()];
        let expected = ServerName::try_from("a.example").unwrap();
        let named = of(InvalidCertificate(CertificateError::NotValidForNameContext { expected, presented })).unwrap();
        assert!(named.to_string().contains("is for b.example, 10.1.2.3, not for a.example"), "{named}");
    }
}
