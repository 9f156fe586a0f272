//! Clients of remote stores such as `s3://bucket`, with credentials from the server's environment.
//!
//! Only the operator configures buckets, endpoints and credentials, never a client of Forebay.

use std::{collections::BTreeMap, env, sync::Arc, time::Duration};

use async_trait::async_trait;
use forebay_runtime::metrics;
use object_store::{
    ClientConfigKey, ClientOptions, ObjectStore, Result, RetryConfig,
    aws::{AmazonS3Builder, AmazonS3ConfigKey, AwsCredentialProvider},
    azure::{AzureConfigKey, MicrosoftAzureBuilder},
    client::{HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService},
    gcp::{GoogleCloudStorageBuilder, GoogleConfigKey},
    http::HttpBuilder,
    limit::LimitStore,
};

use super::{
    hub::{self, HubStore},
    lake_catalog::{CatalogAddress, CatalogTable, LakeCatalogs, VendedCredentials},
    network::SameOriginConnector,
    response_check::{self, RequestKind},
    retries,
    store::{Settings, Store},
};

/// The default of concurrent requests to a store.
const REQUESTS_MAX: usize = 256;

const OK: u16 = 200;

/// Remote stores, one client per bucket.
#[derive(Debug)]
pub struct Stores {
    by_url: BTreeMap<String, Store>,
    requests_max: usize,
    retry_timeout: Duration,
    custom: Option<CustomConnector>,
    lake_catalogs: LakeCatalogs,
}

/// A replacement for the network, for requests to buckets.
#[derive(Debug)]
struct CustomConnector {
    connector: Arc<dyn HttpConnector>,
    retry: RetryConfig,
}

impl Default for Stores {
    fn default() -> Self {
        Self::new(REQUESTS_MAX)
    }
}

impl Stores {
    /// No stores yet; each will get at most `requests_max` concurrent requests.
    pub fn new(requests_max: usize) -> Self {
        Self::with_retries_of(requests_max, retries::TIMEOUT)
    }

    /// The same, with another time after which a failed request is not retried again.
    pub(super) fn with_retries_of(requests_max: usize, retry_timeout: Duration) -> Self {
        Self {
            by_url: BTreeMap::new(),
            requests_max,
            retry_timeout,
            custom: None,
            lake_catalogs: LakeCatalogs::default(),
        }
    }

    /// Public S3 buckets over a custom connector and retry configuration, independent of the environment. For
    /// simulations: responses are verified as for other stores.
    pub fn with_connector(connector: Arc<dyn HttpConnector>, retry: RetryConfig) -> Self {
        Self { custom: Some(CustomConnector { connector, retry }), ..Self::default() }
    }

