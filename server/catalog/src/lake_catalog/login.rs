//! Who the server is to a catalog, from its environment.

use std::{
    env,
    time::{Duration, Instant},
};

use object_store::client::HttpRequest;
use reqwest::header::HeaderValue;
use serde::Deserialize;
use tokio::sync::Mutex;
use url::{Url, form_urlencoded::Serializer};

use super::{
    renewal,
    requests::{self, CatalogClient, RequestError, below},
};

/// The scope of a login whose environment names none, as other clients of such catalogs have it.
const SCOPE: &str = "catalog";

/// Where a catalog has its own logins.
const OWN_LOGINS: &str = "v1/oauth/tokens";

/// A token is replaced when less than this is left.
const RENEWED_BEFORE: Duration = Duration::from_mins(1);

/// The time of a token that names none.
const TOKEN_TIME: Duration = Duration::from_hours(1);

const FORM: HeaderValue = HeaderValue::from_static("application/x-www-form-urlencoded");

/// The login of a catalog.
pub(super) enum Login {
    /// None.
    Open,
    /// A token of the operator.
    Token(String),
    /// A client of OAuth 2, which logs in for tokens.
    Client(Box<OauthClient>),
}

/// A client of OAuth 2 by its own credentials.
pub(super) struct OauthClient {
    url: Url,
    id: Option<String>,
    secret: String,
    scope: String,
    token: Mutex<Option<Token>>,
}

#[derive(Clone)]
struct Token {
    text: String,
    renewed_at: Instant,
}

#[derive(Deserialize)]
struct TokenAnswer {
    access_token: String,
    #[serde(default)]
    expires_in: Option<u64>,
}

// === impl Login ===

impl Login {
    /// A token in a variable, or none.
    pub(super) fn token(name: &str) -> Self {
        variable(name).map_or(Self::Open, Self::Token)
    }

    /// The login of the catalogs with the REST API of Iceberg.
    pub(super) fn of_rest(endpoint: &Url) -> Result<Self, String> {
        let Some(credential) = variable("ICEBERG_REST_CREDENTIAL") else {
            return Ok(Self::token("ICEBERG_REST_TOKEN"));
        };
        let (id, secret) = match credential.split_once(':') {
            Some((id, secret)) => (Some(id.to_owned()), secret.to_owned()),
            None => (None, credential),
        };
        let url = match variable("ICEBERG_REST_OAUTH2_SERVER_URI") {
            None => below(endpoint, OWN_LOGINS),
            Some(text) => Url::parse(&text)
                .ok()
                .filter(|url| url.scheme() == "https" || (url.scheme() == "http" && endpoint.scheme() == "http"))
                .ok_or("ICEBERG_REST_OAUTH2_SERVER_URI must be the https:// URL of logins")?,
        };
        let scope = variable("ICEBERG_REST_SCOPE").unwrap_or_else(|| SCOPE.to_owned());
        Ok(Self::Client(Box::new(OauthClient { url, id, secret, scope, token: Mutex::default() })))
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self, Self::Open)
    }

    /// The token to send. After the catalog refused one, `refused`, that is another one if there can be one.
    pub(super) async fn current(
        &self,
        client: &CatalogClient,
        refused: Option<&str>,
    ) -> Result<Option<String>, RequestError> {
        match self {
            Self::Open => Ok(None),
            Self::Token(token) => Ok(Some(token.clone())),
            Self::Client(oauth) => oauth.current(client, refused).await.map(Some),
        }
    }

    /// Whether another token may be accepted after one was refused.
    pub(super) fn is_renewed(&self) -> bool {
        matches!(self, Self::Client(_))
    }
}

// === impl OauthClient ===

impl OauthClient {
    async fn current(&self, client: &CatalogClient, refused: Option<&str>) -> Result<String, RequestError> {
        // Held while logging in: concurrent requests wait for one login.
        let mut known = self.token.lock().await;
        let is_good = |token: &Token| Instant::now() < token.renewed_at && Some(token.text.as_str()) != refused;
        if let Some(token) = known.as_ref().filter(|token| is_good(token)) {
            return Ok(token.text.clone());
        }
        let answer: TokenAnswer = client.answer(&[&self.secret], || self.request()).await?;
        let time = answer.expires_in.map_or(TOKEN_TIME, Duration::from_secs);
        let renewed_at = renewal::after(time, RENEWED_BEFORE);
        *known = Some(Token { text: answer.access_token.clone(), renewed_at });
        Ok(answer.access_token)
    }

    fn request(&self) -> HttpRequest {
        let mut form = Serializer::new(String::new());
        form.append_pair("grant_type", "client_credentials").append_pair("scope", &self.scope);
        if let Some(id) = &self.id {
            form.append_pair("client_id", id);
        }
        form.append_pair("client_secret", &self.secret);
        requests::post(&self.url, FORM, [], form.finish())
    }
}

/// Refuses a second catalog: a login is for one, and must not reach another.
pub(super) fn check_one<'a>(
    variables: &str,
    endpoint: &Url,
    mut others: impl Iterator<Item = &'a Url>,
) -> Result<(), String> {
    match others.find(|other| other.origin() != endpoint.origin()) {
        None => Ok(()),
        Some(other) => Err(format!(
            "{variables} is the login of one catalog, and this server has tables of {other} and {endpoint}: run a server for \
             each"
        )),
    }
}

/// The value of `Authorization` for a token, which is never shown.
pub(super) fn bearer(token: &str) -> Result<HeaderValue, RequestError> {
    let value = HeaderValue::from_str(&format!("Bearer {token}"));
    let mut value =
        value.map_err(|_| RequestError::Failed("the token has letters that no header can have".to_owned()))?;
    value.set_sensitive(true);
    Ok(value)
}

/// The value of a variable that is set and not empty.
pub(super) fn variable(name: &str) -> Option<String> {
    env::var(name).ok().map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
}
