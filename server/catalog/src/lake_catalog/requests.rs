//! Requests to catalogs: JSON answers of bounded size, retries, and errors without secrets.

use std::{iter, time::Instant};

use forebay_runtime::metrics;
use object_store::{
    ClientOptions, RetryConfig,
    client::{HttpClient, HttpConnector, HttpError, HttpRequest, HttpRequestBody, HttpResponse},
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use serde::de::DeserializeOwned;
use serde_json::Value;
use url::Url;

use crate::{
    network::{SameOriginConnector, whole_body},
    redact, retries,
    store::StoreError,
};

/// The largest answer: it may have the metadata of a table with very many snapshots.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// The longest part of an answer in an error.
const SAID_CHARACTERS_MAX: usize = 300;

/// The bytes of a name that a segment of a URL cannot have.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Statuses of a login that is missing, wrong or expired.
pub(super) const UNAUTHORIZED: u16 = 401;
const FORBIDDEN: u16 = 403;
/// Expired, in the REST API of Iceberg.
pub(super) const LOGIN_EXPIRED: u16 = 419;
pub(super) const NOT_FOUND: u16 = 404;

/// The client of a catalog.
pub(super) struct CatalogClient {
    client: HttpClient,
    retry: RetryConfig,
    /// The catalog, for errors.
    shown: String,
    /// What the operator sets for a login, for errors.
    variables: &'static str,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum RequestError {
    /// The catalog refused with a status, and what it said.
    Status(u16, String),
    /// It did not answer, or with something else than its API.
    Failed(String),
}

// === impl CatalogClient ===

impl CatalogClient {
    /// A client that follows redirects only within the catalog's address.
    pub(super) fn new(endpoint: &Url, variables: &'static str, retry: &RetryConfig) -> Result<Self, String> {
        let options = ClientOptions::new().with_allow_http(endpoint.scheme() == "http");
        let client = SameOriginConnector.connect(&options).map_err(|error| error.to_string())?;
        Ok(Self { client, retry: retry.clone(), shown: endpoint.to_string(), variables })
    }

    /// The answer to a request, which is made for each attempt. `secrets` are never part of an error.
    pub(super) async fn answer<T: DeserializeOwned>(
        &self,
        secrets: &[&str],
        request: impl Fn() -> HttpRequest + Sync,
    ) -> Result<T, RequestError> {
        let failed = |error: &HttpError| RequestError::Failed(cause(error));
        let response = self.send(request).await.map_err(|error| failed(&error))?;
        let status = response.status();
        let body = whole_body(response.into_body(), ANSWER_BYTES_MAX).await.map_err(|error| failed(&error))?;
        let body = body.ok_or_else(|| RequestError::Failed(format!("its answer exceeds {ANSWER_BYTES_MAX} bytes")))?;
        if !status.is_success() {
            return Err(RequestError::Status(status.as_u16(), said(&body, secrets)));
        }
        // Errors of the parser have no values of the answer but those of the wrong type.
        serde_json::from_slice(&body).map_err(|error| {
            RequestError::Failed(format!(
                "its answer is not the JSON of its API (line {}, column {})",
                error.line(),
                error.column()
            ))
        })
    }

    async fn send(&self, request: impl Fn() -> HttpRequest + Sync) -> Result<HttpResponse, HttpError> {
        let (started, mut pause) = (Instant::now(), self.retry.backoff.init_backoff);
        for _ in 0..self.retry.max_retries {
            let result = self.client.execute(request()).await;
            if !retries::is_retried(&result) || started.elapsed() + pause > self.retry.retry_timeout {
                return result;
            }
            metrics::storage_retry();
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(self.retry.backoff.max_backoff);
        }
        self.client.execute(request()).await
    }

    /// The error of a request about something, for the operator.
    pub(super) fn error(&self, about: &str, error: RequestError) -> StoreError {
        let Self { shown, variables, .. } = self;
        match error {
            RequestError::Status(NOT_FOUND, said) => {
                StoreError::missing(format!("the catalog {shown} does not have {about}{}", quoted(&said)))
            }
            RequestError::Status(status @ (UNAUTHORIZED | FORBIDDEN | LOGIN_EXPIRED), said) => {
                StoreError::denied(format!(
                    "the catalog {shown} refuses access to {about} (status {status}){}; the server reads its login from its \
                 environment: {variables}",
                    quoted(&said)
                ))
            }
            RequestError::Status(status, said) => StoreError::failed(format!(
                "the catalog {shown} answers a request for {about} with status {status}{}",
                quoted(&said)
            )),
            RequestError::Failed(reason) => StoreError::failed(format!(
                "the catalog {shown} gives no answer about {about}: {reason}; check its address, and the network of the server's machine"
            )),
        }
    }
}

/// The URL of an encoded path below the path of another.
pub(super) fn below(endpoint: &Url, path: &str) -> Url {
    let mut url = endpoint.clone();
    url.set_path(&format!("{}/{path}", endpoint.path().trim_end_matches('/')));
    url
}

/// A text as one segment of a URL.
pub(super) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}

