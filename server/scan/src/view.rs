//! How the columns of one file are read: its footer under the schema of its dataset.

use std::sync::{Arc, Mutex, PoisonError};

use arrow::{
    array::{ArrayRef, DictionaryArray, Int32Array, UInt32Array, new_null_array},
    compute::take,
    datatypes::{DataType, FieldRef, Schema, SchemaRef},
    error::ArrowError,
};
use forebay_catalog::{ArrowLayout, Int96Unit, Snapshot};
use parquet::{
    arrow::{
        FieldLevels, ProjectionMask,
        arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions},
        parquet_to_arrow_field_levels,
    },
    errors::ParquetError,
    schema::types::SchemaDescPtr,
};

use super::{
    convert::{convert, relabelled},
    intervals::Intervals,
};

/// Column sets whose levels a view caches: the parts of one or two row groups.
const LEVELS_KEPT_MAX: usize = 16;

/// How a row group's columns are read: a file's footer under a schema.
#[derive(Debug)]
pub(super) struct View {
    file_index: usize,
    /// Projection indices of the columns that are read as dictionaries because their row group stores them so.
    keyed: Vec<usize>,
    /// The same as root columns of the file.
    keyed_roots: Vec<usize>,
    pub metadata: ArrowReaderMetadata,
    /// The file's schema as the decoder reads it.
    decoded: SchemaDescPtr,
    /// How intervals are read.
    intervals: Intervals,
    /// The unit of timestamps stored as INT96.
    pub int96: Int96Unit,
    /// Where the buffers of an Arrow IPC file are; `None` for Parquet.
    pub arrow: Option<Arc<ArrowLayout>>,
    /// The schema of the projection's columns.
    pub schema: SchemaRef,
    /// How the file has each column of the projection.
    origins: Vec<ColumnOrigin>,
    /// How columns are assembled from leaves, by the root columns read.
    levels: Mutex<Vec<(Vec<usize>, Arc<FieldLevels>)>>,
}

/// How a file has a column of its dataset.
#[derive(Debug)]
enum ColumnOrigin {
    /// In the dataset's type.
    Same,
    /// In another type, to which intervals are restored before the values are converted.
    Converted(DataType),
    /// With other names of nested fields: its type in the file, and that type with the dataset's names.
    Relabelled(DataType, DataType),
    /// Not at all: all values are this one, an array of one row, or null.
    Constant(Option<ArrayRef>),
}

// === impl View ===

impl View {
    /// The view of a file for the columns of these indices, and their schema as the projection returns them. `keyed` are
    /// the projection's columns that are read as dictionaries.
    pub(super) fn new(
        snapshot: &Snapshot,
        file_index: usize,
        footer: &ArrowReaderMetadata,
        (indices, schema): (&[usize], SchemaRef),
        keyed: Vec<usize>,
    ) -> Result<Self, ParquetError> {
        let (file, columns) = (&snapshot.files()[file_index], snapshot.columns_of(file_index));
        let roots: Vec<Option<usize>> = indices.iter().map(|index| columns.root(*index)).collect();
        let keyed_roots: Vec<usize> = keyed.iter().filter_map(|column| roots[*column]).collect();
        let placed =
            || schema.fields().iter().zip(&roots).filter_map(|(field, root)| Some((field.data_type(), (*root)?)));
        let read_as = placed().filter(|(wanted, root)| is_read_as(footer.schema().field(*root).data_type(), wanted));
        let types = read_as.map(|(wanted, root)| (root, wanted.clone())).collect();
        // Columns that the decoder cannot read as their type are converted instead.
        let is_optional = keyed.is_empty();
        let metadata =
            reread(footer, types).or_else(|error| if is_optional { Ok(footer.clone()) } else { Err(error) })?;
        let origin = |(field, (root, index)): (&FieldRef, (&Option<usize>, &usize))| match root {
            None => ColumnOrigin::Constant(snapshot.missing_value(file_index, *index)),
            Some(root) => {
                let found = metadata.schema().field(*root).data_type();
                match snapshot.relabelled(*index, found) {
                    Some(named) => ColumnOrigin::Relabelled(found.clone(), named),
                    None if found == field.data_type() => ColumnOrigin::Same,
                    None => ColumnOrigin::Converted(found.clone()),
                }
            }
        };
        let origins = schema.fields().iter().zip(roots.iter().zip(indices)).map(origin).collect();
        Ok(Self {
            file_index,
            keyed,
            keyed_roots,
            metadata,
            decoded: SchemaDescPtr::clone(file.decoded_schema()),
            intervals: if file.has_signed_intervals() { Intervals::Signed } else { Intervals::Unsigned },
            int96: snapshot.int96_unit(),
            arrow: file.arrow().cloned(),
            schema,
            origins,
            levels: Mutex::default(),
        })
    }

    /// Whether it is that of a file with these columns as dictionaries.
    pub(super) fn is_of(&self, file_index: usize, keyed: &[usize]) -> bool {
        self.file_index == file_index && self.has_keys(keyed)
    }

    /// Whether these columns, by index in the projection, are read as dictionaries.
    pub(super) fn has_keys(&self, keyed: &[usize]) -> bool {
        self.keyed == keyed
    }

