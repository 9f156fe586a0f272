//! Catalogs with the REST API of Iceberg: the configuration of a warehouse, then a table of it.

use std::collections::BTreeMap;

use object_store::RetryConfig;
use percent_encoding::percent_decode_str;
use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue};
use serde::{Deserialize, de::DeserializeOwned};
use tokio::sync::OnceCell;
use url::Url;

use super::{
    address::TableName,
    login::{self, Login},
    requests::{self, CatalogClient, LOGIN_EXPIRED, RequestError, UNAUTHORIZED, below, encoded},
    storage_credentials::{Handed, StorageCredentials},
};
use crate::store::StoreError;

/// Between the levels of a namespace, unless the catalog names another separator.
const LEVEL_END: &str = "\u{1f}";

const VARIABLES: &str = "ICEBERG_REST_TOKEN, or ICEBERG_REST_CREDENTIAL (client_id:client_secret, with \
                         ICEBERG_REST_OAUTH2_SERVER_URI and ICEBERG_REST_SCOPE)";

/// In a request: that the answer shall have credentials.
const ACCESS_DELEGATION: HeaderName = HeaderName::from_static("x-iceberg-access-delegation");
const VENDED: HeaderValue = HeaderValue::from_static("vended-credentials");

/// What a catalog is to hand out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Delegation {
    None,
    Vended,
}

/// A warehouse of a catalog.
pub(super) struct RestCatalog {
    endpoint: Url,
    warehouse: Option<String>,
    client: CatalogClient,
    login: Login,
    /// How its tables are named, once the catalog has said so.
    paths: OnceCell<TablePaths>,
}

#[derive(Deserialize)]
struct ConfigAnswer {
    #[serde(default)]
    defaults: Properties,
    #[serde(default)]
    overrides: Properties,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Properties {
    #[serde(default)]
    prefix: Option<String>,
    /// Percent-encoded.
    #[serde(default)]
    namespace_separator: Option<String>,
}

/// The paths of tables.
#[derive(Debug, PartialEq, Eq)]
struct TablePaths {
    /// With a slash before it, unless it is empty.
    prefix: String,
    separator: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct LoadAnswer {
    #[serde(default)]
    metadata_location: Option<String>,
    #[serde(default)]
    config: BTreeMap<String, String>,
    #[serde(default)]
    storage_credentials: Vec<StorageCredentials>,
}

// === impl RestCatalog ===

impl RestCatalog {
    pub(super) fn open(endpoint: Url, warehouse: Option<String>, retry: &RetryConfig) -> Result<Self, String> {
        let client = CatalogClient::new(&endpoint, VARIABLES, retry)?;
        let login = Login::of_rest(&endpoint)?;
        Ok(Self { endpoint, warehouse, client, login, paths: OnceCell::new() })
    }

    pub(super) fn endpoint(&self) -> &Url {
        &self.endpoint
    }

    pub(super) fn has_login(&self) -> bool {
        !self.login.is_open()
    }

    /// The URL of the current metadata file of a table.
    pub(super) async fn look_up(&self, table: &TableName) -> Result<String, StoreError> {
        let found = self.load(table, Delegation::None).await?;
        found.metadata_location.filter(|location| !location.is_empty()).ok_or_else(|| {
            StoreError::missing(format!(
                "the catalog {} names no metadata file of the table \"{table}\"",
                self.endpoint
            ))
        })
    }

    /// Credentials for the files of a table; `None` if the catalog hands out none.
    pub(super) async fn credentials(&self, table: &TableName) -> Result<Option<Handed>, StoreError> {
        let LoadAnswer { metadata_location, config, storage_credentials } =
            self.load(table, Delegation::Vended).await?;
        let of_file = StorageCredentials::of(&metadata_location.unwrap_or_default(), storage_credentials);
        Ok(Handed::of_properties(of_file.map_or(config, |known| known.config)))
    }

    async fn load(&self, table: &TableName, delegation: Delegation) -> Result<LoadAnswer, StoreError> {
        let about = match &self.warehouse {
            None => "its configuration".to_owned(),
            Some(warehouse) => format!("the warehouse \"{warehouse}\""),
        };
        let paths = self.paths.get_or_try_init(|| self.config()).await;
        let paths = paths.map_err(|error| self.client.error(&about, error))?;
        let found = self.get(&self.table_url(paths, table), delegation).await;
        found.map_err(|error| self.client.error(&format!("the table \"{table}\""), error))
    }

