//! Unity Catalog: the folder of a Delta table.

use object_store::{RetryConfig, aws::AwsCredential, client::HttpRequest};
use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::json;
use url::Url;

use super::{
    address::TableName,
    login::{self, Login},
    requests::{self, CatalogClient, RequestError, below, encoded},
    storage_credentials::{Handed, instant},
};
use crate::store::StoreError;

/// The variable of its token.
pub(super) const TOKEN: &str = "UNITY_CATALOG_TOKEN";

const TABLES: &str = "api/2.1/unity-catalog/tables";
const CREDENTIALS: &str = "api/2.1/unity-catalog/temporary-table-credentials";
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const DELTA: &str = "DELTA";

/// A server of Unity Catalog.
pub(super) struct UnityCatalog {
    endpoint: Url,
    client: CatalogClient,
    login: Login,
}

#[derive(Deserialize)]
struct UnityAnswer {
    #[serde(default)]
    data_source_format: Option<String>,
    #[serde(default)]
    storage_location: Option<String>,
    #[serde(default)]
    table_id: Option<String>,
}

#[derive(Deserialize)]
struct CredentialsAnswer {
    #[serde(default)]
    aws_temp_credentials: Option<AwsText>,
    /// In milliseconds since 1970.
    #[serde(default)]
    expiration_time: Option<u64>,
}

#[derive(Deserialize)]
struct AwsText {
    access_key_id: String,
    secret_access_key: String,
    #[serde(default)]
    session_token: Option<String>,
}

// === impl UnityCatalog ===

impl UnityCatalog {
    pub(super) fn open(endpoint: Url, retry: &RetryConfig) -> Result<Self, String> {
        let client = CatalogClient::new(&endpoint, TOKEN, retry)?;
        Ok(Self { endpoint, client, login: Login::token(TOKEN) })
    }

    pub(super) fn endpoint(&self) -> &Url {
        &self.endpoint
    }

    pub(super) fn has_login(&self) -> bool {
        !self.login.is_open()
    }

    /// The URL of the folder of a table.
    pub(super) async fn look_up(&self, table: &TableName) -> Result<String, StoreError> {
        let about = format!("the table \"{table}\"");
        let found = self.get(table).await.map_err(|error| self.client.error(&about, error))?;
        let format = found.data_source_format.unwrap_or_default();
        if !format.eq_ignore_ascii_case(DELTA) {
            return Err(StoreError::missing(format!(
                "{about} has the format \"{format}\"; only Delta tables are read"
            )));
        }
        let location = found.storage_location.filter(|location| !location.is_empty());
        location.ok_or_else(|| StoreError::missing(format!("the catalog {} names no folder of {about}", self.endpoint)))
    }

    /// Credentials for the files of a table; `None` if the catalog hands out none.
    pub(super) async fn credentials(&self, table: &TableName) -> Result<Option<Handed>, StoreError> {
        let found = self.hand_out(table).await;
        let found =
            found.map_err(|error| self.client.error(&format!("credentials for the table \"{table}\""), error))?;
        let ends = found.expiration_time.and_then(instant);
        Ok(found.aws_temp_credentials.map(
            |AwsText { access_key_id: key_id, secret_access_key: secret_key, session_token }| {
                let token = session_token.filter(|token| !token.is_empty());
                Handed { credential: AwsCredential { key_id, secret_key, token }, ends }
            },
        ))
    }

    async fn hand_out(&self, table: &TableName) -> Result<CredentialsAnswer, RequestError> {
        let id = self.get(table).await?.table_id.unwrap_or_default();
        let url = below(&self.endpoint, CREDENTIALS);
        let body = json!({"table_id": id, "operation": "READ"}).to_string();
        self.answer(|authorization| requests::post(&url, JSON, authorization, body.clone())).await
    }

    async fn get(&self, table: &TableName) -> Result<UnityAnswer, RequestError> {
        let url = below(&self.endpoint, &format!("{TABLES}/{}", encoded(&table.to_string())));
        self.answer(|authorization| requests::get(&url, authorization)).await
    }

    /// The answer to a request, which gets the header of the login.
    async fn answer<T: DeserializeOwned>(
        &self,
        request: impl Fn(Option<(HeaderName, HeaderValue)>) -> HttpRequest + Sync,
    ) -> Result<T, RequestError> {
        let token = self.login.current(&self.client, None).await?;
        let authorization = token.as_deref().map(login::bearer).transpose()?.map(|value| (AUTHORIZATION, value));
        let secrets: Vec<&str> = token.as_deref().into_iter().collect();
        self.client.answer(&secrets, || request(authorization.clone())).await
    }
}
