//! The address of the hub and the token for it, from the variables that its own programs read.

use std::{env, fs, path::PathBuf};

use reqwest::header::HeaderValue;
use url::Url;

/// The hub that is read without `HF_ENDPOINT`.
const ENDPOINT: &str = "https://huggingface.co";

/// The variables of errors.
pub(crate) const VARIABLES: &str = "HF_TOKEN, or the file of HF_TOKEN_PATH";
pub(crate) const ENDPOINT_VARIABLE: &str = "HF_ENDPOINT";

/// Where a hub is, and what it knows the caller by.
#[derive(Clone, Debug)]
pub(super) struct Access {
    /// Its URL, without a slash at the end.
    pub endpoint: Url,
    /// The value of the header `Authorization`, which is never shown.
    pub authorization: Option<HeaderValue>,
}

// === impl Access ===

impl Access {
    pub(super) fn from_environment() -> Result<Self, String> {
        let text = variable(ENDPOINT_VARIABLE).unwrap_or_else(|| ENDPOINT.to_owned());
        let wrong = || "HF_ENDPOINT must be the http:// or https:// URL of a hub, without a user or a query".to_owned();
        let endpoint = Url::parse(text.trim_end_matches('/')).map_err(|_| wrong())?;
        let is_plain = matches!(endpoint.scheme(), "http" | "https")
            && endpoint.has_host()
            && endpoint.username().is_empty()
            && endpoint.password().is_none()
            && endpoint.query().is_none();
        if !is_plain {
            return Err(wrong());
        }
        let authorization = token()?.map(|token| HeaderValue::from_str(&format!("Bearer {token}"))).transpose();
        let mut authorization = authorization
            .map_err(|_| "the token of HF_TOKEN or HF_TOKEN_PATH has letters that no header can have".to_owned())?;
        if let Some(authorization) = &mut authorization {
            authorization.set_sensitive(true);
        }
        Ok(Self { endpoint, authorization })
    }
}

fn token() -> Result<Option<String>, String> {
    if let Some(token) = variable("HF_TOKEN") {
        return Ok(Some(token));
    }
    let named = variable("HF_TOKEN_PATH").map(PathBuf::from);
    let Some(path) = named.clone().or_else(default_path) else { return Ok(None) };
    match fs::read_to_string(&path) {
        Ok(text) => Ok(Some(text.trim().to_owned()).filter(|token| !token.is_empty())),
        Err(source) if named.is_some() => Err(format!("HF_TOKEN_PATH: cannot read \"{}\": {source}", path.display())),
        // There is no such file before a login.
        Err(_) => Ok(None),
    }
}

/// Where the hub's programs keep the token after a login.
fn default_path() -> Option<PathBuf> {
    let home = || variable("HOME").map(PathBuf::from);
    let cache = || variable("XDG_CACHE_HOME").map(PathBuf::from).or_else(|| Some(home()?.join(".cache")));
    let folder = variable("HF_HOME").map(PathBuf::from).or_else(|| Some(cache()?.join("huggingface")))?;
    Some(folder.join("token"))
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok().map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
}