/// A request without a body.
pub(super) fn get(url: &Url, headers: impl IntoIterator<Item = (HeaderName, HeaderValue)>) -> HttpRequest {
    made("GET", url, headers, HttpRequestBody::empty())
}

/// A request with a body of a type.
pub(super) fn post(
    url: &Url,
    content_type: HeaderValue,
    headers: impl IntoIterator<Item = (HeaderName, HeaderValue)>,
    body: String,
) -> HttpRequest {
    made("POST", url, headers.into_iter().chain([(CONTENT_TYPE, content_type)]), body.into())
}

fn made(
    method: &str,
    url: &Url,
    headers: impl IntoIterator<Item = (HeaderName, HeaderValue)>,
    body: HttpRequestBody,
) -> HttpRequest {
    let mut request = HttpRequest::new(body);
    // Both are valid: a method of HTTP, and a URL that was parsed.
    if let (Ok(method), Ok(uri)) = (method.parse(), url.as_str().parse()) {
        *request.method_mut() = method;
        *request.uri_mut() = uri;
    }
    let own: HeaderMap = headers.into_iter().collect();
    request.headers_mut().insert(ACCEPT, JSON);
    request.headers_mut().extend(own);
    request
}

/// What the body of an error says, in the forms that catalogs have, without the secrets that it may repeat.
fn said(body: &[u8], secrets: &[&str]) -> String {
    let Ok(answer) = serde_json::from_slice::<Value>(body) else { return String::new() };
    let inner = answer.get("error").filter(|inner| inner.is_object()).unwrap_or(&answer);
    let text = |names: &[&str]| names.iter().find_map(|name| inner.get(name)?.as_str());
    let message = text(&["message", "Message", "error_description"]);
    let kind = text(&["type", "__type", "error_code", "error"]);
    let said = [kind, message].into_iter().flatten().collect::<Vec<_>>().join(": ");
    // Before it is cut: a part of a secret is one, too.
    let secrets = secrets.iter().filter(|secret| !secret.is_empty());
    let said = secrets.fold(said, |said, secret| said.replace(secret, "…"));
    redact::one_line(&said).chars().take(SAID_CHARACTERS_MAX).collect()
}

fn quoted(said: &str) -> String {
    if said.is_empty() { String::new() } else { format!(": {}", said.trim_end_matches('.')) }
}

/// The first cause of an error, whose text has no URL.
fn cause(error: &HttpError) -> String {
    let first = std::error::Error::source(error);
    let last = iter::successors(first, |&cause| cause.source()).last();
    redact::one_line(&last.map_or_else(|| error.to_string(), ToString::to_string))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_all_catalogs_are_read() {
        for (body, want) in [
            (
                r#"{"error": {"message": "Table does not exist: db.t", "type": "NoSuchTableException", "code": 404}}"#,
                "NoSuchTableException: Table does not exist: db.t",
            ),
            (
                r#"{"__type": "EntityNotFoundException", "Message": "Table t not found."}"#,
                "EntityNotFoundException: Table t not found.",
            ),
            (
                r#"{"error_code": "NOT_FOUND", "message": "Table not found:\n a.b.t"}"#,
                "NOT_FOUND: Table not found: a.b.t",
            ),
            (r#"{"error": "invalid_client", "error_description": "Bad"}"#, "invalid_client: Bad"),
            ("<html>", ""),
            ("[1]", ""),
        ] {
            assert_eq!(said(body.as_bytes(), &[]), want);
        }
        let long = format!("{{\"message\": \"{} secret {0}\"}}", "x".repeat(SAID_CHARACTERS_MAX - 4));
        let shown = said(long.as_bytes(), &["secret", ""]);
        assert_eq!((shown.chars().count(), shown.contains("sec")), (SAID_CHARACTERS_MAX, false));
    }
}
