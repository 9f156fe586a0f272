//! Snapshots: the files of a dataset at one moment, with their footers. Epochs refer to a snapshot by its digest.

use std::{
    borrow::Cow,
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use arrow::{
    array::ArrayRef,
    datatypes::{DataType, Schema, SchemaRef},
};
use forebay_lake::TableState;
use futures::{StreamExt, TryStreamExt};
use object_store::{ObjectMeta, path::Path};
use parquet::{arrow::arrow_reader::ArrowReaderMetadata, schema::types::SchemaDescPtr};

use super::{
    arrow_layout::ArrowLayout,
    deleted_rows::DeletedRows,
    error::CatalogError,
    file_footer::{Footer, wide},
    footer,
    lake::TableVersion,
    leaves::Int96Unit,
    listing::{Listing, relative},
    location::Location,
    partitions::Partitions,
    pinned::is_same,
    row_groups::{self, Deletions, RowGroup},
    store::{Store, is_identified_by_tag},
    table_check::{self, StoredFile},
    union::{FileColumns, Union},
};
use crate::{
    cpu_pool::CpuPool,
    metrics::{self, Cache},
    state::short_digest,
};

/// Footers read concurrently.
const FOOTERS_IN_FLIGHT: usize = 16;

/// The files of a dataset at one moment. Immutable and shared, except for the outdated mark.
#[derive(Debug)]
pub struct Snapshot {
    dataset: String,
    store: Store,
    digest: String,
    schema: SchemaRef,
    wide_schema: SchemaRef,
    files: Vec<Arc<File>>,
    /// Where each file has the columns.
    columns: Vec<Arc<FileColumns>>,
    partitions: Partitions,
    /// Of each column, its index among the partition columns.
    partition_columns: Vec<Option<usize>>,
    adapted_files: usize,
    /// The version of the lake table that has the files.
    table: Option<Arc<TableVersion>>,
    row_groups: Vec<RowGroup>,
    /// Of each row group.
    deleted: Deletions,
    row_counts: Arc<Vec<u64>>,
    row_count: u64,
    byte_count: u64,
    int96: Int96Unit,
    is_outdated: AtomicBool,
}

/// One file, pinned by its size, `ETag` and version (on a local disk: inode, modification and change time, size).
#[derive(Debug)]
pub struct File {
    object: ObjectMeta,
    display: String,
    footer: Footer,
}

/// Opens every file that an earlier snapshot does not have, and unites the schemas of all files.
pub(super) async fn open(
    dataset: &str,
    location: &Location,
    listing: Listing,
    earlier: Option<&Snapshot>,
    cpu: &CpuPool,
) -> Result<Snapshot, CatalogError> {
    let Listing { root, objects, table } = listing;
    let store = location.store().clone();
    let known: HashMap<&Path, &Arc<File>> =
        earlier.iter().flat_map(|snapshot| &snapshot.files).map(|file| (&file.object.location, file)).collect();
    let opened = futures::stream::iter(objects.into_iter().map(|object| {
        let known =
            known.get(&object.location).filter(|file| is_same(&file.object, &object)).map(|file| Arc::clone(file));
        let store = &store;
        metrics::cache_requests(Cache::Footers, known.is_some(), 1);
        async move {
            if let Some(known) = known {
                return Ok(known);
            }
            let display = store.display(&object.location);
            let footer = footer::read(store, dataset, &display, &object, location.int96_unit(), cpu).await?;
            Ok::<_, CatalogError>(Arc::new(File { object, display, footer }))
        }
    }));
    let files: Vec<Arc<File>> = opened.buffered(FOOTERS_IN_FLIGHT).try_collect().await?;
    check_formats(dataset, &files, table.is_some())?;
    if let Some(table) = &table {
        table_check::check_files(dataset, table, files.iter().map(|file| file.stored()))?;
    }
    let named = files.iter().map(|file| file.footer.stored.schema().as_ref());
    let named: Vec<Cow<'_, Schema>> =
        named.map(|stored| table.as_ref().map_or(Cow::Borrowed(stored), |table| table.named(stored))).collect();
    let schemas = files.iter().zip(&named).map(|(file, schema)| (file.display.as_str(), schema.as_ref()));
    let paths = files.iter().map(|file| relative_path(&root, &file.object.location));
    let pinned = table.as_ref().map(|table| &table.schema).or(location.schema());
    let partitions = match &table {
        Some(table) => Partitions::of_table(dataset, table)?,
        None => Partitions::of(dataset, paths, pinned)?,
    };
    let Union { schema, columns, adapted, partitions: partition_columns } =
        Union::of(dataset, schemas, pinned, partitions.fields())?;
    if let Some(table) = &table {
        let found = files.iter().zip(&columns).map(|(file, columns)| (file.display.as_str(), columns));
        table_check::check_columns(dataset, table, found)?;
    }
    let wide_schema = Arc::new(wide(&schema));
    let footers = files.iter().map(|file| (file.display.as_str(), file.footer.stored.metadata().as_ref()));
    let (row_groups, deleted) = row_groups::of_files(dataset, footers, table.as_deref())?;
    let row_count = row_groups.last().map_or(0, |group| group.rows.end);
    let byte_count = files.iter().map(|file| file.object.size).sum();
    let digest = digest(&root, &store, &files, &schema, adapted > 0, table.as_deref());
    let row_counts = Arc::new(row_groups.iter().map(|group| group.rows.end - group.rows.start).collect());
    Ok(Snapshot {
        dataset: dataset.to_owned(),
        store,
        digest,
        schema,
        wide_schema,
        files,
        columns,
        partitions,
        partition_columns,
        adapted_files: adapted,
        table,
        row_groups,
        deleted,
        row_counts,
        row_count,
        byte_count,
        int96: location.int96_unit(),
        is_outdated: AtomicBool::new(false),
    })
}

/// Refuses files of both formats: most often, one of them is a leftover. A lake table has files of Parquet only.
fn check_formats(dataset: &str, files: &[Arc<File>], is_table: bool) -> Result<(), CatalogError> {
    let arrow = files.iter().find(|file| file.arrow().is_some());
    if let Some(file) = arrow.filter(|_| is_table) {
        return Err(CatalogError::Corrupt {
            dataset: dataset.to_owned(),
            file: file.display.clone(),
            reason: "it is an Arrow IPC file, and the files of a lake table must be Parquet".to_owned(),
        });
    }
    let parquet = files.iter().find(|file| file.arrow().is_none());
    let (Some(arrow), Some(parquet)) = (arrow, parquet) else { return Ok(()) };
    let reason = format!(
        "\"{}\" is an Arrow IPC file and \"{}\" is Parquet: name files of one format by a pattern such as *.parquet, or \
         convert the others with `forebay convert`",
        arrow.display, parquet.display
    );
    Err(CatalogError::Empty { dataset: dataset.to_owned(), reason })
}

fn relative_path<'a>(root: &Path, path: &'a Path) -> &'a str {
    relative(root, path).unwrap_or(path.as_ref())
}

