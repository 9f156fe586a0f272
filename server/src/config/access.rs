//! Keys, certificates and principals: the files named by flags, read before the server starts.

use std::{fs, path::Path};

use super::{
    error::{ConfigError, wrong},
    flags::Flags,
};
use crate::auth::{AuthError, KEY_BYTES, PrincipalsFile, Tls};

/// The content of the files.
pub(super) struct AccessFiles {
    pub tls: Option<Tls>,
    pub principals: Option<PrincipalsFile>,
    pub ticket_secret: Option<Vec<u8>>,
}

impl AccessFiles {
    /// Returns whether every caller must have credentials.
    pub(super) fn requires_credentials(&self) -> bool {
        self.principals.is_some() || self.tls.as_ref().is_some_and(Tls::checks_clients)
    }
}

pub(super) fn open(flags: &Flags) -> Result<AccessFiles, ConfigError> {
    let tls = match (&flags.tls_cert, &flags.tls_key) {
        (Some(chain), Some(key)) => {
            let opened = Tls::open(chain, key, flags.tls_client_ca.as_deref());
            Some(opened.map_err(|error| unusable("tls-cert", chain, &error))?)
        }
        // clap checks `requires` on the command line, but not for values of the configuration file.
        (Some(path), None) => {
            return Err(wrong("tls-cert", &path.display().to_string(), "requires --tls-key"));
        }
        (None, Some(path)) => {
            return Err(wrong("tls-key", &path.display().to_string(), "requires --tls-cert"));
        }
        (None, None) => None,
    };
    if let (None, Some(path)) = (&tls, &flags.tls_client_ca) {
        return Err(wrong("tls-client-ca", &path.display().to_string(), "requires --tls-cert and --tls-key"));
    }
    let principals = flags
        .principals
        .as_deref()
        .map(|path| PrincipalsFile::open(path).map_err(|error| unusable("principals", path, &error)));
    Ok(AccessFiles { tls, principals: principals.transpose()?, ticket_secret: secret(flags.ticket_key.as_deref())? })
}

fn secret(path: Option<&Path>) -> Result<Option<Vec<u8>>, ConfigError> {
    let Some(path) = path else { return Ok(None) };
    let invalid = |reason: String| wrong("ticket-key", &path.display().to_string(), reason);
    let secret = fs::read(path).map_err(|source| invalid(source.to_string()))?;
    let secret = secret.trim_ascii().to_vec();
    if secret.len() < KEY_BYTES {
        return Err(invalid(format!(
            "{} bytes; at least {KEY_BYTES} are required (openssl rand -hex 32)",
            secret.len()
        )));
    }
    Ok(Some(secret))
}

fn unusable(flag: &'static str, path: &Path, error: &AuthError) -> ConfigError {
    wrong(flag, &path.display().to_string(), error.to_string())
}
