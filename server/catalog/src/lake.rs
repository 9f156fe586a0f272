//! Lake tables as datasets: the files of one version with their partition values, deleted rows and schema.
//!
//! The crate `forebay_lake` reads the logs. This module finds the files in the store, and says how they have the
//! table's columns.

use std::{borrow::Cow, sync::Arc};

use arrow::{
    array::BooleanArray,
    datatypes::{DataType, Field, FieldRef, Fields, Schema},
};
use forebay_lake::{
    Column, ColumnKey, FilePath, LakeError, LakeTable, LogValue, StoredAs, TableFile, TableFolders, TableState,
    path_in_store,
};
use forebay_runtime::state::short_digest;
use futures::{StreamExt, TryStreamExt};
use object_store::{ObjectMeta, path::Path};

use super::{
    error::CatalogError,
    pinned_schema::PinnedSchema,
    store::{Store, StoreErrorKind},
};

/// Files that are looked up at once.
const HEADS_AT_ONCE: usize = 32;

/// The metadata key of a Parquet field ID.
const FIELD_ID: &str = "PARQUET:field_id";

/// Starts the name of a field of a file that is not a field of the table. No field of a table starts with it.
const UNNAMED: char = '\0';

/// A version of a table whose files are the files of a snapshot.
#[derive(Debug)]
pub(super) struct TableVersion {
    /// The version as users write it.
    pub version: String,
    /// The version for errors: `version 12`, `snapshot 3055729675574597004`.
    pub title: String,
    /// The version of this very table.
    pub state: TableState,
    /// Identifies the version and everything that the log says about it.
    pub digest: String,
    /// The table's schema.
    pub schema: PinnedSchema,
    /// The columns that have one value in each file.
    pub partition_fields: Vec<Field>,
    /// The folder of the table, and further ones that its files are in.
    pub folders: TableFolders,
    columns: Vec<Column>,
    /// In the order of the dataset's files.
    files: Vec<TableFile>,
}

// === impl TableVersion ===

impl TableVersion {
    /// A version, for whose format errors have a noun.
    pub(super) fn new(noun: &str, table: LakeTable, state: TableState, folders: TableFolders) -> Self {
        let LakeTable { version, columns, partition_columns, files } = table;
        let digest = digest(&version, &columns, &files);
        let fields: Vec<Field> = columns.iter().map(|column| column.field.clone()).collect();
        let of_name = |name: &String| fields.iter().find(|field| field.name() == name).cloned();
        let partition_fields = partition_columns.iter().filter_map(of_name).collect();
        let title = format!("{noun} {version}");
        let schema = PinnedSchema::of_table(&title, Arc::new(Schema::new(fields)));
        Self { version, title, state, digest, schema, partition_fields, folders, columns, files }
    }

    /// The same version with some of its files.
    pub(super) fn narrowed(&self, kept: &BooleanArray) -> Self {
        let kept = self.files.iter().zip(kept.values()).filter(|(_, is_kept)| *is_kept);
        let files: Vec<TableFile> = kept.map(|(file, _)| file.clone()).collect();
        Self {
            version: self.version.clone(),
            title: self.title.clone(),
            state: self.state.clone(),
            digest: digest(&self.version, &self.columns, &files),
            schema: self.schema.clone(),
            partition_fields: self.partition_fields.clone(),
            folders: self.folders.clone(),
            columns: self.columns.clone(),
            files,
        }
    }

    /// The files in the store, in the order of the table.
    pub(super) async fn objects(&self, dataset: &str, store: &Store) -> Result<Vec<ObjectMeta>, CatalogError> {
        let folders = &store.with_real_folders(self.folders.clone()).await;
        // Indices: futures of a closure over references are not `Send` for every lifetime.
        let heads = (0..self.files.len()).map(|index| self.object(dataset, store, folders, &self.files[index]));
        futures::stream::iter(heads).buffered(HEADS_AT_ONCE).try_collect().await
    }

