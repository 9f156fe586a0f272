//! A table in a catalog: where it is, and credentials for its files.

use std::{fmt, sync::Arc};

use super::{
    address::CatalogAddress, glue::GlueCatalog, rest::RestCatalog, storage_credentials::Handed, unity::UnityCatalog,
};
use crate::store::StoreError;

/// A table in a catalog.
#[derive(Clone)]
pub(crate) struct CatalogTable {
    address: CatalogAddress,
    catalog: LakeCatalog,
}

/// The catalog of a table.
#[derive(Clone)]
pub(super) enum LakeCatalog {
    Rest(Arc<RestCatalog>),
    Glue(Arc<GlueCatalog>),
    Unity(Arc<UnityCatalog>),
}

// === impl CatalogTable ===

impl CatalogTable {
    pub(super) fn new(address: CatalogAddress, catalog: LakeCatalog) -> Self {
        Self { address, catalog }
    }

    /// The URL of the metadata file of an Iceberg table, or of the folder of a Delta table, as it is now.
    pub(crate) async fn look_up(&self) -> Result<String, StoreError> {
        match (&self.catalog, &self.address) {
            (LakeCatalog::Rest(catalog), CatalogAddress::Rest { table, .. }) => catalog.look_up(table).await,
            (LakeCatalog::Unity(catalog), CatalogAddress::Unity { table, .. }) => catalog.look_up(table).await,
            (LakeCatalog::Glue(catalog), CatalogAddress::Glue { kind, table }) => catalog.look_up(*kind, table).await,
            (_, address) => Err(StoreError::failed(format!("{address} is of another catalog"))),
        }
    }

    /// Credentials for the files of the table.
    pub(super) async fn credentials(&self) -> Result<Handed, StoreError> {
        let handed = match (&self.catalog, &self.address) {
            (LakeCatalog::Rest(catalog), CatalogAddress::Rest { table, .. }) => catalog.credentials(table).await?,
            (LakeCatalog::Unity(catalog), CatalogAddress::Unity { table, .. }) => catalog.credentials(table).await?,
            _ => None,
        };
        handed.ok_or_else(|| {
            StoreError::denied(format!(
                "the catalog hands out no S3 credentials for {self}: leave out ?access-delegation, and set those of the bucket"
            ))
        })
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
