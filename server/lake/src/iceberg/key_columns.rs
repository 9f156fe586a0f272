//! Some columns of a Parquet file by their field IDs, row group by row group, without the rest of the file.

use std::{ops::Range, sync::Arc};

use arrow::{
    array::{ArrayRef, new_null_array},
    compute::{CastOptions, cast_with_options},
    datatypes::DataType,
};
use bytes::{Buf, Bytes, buf::Reader};
use object_store::path::Path;
use parquet::{
    arrow::{
        ProjectionMask,
        arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder},
    },
    basic::Type as PhysicalType,
    errors::ParquetError,
    file::{
        metadata::{FooterTail, ParquetMetaDataReader},
        reader::{ChunkReader, Length},
    },
    schema::types::SchemaDescriptor,
};

use super::{blocking::blocking, metadata_store::MetadataStore};
use crate::{error::LakeError, table::ColumnKey};

/// Bytes at the end of a file that are read first: most footers are smaller.
const TAIL_BYTES: u64 = 64 << 10;
/// The largest footer and column chunk.
const FOOTER_BYTES_MAX: u64 = 256 << 20;
const CHUNK_BYTES_MAX: u64 = 2 << 30;
/// The bytes after a footer: its length and the magic number.
const FOOTER_END_BYTES: u64 = 8;

/// Rows decoded at a time, and the bytes of their texts.
const BATCH_ROWS_MAX: usize = 1024;
const BATCH_BYTES_MAX: u64 = 512 << 20;

/// A column to read.
#[derive(Clone, Debug)]
pub(super) struct KeyColumn {
    pub name: String,
    pub key: ColumnKey,
    /// The type to which the values of a file are cast.
    pub data_type: DataType,
}

/// A file of which columns are read.
pub(super) struct KeyFile<'a> {
    store: MetadataStore<'a>,
    path: &'a Path,
    named_by: &'a str,
    bytes: u64,
    /// Its end, which may have some of the columns.
    tail: FilePart,
    metadata: ArrowReaderMetadata,
    columns: Arc<[KeyColumn]>,
    /// The place of each column among those of the file; none if the file lacks it.
    roots: Arc<[Option<usize>]>,
}

/// Bytes of a file.
#[derive(Clone, Debug)]
struct FilePart {
    start: u64,
    bytes: Bytes,
}

/// The parts of a file that a row group is read from.
struct Fetched {
    file_bytes: u64,
    parts: Vec<FilePart>,
}

// === impl KeyFile ===

impl<'a> KeyFile<'a> {
    /// Reads the footer of a file of `bytes` bytes.
    pub(super) async fn open(
        store: MetadataStore<'a>,
        path: &'a Path,
        named_by: &'a str,
        bytes: u64,
        columns: Arc<[KeyColumn]>,
    ) -> Result<Self, LakeError> {
        let corrupt = |reason: String| LakeError::Corrupt(format!("\"{}\": {reason}", store.display(path)));
        if bytes < FOOTER_END_BYTES {
            return Err(corrupt("it is not a Parquet file".to_owned()));
        }
        let mut tail = read(store, path, named_by, bytes.saturating_sub(TAIL_BYTES)..bytes).await?;
        let footer_bytes = footer_bytes(&tail.bytes).map_err(corrupt)?;
        let end = bytes - FOOTER_END_BYTES;
        let start = end.checked_sub(footer_bytes).filter(|_| footer_bytes <= FOOTER_BYTES_MAX);
        let start = start.ok_or_else(|| corrupt(format!("its footer has {footer_bytes} bytes")))?;
        if start < tail.start {
            tail = read(store, path, named_by, start..bytes).await?;
        }
        let footer = tail.get(start, footer_bytes).ok_or_else(|| corrupt("its footer is incomplete".to_owned()))?;
        let metadata = blocking(move || parsed(&footer)).await.map_err(corrupt)?;
        let roots = roots(metadata.parquet_schema(), &columns)
            .map_err(|reason| LakeError::Unsupported(format!("\"{}\": {reason}", store.display(path))))?;
        Ok(Self { store, path, named_by, bytes, tail, metadata, columns, roots: roots.into() })
    }

    /// The rows of the file.
    pub(super) fn rows(&self) -> u64 {
        self.metadata.metadata().row_groups().iter().map(|group| u64::try_from(group.num_rows()).unwrap_or(0)).sum()
    }

    /// The names of the columns that the file lacks.
    pub(super) fn missing(&self) -> impl Iterator<Item = &KeyColumn> {
        self.columns.iter().zip(&*self.roots).filter(|(_, root)| root.is_none()).map(|(column, _)| column)
    }