/// Digest of the files in order (relative path, size, `ETag`), the rows of their row groups, and the schema.
///
/// Includes the footer of a file whose tag does not identify its bytes. Excludes versions: tickets and cursors keep the
/// digest across restarts, and a file whose permissions changed is still the same.
///
/// Includes the version of a lake table, with its deleted rows and partition values.
fn digest(
    root: &Path,
    store: &Store,
    files: &[Arc<File>],
    schema: &Schema,
    is_adapted: bool,
    table: Option<&TableVersion>,
) -> String {
    let mut manifest = Vec::from(*b"forebay snapshot 1\n");
    if let Some(table) = table {
        manifest.extend(format!("table {}\n", table.digest).bytes());
    }
    for file in files {
        let path = &file.object.location;
        let relative = relative_path(root, path);
        let tag = file.object.e_tag.as_deref().unwrap_or("-");
        manifest.extend(format!("{}\n{}\n{tag}\n", relative, file.object.size).bytes());
        if !is_identified_by_tag(store, &file.object) {
            manifest.extend(format!("{}\n", file.footer.digest).bytes());
        }
        for group in file.footer.stored.metadata().row_groups() {
            manifest.extend(group.num_rows().to_le_bytes());
        }
    }
    if is_adapted {
        // The version of the rule that unites schemas. Files that agree need no rule.
        manifest.extend(*b"union 1\n");
    }
    for field in schema.fields() {
        manifest.extend(format!("{}\n{}\n{}\n", field.name(), field.data_type(), field.is_nullable()).bytes());
    }
    short_digest(&[&manifest])
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

    /// 32 hexadecimal digits that identify this state of the files.
    pub fn digest(&self) -> &str {
        &self.digest
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

    /// The file of a row group.
    pub fn file_of(&self, row_group: &RowGroup) -> &Arc<File> {
        &self.files[row_group.file_index]
    }

    /// Marks the snapshot as outdated, when a reader finds a changed file. Its next use lists the files again.
    pub fn set_outdated(&self) {
        self.is_outdated.store(true, Ordering::Relaxed);
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
        let same = |(file, object): (&Arc<File>, &ObjectMeta)| {
            file.object.location == object.location
                && file.object.size == object.size
                && file.object.e_tag == object.e_tag
                && file.object.version == object.version
                && file.object.last_modified == object.last_modified
        };
        is_same_table && self.files.len() == objects.len() && self.files.iter().zip(objects).all(same)
    }
}

// === impl File ===

impl File {
    /// Path, size and `ETag` in its store.
    pub fn object(&self) -> &ObjectMeta {
        &self.object
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
