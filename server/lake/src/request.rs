//! What to read of an Iceberg table.

use object_store::path::Path;

/// What to read of an Iceberg table.
#[derive(Clone, Copy, Debug)]
pub struct IcebergRequest<'a> {
    /// The metadata file; none: the current one of the folder of the table.
    pub metadata: Option<&'a Path>,
    /// The snapshot; none: the current one.
    pub snapshot: Option<i64>,
}
