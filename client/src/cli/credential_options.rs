//! What the program shows of itself to a server, and which servers it trusts.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use forebay_client::Credentials;

use super::failure::Failure;

#[derive(Args)]
pub(crate) struct CredentialOptions {
    /// A bearer token; better in the environment, where no list of processes shows it, or in --token-file
    #[arg(long, env = "FOREBAY_TOKEN", value_name = "TOKEN", global = true, hide_env_values = true)]
    token: Option<String>,

    /// A file that holds the bearer token
    #[arg(long, env = "FOREBAY_TOKEN_FILE", value_name = "FILE", global = true, conflicts_with = "token")]
    token_file: Option<PathBuf>,

    /// Certificates in PEM: only servers that hold one of these authorities are trusted (grpc+tls://) [default: those of the system]
    #[arg(long, env = "FOREBAY_CA", value_name = "FILE", global = true)]
    ca: Option<PathBuf>,

    /// This client's certificate chain in PEM, for servers that ask for one
    #[arg(long, env = "FOREBAY_CERT", value_name = "FILE", global = true, requires = "key")]
    cert: Option<PathBuf>,

    /// The key of --cert in PEM
    #[arg(long, env = "FOREBAY_KEY", value_name = "FILE", global = true, requires = "cert")]
    key: Option<PathBuf>,
}

impl CredentialOptions {
    pub(crate) fn read(&self) -> Result<Credentials, Failure> {
        let mut credentials = Credentials::default();
        if let Some(path) = &self.ca {
            credentials = credentials.with_ca(file("--ca", path)?);
        }
        if let (Some(chain), Some(key)) = (&self.cert, &self.key) {
            credentials = credentials.with_certificate(file("--cert", chain)?, file("--key", key)?);
        }
        let kept = self.token_file.as_deref().map(|path| file("--token-file", path)).transpose()?;
        let kept = kept.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        match self.token.as_ref().or(kept.as_ref()) {
            Some(token) => Ok(credentials.with_token(token)?),
            None => Ok(credentials),
        }
    }
}

impl std::fmt::Debug for CredentialOptions {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("CredentialOptions")
    }
}

fn file(flag: &str, path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|source| Failure::Usage(format!("{flag} {}: {source}", path.display())))
}