    /// The store of a URL that [`Store::url`] gave.
    pub fn at(&mut self, url: &str) -> Result<Store, String> {
        if url == "/" {
            return Ok(Store::local());
        }
        match url.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.strip_suffix('/')?))) {
            Some((scheme, authority)) => self.of(scheme, authority),
            None => Err(format!("\"{url}\" is not the URL of a store")),
        }
    }

    /// The table of an address in a catalog.
    pub(super) fn table(&mut self, address: CatalogAddress) -> Result<CatalogTable, String> {
        self.lake_catalogs.table(address, &retries::config(self.retry_timeout))
    }

    /// The bucket of a store, with the credentials that the catalog of a table hands out: for this table alone.
    pub(super) fn vended(&self, store: &Store, table: CatalogTable) -> Result<Store, String> {
        let bucket = store.url().strip_prefix("s3://").and_then(|rest| rest.strip_suffix('/'));
        let bucket = bucket.ok_or("catalogs hand out credentials for s3:// only: leave out ?access-delegation")?;
        let credentials = Arc::new(VendedCredentials::new(table));
        let client = s3(bucket, retries::config(self.retry_timeout), Some(credentials));
        let client = LimitStore::new(client.map_err(|source| source.to_string())?, self.requests_max);
        let settings = Settings { credentials: "", ..SETTINGS_S3 };
        Ok(Store::remote(Arc::new(client), store.url().to_owned(), settings))
    }

    /// The store of a scheme and an authority, the part of a URL before the first slash.
    pub(super) fn of(&mut self, scheme: &str, authority: &str) -> Result<Store, String> {
        let scheme = if scheme == "s3a" { "s3" } else { scheme };
        let url = format!("{scheme}://{authority}/");
        if let Some(known) = self.by_url.get(&url) {
            return Ok(known.clone());
        }
        let retry = retries::config(self.retry_timeout);
        let (client, settings) = match scheme {
            "s3" => match &self.custom {
                Some(custom) => (carried(authority, custom), Settings::default()),
                None => (s3(authority, retry, None), SETTINGS_S3),
            },
            "gs" => (google(authority, retry), SETTINGS_GOOGLE),
            "az" | "abfs" | "abfss" => (azure(&url, retry), SETTINGS_AZURE),
            "http" | "https" => (http(&url, retry), Settings::default()),
            "hf" => (hub(authority, retry), SETTINGS_HUB),
            _ => return Err(format!("{scheme}:// is not supported; allowed: {ALLOWED}")),
        };
        // Errors of the builders name the missing or invalid setting.
        let client = Arc::new(LimitStore::new(client.map_err(|source| source.to_string())?, self.requests_max));
        let store = if scheme == "hf" { Store::hub } else { Store::remote };
        let store = store(client, url.clone(), settings);
        self.by_url.insert(url, store.clone());
        Ok(store)
    }
}

/// Splits what follows `SCHEME://` into the part that names a bucket or the dataset of a hub, and the key.
pub(super) fn split<'a>(scheme: &str, rest: &'a str) -> Result<(String, &'a str), String> {
    if scheme == "hf" {
        return hub::split(rest);
    }
    let (authority, key) = rest.split_once('/').unwrap_or((rest, ""));
    Ok((authority.to_owned(), key))
}

/// The supported forms of a dataset URL.
pub(super) const ALLOWED: &str = "a path, a glob, file://, s3://bucket/…, gs://bucket/…, az://container/…, abfs(s)://…, \
     hf://datasets/OWNER/NAME and http(s)://…/FILE";

const SETTINGS_S3: Settings = Settings {
    credentials: "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (with AWS_SESSION_TOKEN for temporary credentials; \
                  AWS_SKIP_SIGNATURE=true for a public bucket), AWS_REGION, AWS_ENDPOINT_URL",
    endpoint: "AWS_ENDPOINT_URL and AWS_REGION",
};
const SETTINGS_GOOGLE: Settings = Settings {
    credentials: "GOOGLE_SERVICE_ACCOUNT, or GOOGLE_SKIP_SIGNATURE=true for a public bucket",
    endpoint: "GOOGLE_BASE_URL",
};
const SETTINGS_AZURE: Settings = Settings {
    credentials: "AZURE_STORAGE_ACCOUNT_NAME with AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_KEY, or \
                  AZURE_SKIP_SIGNATURE=true for a public container",
    endpoint: "AZURE_ENDPOINT and AZURE_STORAGE_ACCOUNT_NAME",
};

const SETTINGS_HUB: Settings = Settings { credentials: hub::VARIABLES, endpoint: hub::ENDPOINT_VARIABLE };

/// Whether to allow an unencrypted endpoint: an explicit `http://` does, unless the switch is set to anything.
fn allows_http(endpoint: Option<String>, switch: &str) -> bool {
    endpoint.is_some_and(|endpoint| endpoint.starts_with("http://")) && env::var_os(switch).is_none()
}

/// Creates HTTP clients that verify responses and count retries.
#[derive(Debug)]
struct CheckedConnector {
    connector: Arc<dyn HttpConnector>,
    server: ServerKind,
}

/// Kinds of servers.
#[derive(Clone, Copy, Debug)]
enum ServerKind {
    /// A store: an unexpected response is retried.
    Store,
    /// A web server, which may not support ranges: `object_store` reports that at once.
    WebServer,
}

#[derive(Debug)]
struct CheckedClient {
    client: HttpClient,
    server: ServerKind,
}