    async fn object(
        &self,
        dataset: &str,
        store: &Store,
        folders: &TableFolders,
        file: &TableFile,
    ) -> Result<ObjectMeta, CatalogError> {
        let table = |source: LakeError| CatalogError::Table { dataset: dataset.to_owned(), source };
        let path = match &file.path {
            FilePath::Relative(below) => below_root(&folders.root, below).map_err(table)?,
            FilePath::Absolute(url) => {
                let path = path_in_store(&store.display(&Path::default()), url).ok_or_else(|| {
                    table(LakeError::Unsupported(format!(
                        "{} has the file \"{url}\", which is not in the store of the table: copy the table, files \
                         included",
                        self.title
                    )))
                })?;
                folders.check(&path, url, |path| store.display(path)).map_err(table)?;
                path
            }
        };
        let gone = |reason: String| CatalogError::Gone {
            dataset: dataset.into(),
            file: store.display(&path).into(),
            version: self.title.as_str().into(),
            reason: reason.into(),
        };
        match store.head_in(folders, &path).await {
            Ok(object) if object.size == file.bytes => Ok(object),
            Ok(object) => Err(gone(format!("has {} bytes instead of {}", object.size, file.bytes))),
            Err(error) if error.kind == StoreErrorKind::Missing => {
                Err(gone("does not exist, as after VACUUM or the expiry of snapshots".to_owned()))
            }
            Err(error) if error.kind == StoreErrorKind::Outside => {
                Err(CatalogError::LinkOut { dataset: dataset.to_owned(), file: store.display(&path) })
            }
            Err(error) => Err(CatalogError::of_store(dataset, error)),
        }
    }

    /// The values of a partition column in each file.
    pub(super) fn partition_texts(&self, partition: usize) -> Vec<Option<&str>> {
        self.files.iter().map(|file| file.partition_values.get(partition).and_then(|value| value.as_deref())).collect()
    }

    /// A column, by its index.
    pub(super) fn column(&self, column: usize) -> Option<&Field> {
        self.columns.get(column).map(|column| &column.field)
    }

    /// The values of columns, by index, in the rows of a file that lacks them.
    pub(super) fn if_missing(&self, file_index: usize) -> &[(usize, LogValue)] {
        self.files.get(file_index).map_or(&[], |file| &file.if_missing)
    }

    /// The rows of a file, with the deleted ones, if the log records them.
    pub(super) fn rows(&self, file_index: usize) -> Option<u64> {
        self.files.get(file_index).and_then(|file| file.rows)
    }

    /// Whether the columns of a file can be found: by their IDs, or by names.
    pub(super) fn finds_columns(&self, stored: &Schema) -> bool {
        let is_by_id = self.columns.iter().any(|column| matches!(column.stored.key, ColumnKey::Id(_)));
        !is_by_id || stored.fields().is_empty() || stored.fields().iter().any(|field| field_id(field).is_some())
    }

    /// The indices of the deleted rows of a file.
    pub(super) fn deleted(&self, file_index: usize) -> &[u64] {
        self.files.get(file_index).map_or(&[], |file| &file.deleted)
    }

    /// The schema of a file with the names that the table gives its columns.
    pub(super) fn named<'a>(&self, stored: &'a Schema) -> Cow<'a, Schema> {
        let named = |field: &FieldRef| {
            let Some(column) = self.columns.iter().find(|column| is_stored_as(field, &column.stored)) else {
                return unnamed(field);
            };
            let data_type =
                relabelled(field.data_type(), column.field.data_type(), &column.stored.children, Use::Schema);
            Arc::new(field.as_ref().clone().with_name(column.field.name()).with_data_type(data_type))
        };
        let fields: Fields = stored.fields().iter().map(named).collect();
        if fields == *stored.fields() {
            return Cow::Borrowed(stored);
        }
        Cow::Owned(Schema::new_with_metadata(fields, stored.metadata().clone()))
    }

    /// The type of a column of a file, by its index among the table's columns, with the names that the table gives its
    /// nested fields; `None` if they are those of the file.
    pub(super) fn relabelled(&self, column: usize, found: &DataType) -> Option<DataType> {
        let column = self.columns.get(column).filter(|column| is_renamed(column))?;
        Some(relabelled(found, column.field.data_type(), &column.stored.children, Use::Values))
    }
}

/// Digest of everything in a version that decides which rows its files have, and where they are.
fn digest(version: &str, columns: &[Column], files: &[TableFile]) -> String {
    let mut manifest = format!("forebay table 1\n{version}\n").into_bytes();
    for Column { field, stored } in columns {
        manifest.extend(format!("{}\n{}\n{stored:?}\n", field.name(), field.data_type()).bytes());
    }
    for file in files {
        let (FilePath::Relative(path) | FilePath::Absolute(path)) = &file.path;
        manifest.extend(format!("{path}\n{}\n{:?}\n", file.bytes, file.partition_values).bytes());
        if !file.if_missing.is_empty() {
            manifest.extend(format!("{:?}\n", file.if_missing).bytes());
        }
        manifest.extend(file.deleted.iter().flat_map(|row| row.to_le_bytes()));
    }
    short_digest(&[&manifest])
}

fn below_root(root: &Path, below: &str) -> Result<Path, LakeError> {
    let separator = if root.as_ref().is_empty() { "" } else { "/" };
    Path::parse(format!("{root}{separator}{below}"))
        .map_err(|source| LakeError::Corrupt(format!("the log names the file \"{below}\": {source}")))
}

