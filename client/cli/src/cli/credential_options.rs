//! Flags of credentials and trusted authorities.

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::Args;
use forebay_client::Credentials;

use super::failure::Failure;

#[derive(Args)]
pub(crate) struct CredentialOptions {
    /// Bearer token; prefer the environment variable or --token-file, which process lists do not show
    #[arg(long, env = "FOREBAY_TOKEN", value_name = "TOKEN", global = true, hide_env_values = true)]
    token: Option<String>,

    /// File with the bearer token
    #[arg(long, env = "FOREBAY_TOKEN_FILE", value_name = "FILE", global = true, conflicts_with = "token")]
    token_file: Option<PathBuf>,

    /// File of the authorities to trust for grpc+tls://, in PEM [default: the system's]
    #[arg(long, env = "FOREBAY_CA", value_name = "FILE", global = true)]
    ca: Option<PathBuf>,

    /// File of the client's certificate chain, in PEM
    #[arg(long, env = "FOREBAY_CERT", value_name = "FILE", global = true, requires = "key")]
    cert: Option<PathBuf>,

    /// File of the key of --cert, in PEM
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
        let from_file = self.token_file.as_deref().map(|path| file("--token-file", path)).transpose()?;
        let from_file = from_file.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        match self.token.as_ref().or(from_file.as_ref()) {
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
