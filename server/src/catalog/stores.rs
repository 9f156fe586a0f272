//! `s3://bucket` and its like → a client, with the credentials of the server's own environment.
//!
//! What clients of Forebay send never comes here: a bucket, an endpoint and a credential are the operator's words.

use std::{collections::BTreeMap, env, sync::Arc, time::Duration};

use async_trait::async_trait;
use object_store::{
    BackoffConfig, ClientConfigKey, ClientOptions, ObjectStore, Result, RetryConfig,
    aws::{AmazonS3Builder, AmazonS3ConfigKey},
    azure::{AzureConfigKey, MicrosoftAzureBuilder},
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
    },
    gcp::{GoogleCloudStorageBuilder, GoogleConfigKey},
    http::HttpBuilder,
    limit::LimitStore,
};

use super::{
    response_check::{self, Asked},
    store::Store,
};
use crate::metrics;

/// A failed request is tried again for so long. With the pause that has begun and the 30 s that one try may take at
/// most, a store that does not come back is given up after 65 s; one that refuses connections, after 35 s.
const RETRY_TIMEOUT: Duration = Duration::from_secs(30);

/// Pauses begin with the first and grow to the last: each is drawn between the first and four times the one before. Some
/// 13 of them fill the time; of 50,000 trials the longest took 38.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
const PAUSE_GROWTH: f64 = 4.0;
const RETRIES_MAX: usize = 60;

/// Requests that a store is asked at once, where nobody says otherwise.
const REQUESTS_MAX: usize = 256;

const OK: u16 = 200;

/// The statuses, beside those of 500 and more, of a store that is to be asked again.
const REQUEST_TIMEOUT: u16 = 408;
const TOO_MANY_REQUESTS: u16 = 429;

/// The stores behind a network, one client a bucket.
#[derive(Debug)]
pub struct Stores {
    by_url: BTreeMap<String, Store>,
    requests_max: usize,
    carrier: Option<Carrier>,
}

/// What carries the requests to buckets, in place of this machine's network.
#[derive(Debug)]
struct Carrier {
    connector: Arc<dyn HttpConnector>,
    retry: RetryConfig,
}

impl Default for Stores {
    fn default() -> Self {
        Self::new(REQUESTS_MAX)
    }
}

impl Stores {
    /// None yet; each will be asked so much at once.
    pub fn new(requests_max: usize) -> Self {
        Self { by_url: BTreeMap::new(), requests_max, carrier: None }
    }

    /// Public buckets of S3 whose requests `connector` carries, tried again as `retry` says. For simulations: all the
    /// checks of other stores are held over them, and nothing of the environment counts.
    pub fn carried_by(connector: Arc<dyn HttpConnector>, retry: RetryConfig) -> Self {
        Self { carrier: Some(Carrier { connector, retry }), ..Self::default() }
    }

    /// The store of a scheme and what follows it up to the first slash.
    pub(super) fn of(&mut self, scheme: &str, authority: &str) -> Result<Store, String> {
        let scheme = if scheme == "s3a" { "s3" } else { scheme };
        let url = format!("{scheme}://{authority}/");
        if let Some(known) = self.by_url.get(&url) {
            return Ok(known.clone());
        }
        let (client, credentials) = match scheme {
            "s3" => match &self.carrier {
                Some(carrier) => (carried(authority, carrier), ""),
                None => (s3(authority), CREDENTIALS_S3),
            },
            "gs" => (google(authority), CREDENTIALS_GOOGLE),
            "az" | "abfs" | "abfss" => (azure(&url), CREDENTIALS_AZURE),
            "http" | "https" => (http(&url), ""),
            _ => return Err(format!("{scheme}:// is not read; {ALLOWED}")),
        };
        // The error of a builder names the setting that is missing or wrong.
        let client = Arc::new(LimitStore::new(client.map_err(|source| source.to_string())?, self.requests_max));
        let store = Store::remote(client, url.clone(), credentials);
        self.by_url.insert(url, store.clone());
        Ok(store)
    }
}

/// What a dataset's URL may be.
pub(super) const ALLOWED: &str =
    "a path, a glob, file://, s3://bucket/…, gs://bucket/…, az://container/…, abfs(s)://… and http(s)://…/FILE are";

const CREDENTIALS_S3: &str = "; the server reads the store's credentials from its own environment: AWS_ACCESS_KEY_ID and \
     AWS_SECRET_ACCESS_KEY (with AWS_SESSION_TOKEN where they are lent; AWS_SKIP_SIGNATURE=true for a public bucket), \
     AWS_REGION, AWS_ENDPOINT_URL";
const CREDENTIALS_GOOGLE: &str = "; the server reads the store's credentials from its own environment: \
     GOOGLE_SERVICE_ACCOUNT, or GOOGLE_SKIP_SIGNATURE=true for a public bucket";
const CREDENTIALS_AZURE: &str = "; the server reads the store's credentials from its own environment: \
     AZURE_STORAGE_ACCOUNT_NAME with AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_KEY";

