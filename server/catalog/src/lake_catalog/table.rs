//! A table in a catalog: where it is, and credentials for its files.

use std::{fmt, sync::Arc};

use super::{
    address::{CatalogAddress, TableKind, TableName},
    glue::GlueCatalog,
    rest::RestCatalog,
    storage_credentials::Handed,
    unity::UnityCatalog,
};
use crate::store::StoreError;

/// A table in a catalog.
#[derive(Clone)]
pub(crate) struct CatalogTable {
    /// For errors.
    address: CatalogAddress,
    catalog: LakeCatalog,
}

/// A catalog, and the table in it.
#[derive(Clone)]
pub(super) enum LakeCatalog {
    Rest(Arc<RestCatalog>, TableName),
    Glue(Arc<GlueCatalog>, TableKind, TableName),
    Unity(Arc<UnityCatalog>, TableName),
}

// === impl CatalogTable ===

impl CatalogTable {
    pub(super) fn new(address: CatalogAddress, catalog: LakeCatalog) -> Self {
        Self { address, catalog }
    }

    /// The URL of the metadata file of an Iceberg table, or of the folder of a Delta table, as it is now.
    pub(crate) async fn look_up(&self) -> Result<String, StoreError> {
        match &self.catalog {
            LakeCatalog::Rest(catalog, table) => catalog.look_up(table).await,
            LakeCatalog::Unity(catalog, table) => catalog.look_up(table).await,
            LakeCatalog::Glue(catalog, kind, table) => catalog.look_up(*kind, table).await,
        }
    }

    /// Credentials for the files of the table.
    pub(super) async fn credentials(&self) -> Result<Handed, StoreError> {
        let handed = match &self.catalog {
            LakeCatalog::Rest(catalog, table) => catalog.credentials(table).await?,
            LakeCatalog::Unity(catalog, table) => catalog.credentials(table).await?,
            LakeCatalog::Glue(..) => None,
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
