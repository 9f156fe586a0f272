//! AWS Glue: the metadata file of an Iceberg table, or the folder of a Delta table, by signed requests.

use std::collections::BTreeMap;

use object_store::{
    RetryConfig,
    aws::{AmazonS3Builder, AmazonS3ConfigKey, AwsAuthorizer, AwsCredential, AwsCredentialProvider},
    client::HttpRequest,
};
use reqwest::header::{HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::json;
use url::Url;

use super::{
    address::{TableKind, TableName},
    login::variable,
    requests::{self, CatalogClient, NOT_FOUND, RequestError},
};
use crate::{network::SameOriginConnector, redact, store::StoreError};

const SERVICE: &str = "glue";
const REGION: &str = "us-east-1";
const CHINA: &str = "cn-";

const TARGET: HeaderName = HeaderName::from_static("x-amz-target");
const GET_TABLE: HeaderValue = HeaderValue::from_static("AWSGlue.GetTable");
const JSON: HeaderValue = HeaderValue::from_static("application/x-amz-json-1.1");

const ENDPOINTS: [&str; 2] = ["AWS_ENDPOINT_URL_GLUE", "AWS_ENDPOINT_URL"];
const VARIABLES: &str = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (with AWS_SESSION_TOKEN for temporary credentials), \
                         AWS_REGION, AWS_ENDPOINT_URL_GLUE";

/// Errors, all of which have status 400.
const NOT_FOUND_TYPE: &str = "EntityNotFoundException";
const DENIED_TYPES: [&str; 8] = [
    "AccessDeniedException",
    "ExpiredTokenException",
    "IncompleteSignature",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "MissingAuthenticationToken",
    "UnrecognizedClientException",
    "SignatureDoesNotMatch",
];

/// The parameters of a table with its format and place.
const TABLE_TYPE: &str = "table_type";
const ICEBERG: &str = "ICEBERG";
const METADATA_LOCATION: &str = "metadata_location";

/// The catalog of an account in a region.
pub(super) struct GlueCatalog {
    endpoint: Url,
    region: String,
    client: CatalogClient,
    credentials: AwsCredentialProvider,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct GlueAnswer {
    table: TableText,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct TableText {
    #[serde(default)]
    parameters: BTreeMap<String, String>,
    #[serde(default)]
    storage_descriptor: Option<StorageText>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct StorageText {
    #[serde(default)]
    location: Option<String>,
}

// === impl GlueCatalog ===

impl GlueCatalog {
    /// The catalog of the environment, with the credentials that `s3://` has.
    pub(super) fn open(retry: &RetryConfig) -> Result<Self, String> {
        let builder = AmazonS3Builder::from_env()
            .with_bucket_name(SERVICE)
            .with_retry(retry.clone())
            .with_http_connector(SameOriginConnector);
        let region = builder.get_config_value(&AmazonS3ConfigKey::Region).unwrap_or_else(|| REGION.to_owned());
        let endpoint = ENDPOINTS.iter().find_map(|name| variable(name)).map_or_else(|| host(&region), Ok)?;
        let endpoint = Url::parse(&endpoint).map_err(|_| format!("{} must be a URL", ENDPOINTS.join(" or ")))?;
        let store = builder.with_allow_http(true).build().map_err(|error| error.to_string())?;
        let credentials = store.credentials().clone();
        Ok(Self { client: CatalogClient::new(&endpoint, VARIABLES, retry)?, endpoint, region, credentials })
    }

    /// The URL of the current metadata file or of the folder of a table.
    pub(super) async fn look_up(&self, kind: TableKind, table: &TableName) -> Result<String, StoreError> {
        let about = format!("the table \"{table}\"");
        let TableText { mut parameters, storage_descriptor } =
            self.get(table).await.map_err(|error| self.client.error(&about, classified(error)))?;
        let is_iceberg = parameters.get(TABLE_TYPE).is_some_and(|kind| kind.eq_ignore_ascii_case(ICEBERG));
        let (found, noun) = match (kind, is_iceberg) {
            (TableKind::Iceberg, true) => (parameters.remove(METADATA_LOCATION), "metadata file"),
            (TableKind::Delta, false) => (storage_descriptor.and_then(|storage| storage.location), "folder"),
            (TableKind::Iceberg, false) => return Err(StoreError::missing(format!("{about} is not an Iceberg table"))),
            (TableKind::Delta, true) => {
                return Err(StoreError::missing(format!("{about} is an Iceberg table: write iceberg+glue://")));
            }
        };
        found
            .filter(|url| !url.is_empty())
            .ok_or_else(|| StoreError::missing(format!("the catalog {} names no {noun} of {about}", self.endpoint)))
    }

    async fn get(&self, table: &TableName) -> Result<TableText, RequestError> {
        let credential = self.credentials.get_credential().await;
        let credential = credential.map_err(|error| RequestError::Failed(redact::sentence(&error)))?;
        let database = table.namespace.join(".");
        let body = json!({"DatabaseName": database, "Name": table.table}).to_string();
        let secrets = [credential.secret_key.as_str(), credential.token.as_deref().unwrap_or_default()];
        let request = || self.signed(&credential, body.clone());
        let GlueAnswer { table } = self.client.answer(&secrets, request).await?;
        Ok(table)
    }

    fn signed(&self, credential: &AwsCredential, body: String) -> HttpRequest {
        let mut request = requests::post(&self.endpoint, JSON, [(TARGET, GET_TABLE)], body);
        AwsAuthorizer::new(credential, SERVICE, &self.region).authorize(&mut request, None);
        request
    }
}

/// Where the catalog of a region is.
fn host(region: &str) -> Result<String, String> {
    if !region.bytes().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == b'-') {
        return Err("AWS_REGION is not the name of a region, such as us-east-1".to_owned());
    }
    let ending = if region.starts_with(CHINA) { ".cn" } else { "" };
    Ok(format!("https://{SERVICE}.{region}.amazonaws.com{ending}"))
}

/// The same error with the status of its type.
fn classified(error: RequestError) -> RequestError {
    match error {
        RequestError::Status(_, said) if said.starts_with(NOT_FOUND_TYPE) => RequestError::Status(NOT_FOUND, said),
        RequestError::Status(_, said) if DENIED_TYPES.iter().any(|kind| said.starts_with(kind)) => {
            RequestError::Status(requests::UNAUTHORIZED, said)
        }
        error => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_have_their_hosts() {
        assert_eq!(host("eu-west-1").unwrap(), "https://glue.eu-west-1.amazonaws.com");
        assert_eq!(host("cn-north-1").unwrap(), "https://glue.cn-north-1.amazonaws.com.cn");
        assert!(host("evil.example/").is_err());
    }

    #[test]
    fn errors_have_the_status_of_their_type() {
        let status = |said: &str| match classified(RequestError::Status(400, said.to_owned())) {
            RequestError::Status(status, _) => status,
            RequestError::Failed(reason) => panic!("{reason}"),
        };
        assert_eq!(status("EntityNotFoundException: Table t not found."), NOT_FOUND);
        assert_eq!(status("AccessDeniedException: no"), requests::UNAUTHORIZED);
        assert_eq!(status("InvalidInputException: no"), 400);
    }
}