    /// How the tables of the warehouse are named.
    async fn config(&self) -> Result<TablePaths, RequestError> {
        let mut url = below(&self.endpoint, "v1/config");
        if let Some(warehouse) = &self.warehouse {
            url.query_pairs_mut().append_pair("warehouse", warehouse);
        }
        Ok(TablePaths::of(self.get(&url, Delegation::None).await?))
    }

    fn table_url(
        &self,
        TablePaths { prefix, separator }: &TablePaths,
        TableName { namespace, table }: &TableName,
    ) -> Url {
        let namespace = encoded(&namespace.join(separator));
        let path = format!("v1{prefix}/namespaces/{namespace}/tables/{}", encoded(table));
        let mut url = below(&self.endpoint, &path);
        // Of the snapshots, only those with names: the metadata file has all.
        url.query_pairs_mut().append_pair("snapshots", "refs");
        url
    }

    /// An answer of the catalog, after another login if the last one has expired.
    async fn get<T: DeserializeOwned>(&self, url: &Url, delegation: Delegation) -> Result<T, RequestError> {
        let token = self.login.current(&self.client, None).await?;
        match self.get_as(url, delegation, token.as_deref()).await {
            Err(RequestError::Status(UNAUTHORIZED | LOGIN_EXPIRED, _)) if self.login.is_renewed() => {
                let token = self.login.current(&self.client, token.as_deref()).await?;
                self.get_as(url, delegation, token.as_deref()).await
            }
            answer => answer,
        }
    }

    async fn get_as<T: DeserializeOwned>(
        &self,
        url: &Url,
        delegation: Delegation,
        token: Option<&str>,
    ) -> Result<T, RequestError> {
        let authorization = token.map(login::bearer).transpose()?;
        let secrets: Vec<&str> = token.into_iter().collect();
        let delegation = (delegation == Delegation::Vended).then_some((ACCESS_DELEGATION, VENDED));
        let authorization = authorization.map(|value| (AUTHORIZATION, value));
        let request = || requests::get(url, authorization.clone().into_iter().chain(delegation.clone()));
        self.client.answer(&secrets, request).await
    }
}

// === impl TablePaths ===

impl TablePaths {
    fn of(ConfigAnswer { defaults, overrides }: ConfigAnswer) -> Self {
        // As it is: several segments, and encoded where it must be.
        let prefix = overrides.prefix.or(defaults.prefix).unwrap_or_default();
        let prefix = match prefix.trim_matches('/') {
            "" => String::new(),
            prefix => format!("/{prefix}"),
        };
        let separator = overrides.namespace_separator.or(defaults.namespace_separator);
        let separator = separator.map(|text| percent_decode_str(&text).decode_utf8_lossy().into_owned());
        Self { prefix, separator: separator.unwrap_or_else(|| LEVEL_END.to_owned()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalog_says_how_tables_are_named() {
        for (config, path) in [
            ("{}", "/api/v1/namespaces/a%1Fb%20c/tables/t?snapshots=refs"),
            (
                r#"{"defaults": {"prefix": "x"}, "overrides": {"prefix": "/ws/cat%20x/"}}"#,
                "/api/v1/ws/cat%20x/namespaces/a%1Fb%20c/tables/t?snapshots=refs",
            ),
            (
                r#"{"defaults": {"namespace-separator": "%2E", "other": "x"}, "endpoints": []}"#,
                "/api/v1/namespaces/a.b%20c/tables/t?snapshots=refs",
            ),
        ] {
            let endpoint = Url::parse("https://c.example/api").unwrap();
            let catalog = RestCatalog::open(endpoint, None, &crate::retries::config(crate::retries::TIMEOUT)).unwrap();
            let paths = TablePaths::of(serde_json::from_str(config).unwrap());
            let table = TableName { namespace: vec!["a".to_owned(), "b c".to_owned()], table: "t".to_owned() };
            assert_eq!(catalog.table_url(&paths, &table).as_str(), format!("https://c.example{path}"));
        }
    }
}
