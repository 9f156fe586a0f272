//! Catalogs of lake tables: services that know by the name of a table where it is now.
//!
//! A catalog says where the table is, and nothing more: its files are read with the credentials of other datasets, and only in
//! folders that the operator names.

mod address;
mod glue;
mod login;
mod requests;
mod rest;
mod unity;

use std::{collections::BTreeMap, fmt, sync::Arc};

use object_store::RetryConfig;

pub(super) use self::address::{CatalogAddress, TableKind, is_address};
use self::{glue::GlueCatalog, rest::RestCatalog, unity::UnityCatalog};
use crate::store::StoreError;

/// A table in a catalog.
#[derive(Clone)]
pub(super) struct CatalogTable {
    address: CatalogAddress,
    catalog: LakeCatalog,
}

#[derive(Clone)]
enum LakeCatalog {
    Rest(Arc<RestCatalog>),
    Glue(Arc<GlueCatalog>),
    Unity(Arc<UnityCatalog>),
}

/// The catalogs of a server's datasets: tables of one share its login.
#[derive(Default)]
pub(super) struct LakeCatalogs {
    rest: BTreeMap<(String, Option<String>), Arc<RestCatalog>>,
    unity: BTreeMap<String, Arc<UnityCatalog>>,
    glue: Option<Arc<GlueCatalog>>,
}

// === impl CatalogTable ===

impl CatalogTable {
    /// The URL of the metadata file of an Iceberg table, or of the folder of a Delta table, as it is now.
    pub(super) async fn look_up(&self) -> Result<String, StoreError> {
        match (&self.catalog, &self.address) {
            (LakeCatalog::Rest(catalog), CatalogAddress::Rest { table, .. }) => catalog.look_up(table).await,
            (LakeCatalog::Unity(catalog), CatalogAddress::Unity { table, .. }) => catalog.look_up(table).await,
            (LakeCatalog::Glue(catalog), CatalogAddress::Glue { kind, table }) => catalog.look_up(*kind, table).await,
            (_, address) => Err(StoreError::failed(format!("{address} is of another catalog"))),
        }
    }
}

impl fmt::Display for CatalogTable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(formatter)
    }
}

impl fmt::Debug for CatalogTable {
    /// Omits the client, which has the login.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("CatalogTable").field(&self.address).finish()
    }
}

// === impl LakeCatalogs ===

impl LakeCatalogs {
    /// The table of an address, with the login of the environment.
    pub(super) fn table(&mut self, address: CatalogAddress, retry: &RetryConfig) -> Result<CatalogTable, String> {
        let catalog = match &address {
            CatalogAddress::Rest { endpoint, warehouse, .. } => {
                let key = (endpoint.to_string(), warehouse.clone());
                let catalog = match self.rest.get(&key) {
                    Some(known) => Arc::clone(known),
                    None => Arc::new(RestCatalog::open(endpoint.clone(), warehouse.clone(), retry)?),
                };
                let others = self.rest.values().map(|known| known.endpoint());
                if catalog.has_login() {
                    login::check_one("ICEBERG_REST_TOKEN or ICEBERG_REST_CREDENTIAL", endpoint, others)?;
                }
                LakeCatalog::Rest(Arc::clone(self.rest.entry(key).or_insert(catalog)))
            }
            CatalogAddress::Unity { endpoint, .. } => {
                let key = endpoint.to_string();
                let catalog = match self.unity.get(&key) {
                    Some(known) => Arc::clone(known),
                    None => Arc::new(UnityCatalog::open(endpoint.clone(), retry)?),
                };
                if catalog.has_login() {
                    let others = self.unity.values().map(|known| known.endpoint());
                    login::check_one(unity::TOKEN, endpoint, others)?;
                }
                LakeCatalog::Unity(Arc::clone(self.unity.entry(key).or_insert(catalog)))
            }
            CatalogAddress::Glue { .. } => {
                let known = match &self.glue {
                    Some(known) => Arc::clone(known),
                    None => Arc::new(GlueCatalog::open(retry)?),
                };
                LakeCatalog::Glue(Arc::clone(self.glue.insert(known)))
            }
        };
        Ok(CatalogTable { address, catalog })
    }
}

impl fmt::Debug for LakeCatalogs {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("LakeCatalogs").finish_non_exhaustive()
    }
}