    /// Calls a function with the columns of all rows, some of them at a time, and the index of the first of these. Missing
    /// columns are null.
    pub(super) async fn each<T: Send + 'static>(
        &self,
        mut state: T,
        visit: Arc<impl Fn(&mut T, u64, &[ArrayRef]) -> Result<(), String> + Send + Sync + 'static>,
    ) -> Result<T, LakeError> {
        let corrupt = |reason: String| LakeError::Corrupt(format!("\"{}\": {reason}", self.store.display(self.path)));
        let mut first = 0;
        for (index, group) in self.metadata.metadata().row_groups().iter().enumerate() {
            let rows = u64::try_from(group.num_rows()).map_err(|_| corrupt("its rows cannot be counted".to_owned()))?;
            if rows == 0 {
                continue;
            }
            let fetched = self.fetch(index).await?;
            let (metadata, columns, roots) =
                (self.metadata.clone(), Arc::clone(&self.columns), Arc::clone(&self.roots));
            let visit = Arc::clone(&visit);
            let decoded = blocking(move || {
                let seen = decode(&metadata, index, fetched, &columns, &roots, |row, arrays| {
                    visit(&mut state, first + row, arrays)
                })?;
                if seen == rows {
                    Ok(state)
                } else {
                    Err(format!("row group {index} has {seen} rows instead of {rows}"))
                }
            });
            state = decoded.await.map_err(corrupt)?;
            first += rows;
        }
        Ok(state)
    }

    async fn fetch(&self, group: usize) -> Result<Fetched, LakeError> {
        let corrupt = |reason: String| LakeError::Corrupt(format!("\"{}\": {reason}", self.store.display(self.path)));
        let (metadata, roots) = (self.metadata.clone(), Arc::clone(&self.roots));
        // The library panics at sizes below zero.
        let ranges = blocking(move || Ok(chunk_ranges(&metadata, group, &roots))).await.map_err(corrupt)?;
        let mut parts = Vec::with_capacity(ranges.len());
        for range in ranges {
            let bytes = range.end - range.start;
            if bytes > CHUNK_BYTES_MAX || range.end > self.bytes {
                return Err(corrupt(format!("a column of row group {group} has {bytes} bytes at {}", range.start)));
            }
            parts.push(match self.tail.get(range.start, bytes) {
                Some(bytes) => FilePart { start: range.start, bytes },
                None => read(self.store, self.path, self.named_by, range).await?,
            });
        }
        Ok(Fetched { file_bytes: self.bytes, parts })
    }
}

/// Bytes of a file; an error if it has become shorter.
async fn read(store: MetadataStore<'_>, path: &Path, named_by: &str, range: Range<u64>) -> Result<FilePart, LakeError> {
    let (start, wanted) = (range.start, range.end - range.start);
    let bytes = store.get_range(path, named_by, range).await?;
    if bytes.len() as u64 == wanted {
        return Ok(FilePart { start, bytes });
    }
    Err(LakeError::Corrupt(format!("\"{}\" is shorter than its manifest says", store.display(path))))
}

/// The length of the footer that the end of a file names.
fn footer_bytes(tail: &[u8]) -> Result<u64, String> {
    let end = tail.last_chunk().ok_or("it is not a Parquet file")?;
    let end = FooterTail::try_new(end).map_err(|source| source.to_string())?;
    if end.is_encrypted_footer() {
        return Err("it is encrypted".to_owned());
    }
    Ok(end.metadata_length() as u64)
}

fn parsed(footer: &Bytes) -> Result<ArrowReaderMetadata, String> {
    let metadata = ParquetMetaDataReader::decode_metadata(footer).map_err(|source| source.to_string())?;
    // Types as Parquet has them, not as the writer had them in memory.
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    ArrowReaderMetadata::try_new(Arc::new(metadata), options).map_err(|source| source.to_string())
}

/// The place of each column in a file.
fn roots(schema: &SchemaDescriptor, columns: &[KeyColumn]) -> Result<Vec<Option<usize>>, String> {
    let fields = schema.root_schema().get_fields();
    let has_ids = fields.iter().any(|field| field.get_basic_info().has_id());
    let root = |column: &KeyColumn| {
        let found = match &column.key {
            ColumnKey::Id(id) | ColumnKey::IdOrName { id, .. } if has_ids => fields.iter().position(|field| {
                let info = field.get_basic_info();
                info.has_id() && info.id() == *id
            }),
            ColumnKey::IdOrName { names, .. } => {
                names.iter().find_map(|name| fields.iter().position(|field| field.name() == name))
            }
            ColumnKey::Name(name) => fields.iter().position(|field| field.name() == name),
            ColumnKey::Id(_) | ColumnKey::Position => {
                return Err(
                    "its columns have no field IDs, and the table has no schema.name-mapping.default".to_owned()
                );
            }
        };
        match found {
            Some(root) if !fields[root].is_primitive() => Err(format!("column \"{}\" has fields in it", column.name)),
            found => Ok(found),
        }
    };
    columns.iter().map(root).collect()
}

/// Where the columns of a row group are.
fn chunk_ranges(metadata: &ArrowReaderMetadata, group: usize, roots: &[Option<usize>]) -> Vec<Range<u64>> {
    let schema = metadata.parquet_schema();
    let group = &metadata.metadata().row_groups()[group];
    let is_read = |leaf: &usize| roots.contains(&Some(schema.get_column_root_idx(*leaf)));
    let ranges = (0..group.num_columns()).filter(is_read).map(|leaf| {
        let (start, bytes) = group.column(leaf).byte_range();
        start..start.saturating_add(bytes)
    });
    ranges.filter(|range| !range.is_empty()).collect()
}

