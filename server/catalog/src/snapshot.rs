//! Snapshots: the files of a dataset at one moment, or those of them that a filter keeps, with their footers. Epochs
//! refer to a snapshot by its digest.
//!
//! `opening` reads the footers and unites the schemas. Pages are read by `scan`.

mod numbered;
mod opening;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use arrow::{
    array::ArrayRef,
    datatypes::{DataType, SchemaRef},
};
use forebay_lake::TableState;
use object_store::ObjectMeta;
use parquet::{arrow::arrow_reader::ArrowReaderMetadata, schema::types::SchemaDescPtr};

pub(super) use self::opening::{PinnedFiles, open, open_pinned};
use super::{
    arrow_layout::ArrowLayout,
    deleted_rows::DeletedRows,
    file_footer::Footer,
    found_files::Listing,
    lake::TableVersion,
    leaves::Int96Unit,
    listed::ListedFiles,
    partitions::Partitions,
    pinned::is_same,
    row_groups::{Deletions, RowGroup},
    store::Store,
    table_check::{LogValues, StoredFile},
    union::FileColumns,
};

/// The files of a dataset at one moment. Immutable and shared, except for the outdated mark.
#[derive(Debug)]
pub struct Snapshot {
    dataset: String,
    store: Store,
    digest: String,
    state: String,
    /// The files of the listing.
    listed: Option<Arc<ListedFiles>>,
    schema: SchemaRef,
    wide_schema: SchemaRef,
    files: Vec<Arc<File>>,
    /// Where each file has the columns.
    columns: Vec<Arc<FileColumns>>,
    partitions: Partitions,
    /// The index of each column among the partition columns.
    partition_columns: Vec<Option<usize>>,
    adapted_files: usize,
    /// The values of columns that files of a lake table lack.
    log_values: LogValues,
    /// The version of the lake table that has the files.
    table: Option<Arc<TableVersion>>,
    row_groups: Vec<RowGroup>,
    /// The deleted rows of each row group.
    deleted: Deletions,
    row_counts: Arc<Vec<u64>>,
    row_count: u64,
    byte_count: u64,
    int96: Int96Unit,
    is_outdated: AtomicBool,
    /// The snapshot of all files and the narrowed one, if this one is numbered.
    origins: Option<[Arc<Self>; 2]>,
}

/// One file, pinned by its size, `ETag` and version (on a local disk: inode, modification and change time, size).
#[derive(Debug)]
pub struct File {
    object: ObjectMeta,
    display: String,
    footer: Footer,
}

// === impl Snapshot ===

impl Snapshot {
    /// The name of the dataset.
    pub fn dataset(&self) -> &str {
        &self.dataset
    }

    /// The store of the files.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// 32 hexadecimal digits that identify this state of the files, also in other processes and after a restart. That of a
    /// narrowed snapshot continues with a dash and the number of its files.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Identifies what a reader of this snapshot finds, for the keys of results that are kept: the digest, and the versions of
    /// the files. The version of a local file is its change time, which tells apart two files that no digest does.
    pub fn state(&self) -> &str {
        &self.state
    }

    /// The listing of a snapshot of all files; `None` for one that another process has opened.
    pub fn listed(&self) -> Option<&Arc<ListedFiles>> {
        self.listed.as_ref()
    }

    /// The columns as stored, in the common type of all files.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The columns as plans read them: as stored, but with int32 dictionary keys.
    pub fn wide_schema(&self) -> &SchemaRef {
        &self.wide_schema
    }

    /// The files in path order.
    pub fn files(&self) -> &[Arc<File>] {
        &self.files
    }

    /// The row groups in file order.
    pub fn row_groups(&self) -> &[RowGroup] {
        &self.row_groups
    }

    /// The deleted rows of a row group, by its index; `None` if it has none.
    pub fn deleted_of(&self, row_group: &RowGroup) -> Option<&Arc<DeletedRows>> {
        // Row groups of a file follow each other.
        let index = self.row_groups.partition_point(|other| {
            (other.file_index, other.index_in_file) < (row_group.file_index, row_group.index_in_file)
        });
        self.deleted.get(index)?.as_ref()
    }

    /// Rows of a row group in its file, with the deleted ones.
    pub fn stored_rows(&self, row_group: &RowGroup) -> u64 {
        let group = self.file_of(row_group).footer.stored.metadata().row_group(row_group.index_in_file);
        u64::try_from(group.num_rows()).unwrap_or(0)
    }

    /// The index of a row, by its number in the snapshot, among the rows of its row group in the file.
    pub fn stored_row(&self, row_group: &RowGroup, row: u64) -> u64 {
        let kept = row.saturating_sub(row_group.rows.start);
        self.deleted_of(row_group).map_or(kept, |deleted| deleted.stored_row(kept))
    }

    /// The version of the lake table that has the files; `None` for other files.
    pub fn table_version(&self) -> Option<&str> {
        self.table.as_ref().map(|table| table.version.as_str())
    }

    /// The version of the very table that has the files.
    pub(super) fn table_state(&self) -> Option<&TableState> {
        self.table.as_ref().map(|table| &table.state)
    }

