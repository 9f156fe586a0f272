//! Keys, certificates and principals: the files named by flags, read before the server starts.

use std::{fs, path::Path};

use super::{
    error::{ConfigError, ConfigProblems, wrong},
    flags::Flags,
};
use crate::auth::{AuthError, KEY_BYTES, PrincipalsFile, Tls};

/// The content of the files.
pub(super) struct AccessFiles {
    pub tls: Option<Tls>,
    pub principals: Option<PrincipalsFile>,
    pub ticket_secret: Option<Vec<u8>>,
}

pub(super) fn open(flags: &Flags) -> Result<AccessFiles, ConfigProblems> {
    let mut problems = ConfigProblems::default();
    let principals = flags
        .principals
        .as_deref()
        .map(|path| PrincipalsFile::open(path).map_err(|error| unusable("principals", path, &error)));
    let files = AccessFiles {
        tls: problems.one(tls(flags)).flatten(),
        principals: problems.one(principals.transpose()).flatten(),
        ticket_secret: problems.one(secret(flags.ticket_key.as_deref())).flatten(),
    };
    problems.or(files)
}

/// Returns whether connections are encrypted and every caller must have credentials.
pub(super) fn is_secure(flags: &Flags) -> bool {
    flags.tls_cert.is_some() && (flags.principals.is_some() || flags.tls_client_ca.is_some())
}

fn tls(flags: &Flags) -> Result<Option<Tls>, ConfigError> {
    let requires = |flag, path: &Path, others| Err(wrong(flag, &path.display().to_string(), others));
    match (&flags.tls_cert, &flags.tls_key, &flags.tls_client_ca) {
        (Some(chain), Some(key), client_ca) => {
            let opened = Tls::open(chain, key, client_ca.as_deref());
            opened.map(Some).map_err(|error| unusable("tls-cert", chain, &error))
        }
        // clap checks `requires` on the command line, but not for values of the configuration file.
        (Some(path), None, _) => requires("tls-cert", path, "requires --tls-key"),
        (None, Some(path), _) => requires("tls-key", path, "requires --tls-cert"),
        (None, None, Some(path)) => requires("tls-client-ca", path, "requires --tls-cert and --tls-key"),
        (None, None, None) => Ok(None),
    }
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