fn retry() -> RetryConfig {
    let backoff = BackoffConfig { init_backoff: PAUSES.0, max_backoff: PAUSES.1, base: PAUSE_GROWTH };
    RetryConfig { backoff, max_retries: RETRIES_MAX, retry_timeout: RETRY_TIMEOUT }
}

/// An endpoint that the operator writes with `http://` is meant so, unless they say otherwise in the same environment.
fn allows_http(endpoint: Option<String>, switch: &str) -> bool {
    endpoint.is_some_and(|endpoint| endpoint.starts_with("http://")) && env::var_os(switch).is_none()
}

/// Makes HTTP clients that hold answers against what was asked, and count the attempts that are made again.
#[derive(Debug)]
struct Checked {
    connector: Arc<dyn HttpConnector>,
    of: Answerer,
}

/// Who answers.
#[derive(Clone, Copy, Debug)]
enum Answerer {
    /// A store: what does not fit is a fault, and tried again.
    Store,
    /// A web server: it may know no ranges, which its store says at once.
    WebServer,
}

#[derive(Debug)]
struct CheckedClient {
    client: HttpClient,
    of: Answerer,
}

impl Checked {
    fn over_network(of: Answerer) -> Self {
        Self { connector: Arc::new(ReqwestConnector::default()), of }
    }
}

impl HttpConnector for Checked {
    fn connect(&self, options: &ClientOptions) -> Result<HttpClient> {
        Ok(HttpClient::new(CheckedClient { client: self.connector.connect(options)?, of: self.of }))
    }
}

#[async_trait]
impl HttpService for CheckedClient {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let asked = Asked::of(&request);
        let answer = match self.client.execute(request).await {
            Ok(response) if matches!(self.of, Answerer::WebServer) && response.status().as_u16() == OK => Ok(response),
            Ok(response) => response_check::checked(asked, response).await,
            Err(error) => Err(error),
        };
        if is_tried_again(&answer) {
            metrics::storage_retry();
        }
        answer
    }
}

/// As the client does it.
fn is_tried_again(answer: &Result<HttpResponse, HttpError>) -> bool {
    match answer {
        Ok(response) => {
            response.status().is_server_error()
                || matches!(response.status().as_u16(), REQUEST_TIMEOUT | TOO_MANY_REQUESTS)
        }
        Err(error) => !matches!(error.kind(), HttpErrorKind::Decode | HttpErrorKind::Unknown),
    }
}

fn s3(bucket: &str) -> Result<Arc<dyn ObjectStore>> {
    let mut builder = AmazonS3Builder::from_env()
        .with_bucket_name(bucket)
        .with_retry(retry())
        .with_http_connector(Checked::over_network(Answerer::Store));
    let endpoint = [AmazonS3ConfigKey::S3Endpoint, AmazonS3ConfigKey::Endpoint];
    if allows_http(endpoint.iter().find_map(|key| builder.get_config_value(key)), "AWS_ALLOW_HTTP") {
        builder = builder.with_allow_http(true);
    }
    Ok(Arc::new(builder.build()?))
}

fn carried(bucket: &str, carrier: &Carrier) -> Result<Arc<dyn ObjectStore>> {
    let connector = Checked { connector: Arc::clone(&carrier.connector), of: Answerer::Store };
    let builder = AmazonS3Builder::new().with_bucket_name(bucket).with_skip_signature(true);
    Ok(Arc::new(builder.with_retry(carrier.retry.clone()).with_http_connector(connector).build()?))
}

fn google(bucket: &str) -> Result<Arc<dyn ObjectStore>> {
    let mut builder = GoogleCloudStorageBuilder::from_env()
        .with_bucket_name(bucket)
        .with_retry(retry())
        .with_http_connector(Checked::over_network(Answerer::Store));
    if allows_http(builder.get_config_value(&GoogleConfigKey::BaseUrl), "GOOGLE_ALLOW_HTTP") {
        builder = builder.with_config(GoogleConfigKey::Client(ClientConfigKey::AllowHttp), "true");
    }
    Ok(Arc::new(builder.build()?))
}

fn azure(url: &str) -> Result<Arc<dyn ObjectStore>> {
    let mut builder = MicrosoftAzureBuilder::from_env()
        .with_url(url)
        .with_retry(retry())
        .with_http_connector(Checked::over_network(Answerer::Store));
    if allows_http(builder.get_config_value(&AzureConfigKey::Endpoint), "AZURE_ALLOW_HTTP") {
        builder = builder.with_allow_http(true);
    }
    Ok(Arc::new(builder.build()?))
}

fn http(url: &str) -> Result<Arc<dyn ObjectStore>> {
    let options = ClientOptions::new().with_allow_http(true);
    let builder = HttpBuilder::new()
        .with_url(url)
        .with_client_options(options)
        .with_retry(retry())
        .with_http_connector(Checked::over_network(Answerer::WebServer));
    Ok(Arc::new(builder.build()?))
}
