//! The file of `--principals`: one table per principal, with digests of its tokens, names of its certificates, its
//! datasets and its limits.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use glob::Pattern;
use rustls::pki_types::{CertificateDer, ServerName};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};
use webpki::EndEntityCert;

use super::{error::AuthError, watched::Watched};

/// The largest file that is read.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// The longest name of a principal.
const NAME_BYTES_MAX: usize = 128;

/// The SHA-256 of a token.
type TokenDigest = [u8; 32];

/// A client that may call.
#[derive(Debug)]
pub struct Principal {
    /// Name of its table in the file.
    pub name: Arc<str>,
    /// Names of datasets that it may read, with the wildcards `*` and `?`.
    datasets: Vec<Pattern>,
    /// Limit of open streams.
    pub streams_max: Option<usize>,
    /// Limit of calls per second.
    pub calls_per_second: Option<f64>,
}

/// Principals by token and by certificate name.
#[derive(Debug, Default)]
pub(super) struct Principals {
    tokens: Vec<(TokenDigest, Arc<Principal>)>,
    certificates: Vec<(ServerName<'static>, Arc<Principal>)>,
}

/// The file, re-read when it changes.
pub struct PrincipalsFile(Watched<Principals>);

/// A principal's table in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    #[serde(default)]
    token_sha256: OneOrMore,
    #[serde(default)]
    certificate: OneOrMore,
    datasets: OneOrMore,
    streams_max: Option<usize>,
    calls_per_second: Option<f64>,
}

/// A string, or a list of strings.
#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

// === impl Principal ===

impl Principal {
    pub(super) fn reads_everything(&self) -> bool {
        self.datasets.iter().any(|pattern| pattern.as_str() == "*")
    }

    pub(super) fn may_read(&self, dataset: &str) -> bool {
        self.datasets.iter().any(|pattern| pattern.matches(dataset))
    }
}

// === impl PrincipalsFile ===

impl PrincipalsFile {
    /// Reads the file.
    pub fn open(path: &Path) -> Result<Self, AuthError> {
        let path = path.to_owned();
        let files = vec![path.clone()];
        Watched::open(files, move || read(&path)).map(Self)
    }

    pub(super) fn replace(&self, new: Self) {
        self.0.replace(new.0);
    }

    pub(super) fn current(&self) -> Arc<Principals> {
        self.0.current()
    }
}

impl std::fmt::Debug for PrincipalsFile {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("PrincipalsFile")
    }
}

// === impl Principals ===

impl Principals {
    /// Returns the principal of a token. Compares every digest in constant time.
    pub(super) fn by_token(&self, token: &[u8]) -> Option<&Arc<Principal>> {
        let digest: TokenDigest = Sha256::digest(token).into();
        let mut found = None;
        for (known, principal) in &self.tokens {
            let is_equal: Choice = known.ct_eq(&digest);
            if bool::from(is_equal) {
                found = Some(principal);
            }
        }
        found
    }

    /// Returns the principal that a verified certificate has among its subject alternative names.
    pub(super) fn by_certificate(&self, certificate: &CertificateDer<'_>) -> Option<&Arc<Principal>> {
        let certificate = EndEntityCert::try_from(certificate).ok()?;
        let is_named = |name: &ServerName<'static>| certificate.verify_is_valid_for_subject_name(name).is_ok();
        self.certificates.iter().find(|(name, _)| is_named(name)).map(|(_, principal)| principal)
    }

    pub(super) fn has_certificates(&self) -> bool {
        !self.certificates.is_empty()
    }

    pub(super) fn parse(text: &str) -> Result<Self, String> {
        // The parser's full message would quote the line, which may contain a digest.
        let entries: BTreeMap<String, Entry> = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(0, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
            format!("line {line}: {}", error.message())
        })?;
        let mut principals = Self::default();
        for (name, entry) in entries {
            principals.add(&name, &entry).map_err(|reason| format!("[{name}]: {reason}"))?;
        }
        if principals.tokens.is_empty() && principals.certificates.is_empty() {
            return Err("no principal: add a table for each, such as [trainer]".to_owned());
        }
        Ok(principals)
    }

    fn add(&mut self, name: &str, entry: &Entry) -> Result<(), String> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte);
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(fits) {
            return Err(format!("the name must be 1 to {NAME_BYTES_MAX} characters of a-z, A-Z, 0-9, - _ . @"));
        }
        if entry.datasets.all().is_empty() {
            return Err("datasets: at least one name, or \"*\" for all".to_owned());
        }
        let pattern = |text: &String| Pattern::new(text).map_err(|error| format!("datasets: {text:?}: {error}"));
        let datasets: Result<Vec<Pattern>, String> = entry.datasets.all().iter().map(pattern).collect();
        let calls_per_second = entry.calls_per_second;
        if calls_per_second.is_some_and(|rate| !(rate.is_finite() && rate > 0.0)) {
            return Err("calls_per_second: a number above 0".to_owned());
        }
        let name: Arc<str> = name.into();
        let principal = Principal { name, datasets: datasets?, streams_max: entry.streams_max, calls_per_second };
        let principal = Arc::new(principal);
        for text in entry.token_sha256.all() {
            let digest = digest(text).ok_or(
                "token_sha256: 64 hexadecimal digits, the SHA-256 of a token (printf %s \"$TOKEN\" | sha256sum)",
            )?;
            if self.tokens.iter().any(|(known, _)| *known == digest) {
                return Err(
                    "token_sha256: another entry has the same token; each token identifies one principal".to_owned()
                );
            }
            self.tokens.push((digest, Arc::clone(&principal)));
        }
        for text in entry.certificate.all() {
            let name = ServerName::try_from(text.clone())
                .map_err(|_| format!("certificate: {text:?} is not a DNS name or an IP address"))?;
            self.certificates.push((name, Arc::clone(&principal)));
        }
        if entry.token_sha256.all().is_empty() && entry.certificate.all().is_empty() {
            return Err("token_sha256 or certificate: at least one is required".to_owned());
        }
        Ok(())
    }
}

// === impl OneOrMore ===

impl OneOrMore {
    fn all(&self) -> &[String] {
        match self {
            Self::One(text) => std::slice::from_ref(text),
            Self::More(texts) => texts,
        }
    }
}

impl Default for OneOrMore {
    fn default() -> Self {
        Self::More(Vec::new())
    }
}

fn read(path: &PathBuf) -> Result<Principals, AuthError> {
    let failed = |source| AuthError::Read { path: path.clone(), source };
    let content = |reason: String| AuthError::Content { path: path.clone(), reason };
    if fs::metadata(path).map_err(failed)?.len() > FILE_BYTES_MAX {
        return Err(content(format!("larger than {FILE_BYTES_MAX} bytes")));
    }
    Principals::parse(&fs::read_to_string(path).map_err(failed)?).map_err(content)
}

fn digest(text: &str) -> Option<TokenDigest> {
    let digits = text.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    let mut digest = TokenDigest::default();
    for (byte, pair) in digest.iter_mut().zip(digits.chunks_exact(2)) {
        let value = |digit: u8| char::from(digit).to_digit(16);
        *byte = (value(pair[0])? * 16 + value(pair[1])?) as u8;
    }
    Some(digest)
}
