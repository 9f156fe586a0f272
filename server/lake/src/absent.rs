//! The formats that a build does not have. The server refuses their URLs, so that none of these functions is called.

#[cfg(not(feature = "delta"))]
pub mod delta {
    //! Delta tables, in a build without them.

    use crate::{
        error::LakeError,
        store::TableStore,
        table::{TableLog, TableState},
    };

    /// Whether this build reads Delta tables.
    pub const IS_BUILT: bool = false;

    /// Refuses the table.
    #[expect(clippy::unused_async, reason = "reading is asynchronous where it is built")]
    pub async fn read(_: TableStore, _: Option<u64>, _: Vec<TableState>) -> Result<TableLog, LakeError> {
        Err(LakeError::NotBuilt)
    }
}

#[cfg(not(feature = "iceberg"))]
pub mod iceberg {
    //! Iceberg tables, in a build without them.

    use object_store::path::Path;

    use crate::{
        error::LakeError,
        request::IcebergRequest,
        store::TableStore,
        table::{TableLog, TableState},
    };

    /// Whether this build reads Iceberg tables.
    pub const IS_BUILT: bool = false;

    /// Finds no folder.
    pub fn root_of(_: &Path) -> Option<Path> {
        None
    }

    /// Refuses the table.
    #[expect(clippy::unused_async, reason = "reading is asynchronous where it is built")]
    pub async fn read(_: TableStore, _: IcebergRequest<'_>, _: &[TableState]) -> Result<TableLog, LakeError> {
        Err(LakeError::NotBuilt)
    }
}
