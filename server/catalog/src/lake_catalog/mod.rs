//! Catalogs of lake tables: services that know by the name of a table where it is now.
//!
//! A catalog says where the table is, and may hand out credentials for its bucket. Files are read only in folders that the
//! operator names.

mod address;
mod glue;
mod login;
mod renewal;
mod requests;
mod rest;
mod storage_credentials;
mod table;
mod unity;
mod vended;

use std::{collections::BTreeMap, fmt, sync::Arc};

use object_store::RetryConfig;

pub(super) use self::{
    address::{CatalogAddress, TableKind, is_address},
    table::CatalogTable,
    vended::VendedCredentials,
};
use self::{glue::GlueCatalog, rest::RestCatalog, table::LakeCatalog, unity::UnityCatalog};

/// The catalogs of a server's datasets: tables of one share its login.
#[derive(Default)]
pub(super) struct LakeCatalogs {
    rest: BTreeMap<(String, Option<String>), Arc<RestCatalog>>,
    unity: BTreeMap<String, Arc<UnityCatalog>>,
    glue: Option<Arc<GlueCatalog>>,
}

// === impl LakeCatalogs ===

impl LakeCatalogs {
    /// The table of an address, with the login of the environment.
    pub(super) fn table(&mut self, address: CatalogAddress, retry: &RetryConfig) -> Result<CatalogTable, String> {
        let catalog = match &address {
            CatalogAddress::Rest { endpoint, warehouse, table, .. } => {
                let key = (endpoint.to_string(), warehouse.clone());
                let catalog = match self.rest.get(&key) {
                    Some(known) => Arc::clone(known),
                    None => Arc::new(RestCatalog::open(endpoint.clone(), warehouse.clone(), retry)?),
                };
                let others = self.rest.values().map(|known| known.endpoint());
                if catalog.has_login() {
                    login::check_one("ICEBERG_REST_TOKEN or ICEBERG_REST_CREDENTIAL", endpoint, others)?;
                }
                LakeCatalog::Rest(Arc::clone(self.rest.entry(key).or_insert(catalog)), table.clone())
            }
            CatalogAddress::Unity { endpoint, table, .. } => {
                let key = endpoint.to_string();
                let catalog = match self.unity.get(&key) {
                    Some(known) => Arc::clone(known),
                    None => Arc::new(UnityCatalog::open(endpoint.clone(), retry)?),
                };
                if catalog.has_login() {
                    let others = self.unity.values().map(|known| known.endpoint());
                    login::check_one(unity::TOKEN, endpoint, others)?;
                }
                LakeCatalog::Unity(Arc::clone(self.unity.entry(key).or_insert(catalog)), table.clone())
            }
            CatalogAddress::Glue { kind, table } => {
                let known = match &self.glue {
                    Some(known) => Arc::clone(known),
                    None => Arc::new(GlueCatalog::open(retry)?),
                };
                LakeCatalog::Glue(Arc::clone(self.glue.insert(known)), *kind, table.clone())
            }
        };
        Ok(CatalogTable::new(address, catalog))
    }
}

impl fmt::Debug for LakeCatalogs {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("LakeCatalogs").finish_non_exhaustive()
    }
}
