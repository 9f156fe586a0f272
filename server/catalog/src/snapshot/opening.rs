//! Opens listed files: reads the footers that no earlier snapshot has, and unites the schemas.

use std::{
    borrow::Cow,
    collections::HashMap,
    sync::{Arc, atomic::AtomicBool},
};

use arrow::{
    array::RecordBatch,
    datatypes::{Field, Schema, SchemaRef},
};
use forebay_runtime::{
    cpu_pool::CpuPool,
    metrics::{self, Cache},
    state::short_digest,
};
use futures::{StreamExt, TryStreamExt};
use object_store::{ObjectMeta, path::Path};

use super::{File, Snapshot};
use crate::{
    error::CatalogError,
    file_footer::wide,
    footer,
    lake::TableVersion,
    leaves::Int96Unit,
    listed::ListedFiles,
    partitions::Partitions,
    pinned::is_same,
    pinned_schema::PinnedSchema,
    row_groups,
    store::{Store, is_identified_by_tag},
    table_check::{self, LogValues},
    union::Union,
};

/// Footers read concurrently.
const FOOTERS_IN_FLIGHT: usize = 16;

/// The files of a snapshot that another process has opened, and what they have in common.
#[derive(Debug)]
pub(crate) struct PinnedFiles {
    pub dataset: String,
    pub store: Store,
    pub digest: String,
    pub schema: SchemaRef,
    /// The partition columns, with a row for each file.
    pub partitions: RecordBatch,
    pub objects: Vec<ObjectMeta>,
    pub int96: Int96Unit,
}

/// The parts of a snapshot whose files are open.
struct Parts<'a> {
    dataset: &'a str,
    store: Store,
    int96: Int96Unit,
    listed: Option<Arc<ListedFiles>>,
    digest: String,
    files: Vec<Arc<File>>,
    union: Union,
    partitions: Partitions,
    log_values: LogValues,
    table: Option<Arc<TableVersion>>,
}

/// Opens every file that no earlier snapshot has, and unites the schemas of all files.
pub(crate) async fn open(
    dataset: &str,
    listed: &Arc<ListedFiles>,
    earlier: &[Arc<Snapshot>],
    cpu: &CpuPool,
) -> Result<Snapshot, CatalogError> {
    let location = &listed.location;
    let (store, int96) = (location.store().clone(), location.int96_unit());
    let files = with_footers(dataset, (&store, int96), &listed.listing.objects, earlier, cpu).await?;
    let partitions = listed.partitions.clone();
    let table = listed.listing.table.clone();
    let (union, log_values) = match &table {
        Some(table) => union_of_table(dataset, table, &files, partitions.fields())?,
        None => (union_of_files(dataset, location.schema(), &files, partitions.fields())?, LogValues::new()),
    };
    let digest = digest(listed, &store, &files, &union.schema, union.adapted > 0);
    let listed = (!listed.is_narrowed).then(|| Arc::clone(listed));
    of_files(Parts { dataset, store, int96, listed, digest, files, union, partitions, log_values, table })
}

/// Opens the files of another process's snapshot.
pub(crate) async fn open_pinned(pinned: PinnedFiles, cpu: &CpuPool) -> Result<Snapshot, CatalogError> {
    let PinnedFiles { dataset, store, digest, schema, partitions, objects, int96 } = pinned;
    let files = with_footers(&dataset, (&store, int96), &objects, &[], cpu).await?;
    let partitions = Partitions::of_values(&partitions);
    let pinned = PinnedSchema::of_snapshot(schema);
    let union = union_of_files(&dataset, Some(&pinned), &files, partitions.fields())?;
    let (dataset, log_values) = (&dataset, LogValues::new());
    of_files(Parts { dataset, store, int96, listed: None, digest, files, union, partitions, log_values, table: None })
}

/// Numbers the row groups of opened files.
fn of_files(parts: Parts<'_>) -> Result<Snapshot, CatalogError> {
    let Parts { dataset, store, int96, listed, digest, files, union, partitions, log_values, table } = parts;
    let Union { schema, columns, adapted, partitions: partition_columns } = union;
    let wide_schema = Arc::new(wide(&schema));
    let footers = files.iter().map(|file| (file.display.as_str(), file.footer.stored.metadata().as_ref()));
    let (row_groups, deleted) = row_groups::of_files(dataset, footers, table.as_deref())?;
    let row_count = row_groups.last().map_or(0, |group| group.rows.end);
    let byte_count = files.iter().map(|file| file.object.size).sum();
    let row_counts = Arc::new(row_groups.iter().map(|group| group.rows.end - group.rows.start).collect());
    Ok(Snapshot {
        dataset: dataset.to_owned(),
        store,
        state: state(&digest, &files),
        listed,
        digest,
        schema,
        wide_schema,
        files,
        columns,
        partitions,
        partition_columns,
        adapted_files: adapted,
        log_values,
        table,
        row_groups,
        deleted,
        row_counts,
        row_count,
        byte_count,
        int96,
        is_outdated: AtomicBool::new(false),
        origins: None,
    })
}

/// The digest with the versions of files.
fn state(digest: &str, files: &[Arc<File>]) -> String {
    let versions = files.iter().flat_map(|file| [file.object.version.as_deref().unwrap_or("-").as_bytes(), b"\n"]);
    short_digest(&[digest.as_bytes(), b"\n"].into_iter().chain(versions).collect::<Vec<_>>())
}

