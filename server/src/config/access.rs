//! Keys, certificates and principals: the files that the flags name, read once before anything starts.

use std::{fs, path::Path};

use super::{
    error::{ConfigError, wrong},
    flags::Flags,
};
use crate::auth::{AuthError, KEY_BYTES, PrincipalsFile, Tls};

/// What the files held.
pub(super) struct AccessFiles {
    pub tls: Option<Tls>,
    pub principals: Option<PrincipalsFile>,
    pub ticket_secret: Option<Vec<u8>>,
}

impl AccessFiles {
    /// Whether nobody gets in who does not say who they are.
    pub(super) fn asks_who_calls(&self) -> bool {
        self.principals.is_some() || self.tls.as_ref().is_some_and(Tls::checks_clients)
    }
}

pub(super) fn open(flags: &Flags) -> Result<AccessFiles, ConfigError> {
    let tls = match (&flags.tls_cert, &flags.tls_key) {
        (Some(chain), Some(key)) => {
            let opened = Tls::open(chain, key, flags.tls_client_ca.as_deref());
            Some(opened.map_err(|error| unusable("tls-cert", chain, &error))?)
        }
        // clap holds them together on the command line, but not where they come from a file.
        (Some(path), None) => {
            return Err(wrong("tls-cert", &path.display().to_string(), "--tls-key is needed with it"));
        }
        (None, Some(path)) => {
            return Err(wrong("tls-key", &path.display().to_string(), "--tls-cert is needed with it"));
        }
        (None, None) => None,
    };
    if let (None, Some(path)) = (&tls, &flags.tls_client_ca) {
        return Err(wrong("tls-client-ca", &path.display().to_string(), "--tls-cert and --tls-key are needed with it"));
    }
    let principals = flags
        .principals
        .as_deref()
        .map(|path| PrincipalsFile::open(path).map_err(|error| unusable("principals", path, &error)));
    Ok(AccessFiles { tls, principals: principals.transpose()?, ticket_secret: secret(flags.ticket_key.as_deref())? })
}

fn secret(path: Option<&Path>) -> Result<Option<Vec<u8>>, ConfigError> {
    let Some(path) = path else { return Ok(None) };
    let refused = |reason: String| wrong("ticket-key", &path.display().to_string(), reason);
    let secret = fs::read(path).map_err(|source| refused(source.to_string()))?;
    let secret = secret.trim_ascii().to_vec();
    if secret.len() < KEY_BYTES {
        return Err(refused(format!("{} bytes, at least {KEY_BYTES} are needed (openssl rand -hex 32)", secret.len())));
    }
    Ok(Some(secret))
}

fn unusable(flag: &'static str, path: &Path, error: &AuthError) -> ConfigError {
    wrong(flag, &path.display().to_string(), error.to_string())
}