impl CheckedConnector {
    fn over_network(server: ServerKind) -> Self {
        Self { connector: Arc::new(SameOriginConnector), server }
    }
}

impl HttpConnector for CheckedConnector {
    fn connect(&self, options: &ClientOptions) -> Result<HttpClient> {
        Ok(HttpClient::new(CheckedClient { client: self.connector.connect(options)?, server: self.server }))
    }
}

#[async_trait]
impl HttpService for CheckedClient {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let kind = RequestKind::of(&request);
        let result = match self.client.execute(request).await {
            Ok(response) if matches!(self.server, ServerKind::WebServer) && response.status().as_u16() == OK => {
                Ok(response)
            }
            Ok(response) => response_check::checked(kind, response).await,
            Err(error) => Err(error),
        };
        if retries::is_retried(&result) {
            metrics::storage_retry();
        }
        result
    }
}

/// A bucket, with credentials of the environment or others.
fn s3(bucket: &str, retry: RetryConfig, credentials: Option<AwsCredentialProvider>) -> Result<Arc<dyn ObjectStore>> {
    let mut builder = AmazonS3Builder::from_env()
        .with_bucket_name(bucket)
        .with_retry(retry)
        .with_http_connector(CheckedConnector::over_network(ServerKind::Store));
    let endpoint = [AmazonS3ConfigKey::S3Endpoint, AmazonS3ConfigKey::Endpoint];
    if allows_http(endpoint.iter().find_map(|key| builder.get_config_value(key)), "AWS_ALLOW_HTTP") {
        builder = builder.with_allow_http(true);
    }
    if let Some(credentials) = credentials {
        builder = builder.with_credentials(credentials);
    }
    Ok(Arc::new(builder.build()?))
}

fn carried(bucket: &str, custom: &CustomConnector) -> Result<Arc<dyn ObjectStore>> {
    let connector = CheckedConnector { connector: Arc::clone(&custom.connector), server: ServerKind::Store };
    let builder = AmazonS3Builder::new().with_bucket_name(bucket).with_skip_signature(true);
    Ok(Arc::new(builder.with_retry(custom.retry.clone()).with_http_connector(connector).build()?))
}

fn google(bucket: &str, retry: RetryConfig) -> Result<Arc<dyn ObjectStore>> {
    let mut builder = GoogleCloudStorageBuilder::from_env()
        .with_bucket_name(bucket)
        .with_retry(retry)
        .with_http_connector(CheckedConnector::over_network(ServerKind::Store));
    if allows_http(builder.get_config_value(&GoogleConfigKey::BaseUrl), "GOOGLE_ALLOW_HTTP") {
        builder = builder.with_config(GoogleConfigKey::Client(ClientConfigKey::AllowHttp), "true");
    }
    Ok(Arc::new(builder.build()?))
}

fn azure(url: &str, retry: RetryConfig) -> Result<Arc<dyn ObjectStore>> {
    let mut builder = MicrosoftAzureBuilder::from_env()
        .with_url(url)
        .with_retry(retry)
        .with_http_connector(CheckedConnector::over_network(ServerKind::Store));
    if allows_http(builder.get_config_value(&AzureConfigKey::Endpoint), "AZURE_ALLOW_HTTP") {
        builder = builder.with_allow_http(true);
    }
    Ok(Arc::new(builder.build()?))
}

fn http(url: &str, retry: RetryConfig) -> Result<Arc<dyn ObjectStore>> {
    let options = ClientOptions::new().with_allow_http(true);
    let builder = HttpBuilder::new()
        .with_url(url)
        .with_client_options(options)
        .with_retry(retry)
        .with_http_connector(CheckedConnector::over_network(ServerKind::WebServer));
    Ok(Arc::new(builder.build()?))
}

fn hub(authority: &str, retry: RetryConfig) -> Result<Arc<dyn ObjectStore>> {
    let checked = |connector| CheckedConnector { connector, server: ServerKind::WebServer };
    Ok(Arc::new(HubStore::open(authority, retry, checked)?))
}
