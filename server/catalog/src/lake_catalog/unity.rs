//! Unity Catalog: the folder of a Delta table.

use object_store::RetryConfig;
use reqwest::header::AUTHORIZATION;
use serde::Deserialize;
use url::Url;

use super::{
    address::TableName,
    login::{self, Login},
    requests::{self, CatalogClient, RequestError, below, encoded},
};
use crate::store::StoreError;

/// The variable of its token.
pub(super) const TOKEN: &str = "UNITY_CATALOG_TOKEN";

const TABLES: &str = "api/2.1/unity-catalog/tables";
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

    async fn get(&self, table: &TableName) -> Result<UnityAnswer, RequestError> {
        let token = self.login.current(&self.client, None).await?;
        let authorization = token.as_deref().map(login::bearer).transpose()?;
        let url = below(&self.endpoint, &format!("{TABLES}/{}", encoded(&table.to_string())));
        let secrets: Vec<&str> = token.as_deref().into_iter().collect();
        let request = || requests::get(&url, authorization.clone().map(|value| (AUTHORIZATION, value)));
        self.client.answer(&secrets, request).await
    }
}