/// Whether files may have other names for the nested fields of a column.
fn is_renamed(column: &Column) -> bool {
    fn is_other(data_type: &DataType, stored: &[StoredAs]) -> bool {
        match data_type {
            DataType::Struct(fields) => fields.iter().zip(stored).any(|(field, stored)| {
                stored.key != ColumnKey::Name(field.name().clone()) || is_other(field.data_type(), &stored.children)
            }),
            DataType::List(item) => stored.first().is_some_and(|stored| is_other(item.data_type(), &stored.children)),
            DataType::Map(entries, _) => match entries.data_type() {
                DataType::Struct(fields) => {
                    fields.iter().zip(stored).any(|(field, stored)| is_other(field.data_type(), &stored.children))
                }
                _ => false,
            },
            _ => false,
        }
    }
    is_other(column.field.data_type(), &column.stored.children)
}

fn field_id(field: &Field) -> Option<i32> {
    field.metadata().get(FIELD_ID).and_then(|text| text.parse().ok())
}

fn is_stored_as(field: &Field, stored: &StoredAs) -> bool {
    match &stored.key {
        ColumnKey::Name(name) => field.name() == name,
        ColumnKey::Id(id) => field_id(field) == Some(*id),
        ColumnKey::IdOrName { id, names } => {
            field_id(field).map_or_else(|| names.contains(field.name()), |own| own == *id)
        }
        ColumnKey::Position => true,
    }
}

/// A field under a name that no field of a table has.
fn unnamed(field: &FieldRef) -> FieldRef {
    Arc::new(field.as_ref().clone().with_name(format!("{UNNAMED}{}", field.name())))
}

/// What a type of a file with the table's names is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    /// To compare it with the table's type: without fields that the table does not have, and in the layout of the
    /// table's lists, texts and times.
    Schema,
    /// To name the fields of decoded values.
    Values,
}

/// A type of a file with the table's names of nested fields.
fn relabelled(found: &DataType, wanted: &DataType, stored: &[StoredAs], of: Use) -> DataType {
    let nested = |found: &FieldRef, wanted: &FieldRef, stored: Option<&StoredAs>| -> FieldRef {
        let children = stored.map_or(&[][..], |stored| &stored.children);
        let data_type = relabelled(found.data_type(), wanted.data_type(), children, of);
        Arc::new(found.as_ref().clone().with_data_type(data_type))
    };
    match (found, wanted) {
        (DataType::Struct(found), DataType::Struct(wanted)) => {
            let fields = found.iter().filter_map(|field| {
                let mut pairs = wanted.iter().zip(stored);
                let Some((wanted, stored)) = pairs.find(|(_, stored)| is_stored_as(field, stored)) else {
                    return (of == Use::Values).then(|| unnamed(field));
                };
                let renamed = nested(field, wanted, Some(stored));
                Some(Arc::new(renamed.as_ref().clone().with_name(wanted.name())))
            });
            DataType::Struct(fields.collect())
        }
        (DataType::List(found), DataType::List(wanted)) => DataType::List(nested(found, wanted, stored.first())),
        (DataType::LargeList(found), DataType::List(wanted)) => {
            let item = nested(found, wanted, stored.first());
            if of == Use::Schema { DataType::List(item) } else { DataType::LargeList(item) }
        }
        (DataType::Map(found, is_sorted), DataType::Map(wanted, _)) => {
            let (DataType::Struct(own), DataType::Struct(wanted)) = (found.data_type(), wanted.data_type()) else {
                return DataType::Map(Arc::clone(found), *is_sorted);
            };
            let fields = own.iter().zip(wanted).enumerate();
            let fields = fields.map(|(index, (field, wanted))| nested(field, wanted, stored.get(index)));
            let entries = found.as_ref().clone().with_data_type(DataType::Struct(fields.collect()));
            DataType::Map(Arc::new(entries), *is_sorted)
        }
        (found, wanted) if of == Use::Schema => in_layout(found, wanted),
        (found, _) => found.clone(),
    }
}

/// The table's type of text or bytes in another layout; instants, which INT96 stores without a time zone, in that of the
/// table.
fn in_layout(found: &DataType, wanted: &DataType) -> DataType {
    use DataType as T;
    match (found, wanted) {
        (T::LargeUtf8 | T::Utf8View, T::Utf8) | (T::LargeBinary | T::BinaryView, T::Binary) => wanted.clone(),
        (T::Timestamp(unit, None), T::Timestamp(_, Some(zone))) => T::Timestamp(*unit, Some(Arc::clone(zone))),
        _ => found.clone(),
    }
}
