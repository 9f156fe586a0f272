//! `s3://bucket` and its like → a client, with the credentials of the server's own environment.
//!
//! What clients of Forebay send never comes here: a bucket, an endpoint and a credential are the operator's words.

use std::{collections::BTreeMap, env, sync::Arc, time::Duration};

use object_store::{
    ClientConfigKey, ClientOptions, ObjectStore, Result, RetryConfig,
    aws::{AmazonS3Builder, AmazonS3ConfigKey},
    azure::{AzureConfigKey, MicrosoftAzureBuilder},
    gcp::{GoogleCloudStorageBuilder, GoogleConfigKey},
    http::HttpBuilder,
};

use super::store::Store;

/// A failed request is tried again for so long, and so often, with growing, jittered pauses. With the 30 s that one
/// try may take at most, a dead store is given up after 60 s; one that refuses connections, after some 5 s.
const RETRY_TIMEOUT: Duration = Duration::from_secs(30);
const RETRIES_MAX: usize = 10;

/// The stores behind a network, one client a bucket.
#[derive(Debug, Default)]
pub struct Stores {
    by_url: BTreeMap<String, Store>,
}

impl Stores {
    /// The store of a scheme and what follows it up to the first slash.
    pub(super) fn of(&mut self, scheme: &str, authority: &str) -> Result<Store, String> {
        let scheme = if scheme == "s3a" { "s3" } else { scheme };
        let url = format!("{scheme}://{authority}/");
        if let Some(known) = self.by_url.get(&url) {
            return Ok(known.clone());
        }
        let (client, credentials) = match scheme {
            "s3" => (s3(authority), CREDENTIALS_S3),
            "gs" => (google(authority), CREDENTIALS_GOOGLE),
            "az" | "abfs" | "abfss" => (azure(&url), CREDENTIALS_AZURE),
            "http" | "https" => (http(&url), ""),
            _ => return Err(format!("{scheme}:// is not read; {ALLOWED}")),
        };
        // The error of a builder names the setting that is missing or wrong.
        let store = Store::remote(client.map_err(|source| source.to_string())?, url.clone(), credentials);
        self.by_url.insert(url, store.clone());
        Ok(store)
    }
}

/// What a dataset's URL may be.
pub(super) const ALLOWED: &str =
    "a path, a glob, file://, s3://bucket/…, gs://bucket/…, az://container/…, abfs(s)://… and http(s)://…/FILE are";

const CREDENTIALS_S3: &str = "; the server reads the store's credentials from its own environment: AWS_ACCESS_KEY_ID and \
     AWS_SECRET_ACCESS_KEY (AWS_SKIP_SIGNATURE=true for a public bucket), AWS_REGION, AWS_ENDPOINT_URL";
const CREDENTIALS_GOOGLE: &str = "; the server reads the store's credentials from its own environment: \
     GOOGLE_SERVICE_ACCOUNT, or GOOGLE_SKIP_SIGNATURE=true for a public bucket";
const CREDENTIALS_AZURE: &str = "; the server reads the store's credentials from its own environment: \
     AZURE_STORAGE_ACCOUNT_NAME with AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_KEY";

fn retry() -> RetryConfig {
    RetryConfig { max_retries: RETRIES_MAX, retry_timeout: RETRY_TIMEOUT, ..RetryConfig::default() }
}

/// An endpoint that the operator writes with `http://` is meant so, unless they say otherwise in the same environment.
fn allows_http(endpoint: Option<String>, switch: &str) -> bool {
    endpoint.is_some_and(|endpoint| endpoint.starts_with("http://")) && env::var_os(switch).is_none()
}

fn s3(bucket: &str) -> Result<Arc<dyn ObjectStore>> {
    let mut builder = AmazonS3Builder::from_env().with_bucket_name(bucket).with_retry(retry());
    let endpoint = [AmazonS3ConfigKey::S3Endpoint, AmazonS3ConfigKey::Endpoint];
    if allows_http(endpoint.iter().find_map(|key| builder.get_config_value(key)), "AWS_ALLOW_HTTP") {
        builder = builder.with_allow_http(true);
    }
    Ok(Arc::new(builder.build()?))
}

fn google(bucket: &str) -> Result<Arc<dyn ObjectStore>> {
    let mut builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(bucket).with_retry(retry());
    if allows_http(builder.get_config_value(&GoogleConfigKey::BaseUrl), "GOOGLE_ALLOW_HTTP") {
        builder = builder.with_config(GoogleConfigKey::Client(ClientConfigKey::AllowHttp), "true");
    }
    Ok(Arc::new(builder.build()?))
}

fn azure(url: &str) -> Result<Arc<dyn ObjectStore>> {
    let mut builder = MicrosoftAzureBuilder::from_env().with_url(url).with_retry(retry());
    if allows_http(builder.get_config_value(&AzureConfigKey::Endpoint), "AZURE_ALLOW_HTTP") {
        builder = builder.with_allow_http(true);
    }
    Ok(Arc::new(builder.build()?))
}

fn http(url: &str) -> Result<Arc<dyn ObjectStore>> {
    let options = ClientOptions::new().with_allow_http(true);
    let builder = HttpBuilder::new().with_url(url).with_client_options(options).with_retry(retry());
    Ok(Arc::new(builder.build()?))
}