    /// Whether it has the files of this version of a table.
    pub(super) fn is_of_table(&self, table: &TableVersion) -> bool {
        self.table.as_ref().is_some_and(|known| known.digest == table.digest)
    }

    /// The same for errors: `version 12`.
    pub fn table_title(&self) -> Option<&str> {
        self.table.as_ref().map(|table| table.title.as_str())
    }

    /// The type of a column in a file with the nested names of the dataset; `None` if the file has these names.
    pub fn relabelled(&self, column: usize, found: &DataType) -> Option<DataType> {
        self.table.as_ref()?.relabelled(column, found)
    }

    /// Rows of each row group.
    pub fn row_counts(&self) -> &Arc<Vec<u64>> {
        &self.row_counts
    }

    /// Rows of all files.
    pub fn row_count(&self) -> u64 {
        self.row_count
    }

    /// Bytes of all files.
    pub fn byte_count(&self) -> u64 {
        self.byte_count
    }

    /// Compressed bytes of a row in all columns of the files, on average.
    pub fn stored_row_bytes(&self) -> f64 {
        let groups = self.files.iter().flat_map(|file| file.footer.stored.metadata().row_groups());
        groups.map(|group| group.compressed_size() as f64).sum::<f64>() / self.row_count.max(1) as f64
    }

    /// The unit of timestamps stored as INT96.
    pub fn int96_unit(&self) -> Int96Unit {
        self.int96
    }

    /// Files whose columns differ from the dataset's in order, number or type.
    pub fn adapted_files(&self) -> usize {
        self.adapted_files
    }

    /// Where a file, by its index, has the columns.
    pub fn columns_of(&self, file_index: usize) -> &Arc<FileColumns> {
        &self.columns[file_index]
    }

    /// Whether a column has its values from the folders of files.
    pub fn is_partition(&self, column: usize) -> bool {
        self.partition_columns[column].is_some()
    }

    /// The value of each file in a partition column; `None` if it is a column of the files.
    pub fn partition_values(&self, column: usize) -> Option<&ArrayRef> {
        self.partition_columns[column].map(|partition| self.partitions.values(partition))
    }

    /// The value of a column in all rows of a file that does not have it, as an array of one row; `None` is null.
    pub fn missing_value(&self, file_index: usize, column: usize) -> Option<ArrayRef> {
        let value = match self.partition_values(column) {
            Some(values) => Some(values.slice(file_index, 1)),
            None => self.log_values.get(&(file_index, column)).cloned(),
        };
        value.filter(|value| value.is_valid(0))
    }

    /// The file of a row group.
    pub fn file_of(&self, row_group: &RowGroup) -> &Arc<File> {
        &self.files[row_group.file_index]
    }

    /// Marks the snapshot as outdated, when a reader finds a changed file. Its next use lists the files again.
    pub fn set_outdated(&self) {
        self.is_outdated.store(true, Ordering::Relaxed);
        self.origins.iter().flatten().for_each(|origin| origin.set_outdated());
    }

    /// Whether a reader found a changed file since the last listing that matched.
    pub(super) fn is_outdated(&self) -> bool {
        self.is_outdated.load(Ordering::Relaxed)
    }

    /// Clears the outdated mark, after a listing that matches.
    pub(super) fn set_current(&self) {
        self.is_outdated.store(false, Ordering::Relaxed);
    }

    /// Whether a listing has exactly these files.
    pub(super) fn matches(&self, listing: &Listing) -> bool {
        let Listing { objects, table, .. } = listing;
        let is_same_table = match table {
            Some(table) => self.is_of_table(table),
            None => self.table.is_none(),
        };
        let same = |(file, object): (&Arc<File>, &ObjectMeta)| file.object == *object;
        is_same_table && self.files.len() == objects.len() && self.files.iter().zip(objects).all(same)
    }
}

// === impl File ===

impl File {
    /// Path, size and `ETag` in its store.
    pub fn object(&self) -> &ObjectMeta {
        &self.object
    }

    /// Whether two openings found the same state of a file.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        is_same(&self.object, &other.object) && self.footer.digest == other.footer.digest
    }

    /// What its table's log must agree with.
    fn stored(&self) -> StoredFile<'_> {
        let rows = self.footer.stored.metadata().file_metadata().num_rows();
        (&self.display, self.footer.stored.schema(), u64::try_from(rows).unwrap_or(0))
    }

    /// The path or URL to show to users.
    pub fn display(&self) -> &str {
        &self.display
    }

    /// The footer and the schema of the columns as stored.
    pub fn metadata(&self) -> &ArrowReaderMetadata {
        &self.footer.stored
    }

    /// The footer and the schema of the columns as plans read them.
    pub fn wide_metadata(&self) -> &ArrowReaderMetadata {
        &self.footer.wide
    }

    /// The schema as the decoder reads it: intervals as bytes.
    pub fn decoded_schema(&self) -> &SchemaDescPtr {
        &self.footer.decoded
    }

    /// Where an Arrow IPC file has its buffers; `None` for Parquet.
    pub fn arrow(&self) -> Option<&Arc<ArrowLayout>> {
        self.footer.arrow.as_ref()
    }

    /// Whether the parts of intervals are signed.
    pub fn has_signed_intervals(&self) -> bool {
        self.footer.has_signed_intervals
    }
}