/// The objects with their footers, which are read unless earlier snapshots have them.
async fn with_footers(
    dataset: &str,
    (store, int96): (&Store, Int96Unit),
    objects: &[ObjectMeta],
    earlier: &[Arc<Snapshot>],
    cpu: &CpuPool,
) -> Result<Vec<Arc<File>>, CatalogError> {
    let known = known_files(objects, earlier);
    let opened = futures::stream::iter(objects.iter().cloned().zip(known).map(|(object, known)| {
        metrics::cache_requests(Cache::Footers, known.is_some(), 1);
        async move {
            if let Some(known) = known {
                return Ok(known);
            }
            let display = store.display(&object.location);
            let footer = footer::read(store, dataset, &display, &object, int96, cpu).await?;
            Ok::<_, CatalogError>(Arc::new(File { object, display, footer }))
        }
    }));
    opened.buffered(FOOTERS_IN_FLIGHT).try_collect().await
}

/// The file of an earlier snapshot that is still the same, for each object.
fn known_files(objects: &[ObjectMeta], earlier: &[Arc<Snapshot>]) -> Vec<Option<Arc<File>>> {
    let mut known = vec![None; objects.len()];
    let places = objects.iter().enumerate().map(|(place, object)| (&object.location, place));
    let mut missing: HashMap<&Path, usize> = places.collect();
    for file in earlier.iter().flat_map(|snapshot| &snapshot.files) {
        if missing.is_empty() {
            break;
        }
        let place = missing.get(&file.object.location).copied();
        if let Some(place) = place.filter(|place| is_same(&file.object, &objects[*place])) {
            missing.remove(&file.object.location);
            known[place] = Some(Arc::clone(file));
        }
    }
    known
}

/// The columns of files that no log describes.
fn union_of_files(
    dataset: &str,
    pinned: Option<&PinnedSchema>,
    files: &[Arc<File>],
    partitions: &[Field],
) -> Result<Union, CatalogError> {
    check_formats(dataset, files)?;
    let schemas = files.iter().map(|file| (file.display.as_str(), file.footer.stored.schema().as_ref()));
    Union::of(dataset, schemas, pinned, partitions)
}

/// The columns of a lake table, whose files must be as its log says, and the values of those that files lack.
fn union_of_table(
    dataset: &str,
    table: &TableVersion,
    files: &[Arc<File>],
    partitions: &[Field],
) -> Result<(Union, LogValues), CatalogError> {
    if let Some(file) = files.iter().find(|file| file.arrow().is_some()) {
        return Err(CatalogError::Corrupt {
            dataset: dataset.to_owned(),
            file: file.display.clone(),
            reason: "it is an Arrow IPC file, and the files of a lake table must be Parquet".to_owned(),
        });
    }
    table_check::check_files(dataset, table, files.iter().map(|file| file.stored()))?;
    let named = files.iter().map(|file| table.named(file.footer.stored.schema()));
    let named: Vec<Cow<'_, Schema>> = named.collect();
    let schemas = files.iter().zip(&named).map(|(file, schema)| (file.display.as_str(), schema.as_ref()));
    let union = Union::of(dataset, schemas, Some(&table.schema), partitions)?;
    let found = files.iter().zip(&union.columns).map(|(file, columns)| (file.display.as_str(), columns));
    let log_values = table_check::missing_values(dataset, table, found)?;
    Ok((union, log_values))
}

/// Refuses files of both formats: most often, one of them is a leftover.
fn check_formats(dataset: &str, files: &[Arc<File>]) -> Result<(), CatalogError> {
    let arrow = files.iter().find(|file| file.arrow().is_some());
    let parquet = files.iter().find(|file| file.arrow().is_none());
    let (Some(arrow), Some(parquet)) = (arrow, parquet) else { return Ok(()) };
    let reason = format!(
        "\"{}\" is an Arrow IPC file and \"{}\" is Parquet: name files of one format by a pattern such as *.parquet, or \
         convert the others with `forebay convert`",
        arrow.display, parquet.display
    );
    Err(CatalogError::Empty { dataset: dataset.to_owned(), reason })
}

/// Digest of the files in order (relative path, size, `ETag`), the rows of their row groups, and the schema.
///
/// Includes the footer of a file whose tag does not identify its bytes, and content of a local one. Excludes versions: tickets and cursors keep the
/// digest across restarts, and a file whose permissions changed is still the same.
///
/// Includes the version of a lake table, with its deleted rows and partition values. Of files that are only some of the
/// dataset's, their number is added in plain.
fn digest(listed: &ListedFiles, store: &Store, files: &[Arc<File>], schema: &Schema, is_adapted: bool) -> String {
    let mut manifest = Vec::from(*b"forebay snapshot 1\n");
    if let Some(table) = &listed.listing.table {
        manifest.extend(format!("table {}\n", table.digest).bytes());
    }
    for file in files {
        let path = &file.object.location;
        let relative = listed.listing.relative(path);
        let tag = file.object.e_tag.as_deref().unwrap_or("-");
        manifest.extend(format!("{}\n{}\n{tag}\n", relative, file.object.size).bytes());
        if !is_identified_by_tag(store, &file.object) {
            manifest.extend(format!("{}\n", file.footer.digest).bytes());
        }
        for group in file.footer.stored.metadata().row_groups() {
            manifest.extend(group.num_rows().to_le_bytes());
        }
    }
    if listed.is_partitioned() && !listed.is_narrowed {
        // The version of the rule by which a filter on partition columns decides the order.
        manifest.extend(*b"order of kept files\n");
    }
    if is_adapted {
        // The version of the rule that unites schemas. Files that agree need no rule.
        manifest.extend(*b"union 1\n");
    }
    for field in schema.fields() {
        manifest.extend(format!("{}\n{}\n{}\n", field.name(), field.data_type(), field.is_nullable()).bytes());
    }
    let digest = short_digest(&[&manifest]);
    if listed.is_narrowed { format!("{digest}-{}", files.len()) } else { digest }
}