/// The rows that are decoded at a time: a dictionary stores a long text once, and each row that has it repeats it.
fn batch_rows(metadata: &ArrowReaderMetadata, group: usize, roots: &[Option<usize>]) -> usize {
    let schema = metadata.parquet_schema();
    let group = &metadata.metadata().row_groups()[group];
    let texts = (0..group.num_columns()).filter(|leaf| {
        let is_text = schema.column(*leaf).physical_type() == PhysicalType::BYTE_ARRAY;
        is_text && roots.contains(&Some(schema.get_column_root_idx(*leaf)))
    });
    // No text is longer than its column.
    let bytes = texts.map(|leaf| u64::try_from(group.column(leaf).uncompressed_size()).unwrap_or(u64::MAX));
    let longest = bytes.fold(0, u64::saturating_add);
    BATCH_BYTES_MAX.checked_div(longest).map_or(BATCH_ROWS_MAX, |rows| rows.clamp(1, BATCH_ROWS_MAX as u64) as usize)
}

/// Calls a function with the columns of a row group. Returns its rows.
fn decode(
    metadata: &ArrowReaderMetadata,
    group: usize,
    fetched: Fetched,
    columns: &[KeyColumn],
    roots: &[Option<usize>],
    mut visit: impl FnMut(u64, &[ArrayRef]) -> Result<(), String>,
) -> Result<u64, String> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let present: Vec<usize> = roots.iter().flatten().copied().collect();
    let mask = ProjectionMask::roots(metadata.parquet_schema(), present.iter().copied());
    let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(fetched, metadata.clone());
    let builder = builder.with_batch_size(batch_rows(metadata, group, roots));
    let reader = builder.with_row_groups(vec![group]).with_projection(mask).build();
    // Columns of the reader are in the order of the file.
    let mut sorted = present;
    sorted.sort_unstable();
    sorted.dedup();
    let mut rows = 0;
    for batch in reader.map_err(|source| source.to_string())? {
        let batch = batch.map_err(|source| source.to_string())?;
        let mut arrays = Vec::with_capacity(columns.len());
        for (column, root) in columns.iter().zip(roots) {
            let place = root.and_then(|root| sorted.iter().position(|known| *known == root));
            arrays.push(match place {
                None => new_null_array(&column.data_type, batch.num_rows()),
                Some(place) => cast_with_options(batch.column(place), &column.data_type, &options)
                    .map_err(|source| format!("column \"{}\": {source}", column.name))?,
            });
        }
        visit(rows, &arrays)?;
        rows += batch.num_rows() as u64;
    }
    Ok(rows)
}

// === impl FilePart ===

impl FilePart {
    /// Some of its bytes, by their place in the file; `None` if it does not have all.
    fn get(&self, start: u64, length: u64) -> Option<Bytes> {
        let first = usize::try_from(start.checked_sub(self.start)?).ok()?;
        let end = first.checked_add(usize::try_from(length).ok()?)?;
        (end <= self.bytes.len()).then(|| self.bytes.slice(first..end))
    }
}

// === impl Fetched ===

impl Fetched {
    /// What follows a place, in its part.
    fn rest(&self, start: u64) -> Result<Bytes, ParquetError> {
        let part = self.parts.iter().find_map(|part| {
            let left = (part.start + part.bytes.len() as u64).checked_sub(start)?;
            part.get(start, left).filter(|rest| !rest.is_empty())
        });
        part.ok_or_else(|| ParquetError::General("a page is not in its column".to_owned()))
    }
}

impl Length for Fetched {
    fn len(&self) -> u64 {
        self.file_bytes
    }
}

impl ChunkReader for Fetched {
    type T = Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        Ok(self.rest(start)?.reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let found = self.parts.iter().find_map(|part| part.get(start, length as u64));
        found.ok_or_else(|| ParquetError::General("a page is not in its column".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use arrow::{
        array::{RecordBatch, StringArray},
        datatypes::{Field, Schema},
    };
    use parquet::arrow::ArrowWriter;

    use super::*;

    #[test]
    fn long_texts_are_decoded_few_at_a_time() {
        for (bytes, rows) in [(10, BATCH_ROWS_MAX), (512 << 10, 1023), (8 << 20, 21)] {
            let text = "x".repeat(bytes);
            let column: ArrayRef = Arc::new(StringArray::from(vec![text.as_str(); 3]));
            let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Utf8, false)]));
            let batch = RecordBatch::try_new(Arc::clone(&schema), vec![column]).unwrap();
            let mut file = Vec::new();
            let mut writer = ArrowWriter::try_new(&mut file, schema, None).unwrap();
            writer.write(&batch).unwrap();
            writer.close().unwrap();
            let length = footer_bytes(&file).unwrap() as usize;
            let end = file.len() - FOOTER_END_BYTES as usize;
            let metadata = parsed(&Bytes::from(file[end - length..end].to_vec())).unwrap();
            assert_eq!(batch_rows(&metadata, 0, &[Some(0)]), rows, "{bytes}");
            assert_eq!(batch_rows(&metadata, 0, &[None]), BATCH_ROWS_MAX);
        }
    }
}