    /// Whether the column of a root is read as a dictionary because its row group stores one.
    pub(super) fn keys(&self, root: usize) -> bool {
        self.keyed_roots.contains(&root)
    }

    /// A decoded column in the type of the projection, by its index there.
    pub(super) fn restored(&self, column: usize, decoded: &ArrayRef) -> Result<ArrayRef, String> {
        let wanted = self.schema.field(column).data_type();
        let converted = |array: &ArrayRef| {
            convert(array, wanted).map_err(|source| {
                format!("it holds a value that {wanted}, the type of its dataset, cannot hold: {source}")
            })
        };
        match &self.origins[column] {
            ColumnOrigin::Converted(found) => converted(&self.intervals.restored(decoded, found)?),
            ColumnOrigin::Relabelled(found, named) => {
                let restored = self.intervals.restored(decoded, found)?;
                converted(&relabelled(&restored, named).map_err(|source| source.to_string())?)
            }
            ColumnOrigin::Same | ColumnOrigin::Constant(_) => self.intervals.restored(decoded, wanted),
        }
    }

    /// The values of a column, by its index in the projection, that the file does not have; `None` if it has it.
    pub(super) fn constant(&self, column: usize, rows: usize) -> Result<Option<ArrayRef>, ArrowError> {
        let wanted = self.schema.field(column).data_type();
        match &self.origins[column] {
            ColumnOrigin::Constant(Some(value)) => repeated(value, wanted, rows).map(Some),
            ColumnOrigin::Constant(None) => Ok(Some(new_null_array(wanted, rows))),
            ColumnOrigin::Same | ColumnOrigin::Converted(_) | ColumnOrigin::Relabelled(..) => Ok(None),
        }
    }

    /// How the columns of these roots are assembled from leaves.
    pub(super) fn levels(&self, roots: &[usize]) -> Result<Arc<FieldLevels>, ParquetError> {
        let mut kept = self.levels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, levels)) = kept.iter().find(|(known, _)| known == roots) {
            return Ok(Arc::clone(levels));
        }
        let mask = ProjectionMask::roots(&self.decoded, roots.iter().copied());
        let fields = self.metadata.schema().fields();
        let levels = Arc::new(parquet_to_arrow_field_levels(&self.decoded, mask, Some(fields))?);
        kept.insert(0, (roots.to_vec(), Arc::clone(&levels)));
        kept.truncate(LEVELS_KEPT_MAX);
        Ok(levels)
    }
}

/// An array of a value: a dictionary has it once.
fn repeated(value: &ArrayRef, wanted: &DataType, rows: usize) -> Result<ArrayRef, ArrowError> {
    match wanted {
        DataType::Dictionary(keys, values) if **keys == DataType::Int32 => {
            let value = convert(value, values)?;
            Ok(Arc::new(DictionaryArray::try_new(Int32Array::new(vec![0; rows].into(), None), value)?))
        }
        _ => take(&convert(value, wanted)?, &UInt32Array::from(vec![0; rows]), None),
    }
}

/// Whether the decoder produces another type than the file's by itself: other layouts of text, and dictionaries or
/// their values.
fn is_read_as(found: &DataType, wanted: &DataType) -> bool {
    let (of_found, of_wanted) = (values(found), values(wanted));
    let is_text = |data_type: &DataType| matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    let is_bytes =
        |data_type: &DataType| matches!(data_type, DataType::Binary | DataType::LargeBinary | DataType::BinaryView);
    let is_same =
        of_found == of_wanted || is_text(of_found) && is_text(of_wanted) || is_bytes(of_found) && is_bytes(of_wanted);
    found != wanted && is_same
}

/// The type of a dictionary's values; another type as it is.
fn values(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::Dictionary(_, values) => values,
        other => other,
    }
}

/// The same footer with other types for some root columns.
fn reread(footer: &ArrowReaderMetadata, types: Vec<(usize, DataType)>) -> Result<ArrowReaderMetadata, ParquetError> {
    if types.is_empty() {
        return Ok(footer.clone());
    }
    let mut fields: Vec<FieldRef> = footer.schema().fields().to_vec();
    for (root, data_type) in types {
        fields[root] = Arc::new(fields[root].as_ref().clone().with_data_type(data_type));
    }
    let schema = Schema::new_with_metadata(fields, footer.schema().metadata().clone());
    let options = ArrowReaderOptions::new().with_schema(Arc::new(schema));
    ArrowReaderMetadata::try_new(Arc::clone(footer.metadata()), options)
}

/// The schema with the fields of these indices changed to dictionaries.
pub(super) fn with_dictionaries(schema: &SchemaRef, indices: &[usize]) -> SchemaRef {
    if indices.is_empty() {
        return SchemaRef::clone(schema);
    }
    let mut fields: Vec<FieldRef> = schema.fields().to_vec();
    for index in indices {
        let field = fields[*index].as_ref();
        let data_type = DataType::Dictionary(Box::new(DataType::Int32), Box::new(field.data_type().clone()));
        fields[*index] = Arc::new(field.clone().with_data_type(data_type));
    }
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}
