//! The engine of the Delta kernel: reads the files of a log from a store. It never writes.

use std::{
    io::{BufReader, Cursor},
    sync::Arc,
};

use bytes::Bytes;
use delta_kernel::{
    Engine, EngineData, EvaluationHandler, FileDataReadResultIterator, FileMeta, FileSize, FileSlice, JsonHandler,
    KernelError, KernelResult, KernelResultIterator, KernelResultIteratorStatic, ParquetFooter, ParquetHandler,
    PredicateRef, StorageHandler,
    arrow::json::ReaderBuilder,
    engine::{
        arrow_conversion::TryFromArrow,
        arrow_data::ArrowEngineData,
        arrow_expression::ArrowEvaluationHandler,
        arrow_utils::{
            RowIndexBuilder, build_json_reorder_indices, fixup_json_read, fixup_parquet_read, json_arrow_schema,
            ordering_needs_row_indexes, parquet_read_plan, parse_json,
        },
        reader_options,
    },
    engine_data::FilteredEngineData,
    parquet::arrow::arrow_reader::{ArrowReaderMetadata, ParquetRecordBatchReaderBuilder},
    schema::{SchemaRef, StructType},
};
use object_store::path::Path;
use url::Url;

use super::blocking_store::BlockingStore;

/// The URL of a store's root within the kernel, which only joins paths to it.
const ROOT: &str = "lake:///";
const SCHEME: &str = "lake";

/// Reads the log of one table.
pub(super) struct LogEngine {
    files: Arc<LogFiles>,
    evaluation: Arc<ArrowEvaluationHandler>,
}

/// The files of a log, as each handler of the kernel reads them.
struct LogFiles(BlockingStore);

// === impl LogEngine ===

impl LogEngine {
    pub(super) fn new(store: BlockingStore) -> Self {
        Self { files: Arc::new(LogFiles(store)), evaluation: Arc::new(ArrowEvaluationHandler) }
    }

    /// The store of the log.
    pub(super) fn store(&self) -> &BlockingStore {
        &self.files.0
    }

    /// The root of the table, as the kernel names it.
    pub(super) fn table_url(&self) -> KernelResult<Url> {
        let mut url = url_of(self.store().root())?;
        if !url.path().ends_with('/') {
            url.set_path(&format!("{}/", url.path()));
        }
        Ok(url)
    }
}

impl Engine for LogEngine {
    fn evaluation_handler(&self) -> Arc<dyn EvaluationHandler> {
        self.evaluation.clone()
    }

    fn storage_handler(&self) -> Arc<dyn StorageHandler> {
        self.files.clone()
    }

    fn json_handler(&self) -> Arc<dyn JsonHandler> {
        self.files.clone()
    }

    fn parquet_handler(&self) -> Arc<dyn ParquetHandler> {
        self.files.clone()
    }
}

// === impl LogFiles ===

impl StorageHandler for LogFiles {
    fn list_from(&self, url: &Url) -> KernelResult<KernelResultIteratorStatic<FileMeta>> {
        let offset = self.path_of(url)?;
        let folder = if url.path().ends_with('/') {
            offset.clone()
        } else {
            let parent = offset.as_ref().rsplit_once('/').map_or("", |(parent, _)| parent);
            Path::parse(parent)?
        };
        let listed = self.0.list(&folder, Some(&offset))?;
        let files = listed.into_iter().map(|file| {
            let location = url_of(&file.location)?;
            Ok(FileMeta { location, last_modified: file.last_modified.timestamp_millis(), size: file.size })
        });
        Ok(Box::new(files))
    }

    fn read_files(&self, files: Vec<FileSlice>) -> KernelResult<KernelResultIteratorStatic<Bytes>> {
        let read = files.into_iter().map(|(url, range)| {
            let bytes = self.0.read(&self.path_of(&url)?)?;
            let Some(range) = range else { return Ok(bytes) };
            let (start, end) = (usize::try_from(range.start), usize::try_from(range.end));
            match (start, end) {
                (Ok(start), Ok(end)) if start <= end && end <= bytes.len() => Ok(bytes.slice(start..end)),
                _ => Err(KernelError::generic(format!("{url} has no bytes {range:?}"))),
            }
        });
        Ok(Box::new(read.collect::<Vec<KernelResult<Bytes>>>().into_iter()))
    }

    fn head(&self, url: &Url) -> KernelResult<FileMeta> {
        let file = self.0.head(&self.path_of(url)?)?;
        let last_modified = file.last_modified.timestamp_millis();
        Ok(FileMeta { location: url.clone(), last_modified, size: file.size })
    }

    fn copy_atomic(&self, _: &Url, _: &Url) -> KernelResult<()> {
        Err(read_only())
    }

    fn put(&self, _: &Url, _: Bytes, _: bool) -> KernelResult<()> {
        Err(read_only())
    }

    fn delete(&self, _: &Url) -> KernelResult<()> {
        Err(read_only())
    }
}

impl JsonHandler for LogFiles {
    fn parse_json(&self, texts: Box<dyn EngineData>, schema: SchemaRef) -> KernelResult<Box<dyn EngineData>> {
        parse_json(texts, schema)
    }

    fn read_json_files(
        &self,
        files: &[FileMeta],
        schema: SchemaRef,
        _: Option<PredicateRef>,
    ) -> KernelResult<FileDataReadResultIterator> {
        let mut batches: Vec<KernelResult<Box<dyn EngineData>>> = Vec::new();
        for file in files {
            let read = self.json(file, &schema);
            let read = read.map_err(|error| damaged(file, &error));
            let is_damaged = read.is_err();
            match read {
                Ok(of_file) => batches.extend(of_file.into_iter().map(Ok)),
                Err(error) => batches.push(Err(error)),
            }
            if is_damaged {
                break;
            }
        }
        Ok(Box::new(batches.into_iter()))
    }

    fn write_json_file(
        &self,
        _: &Url,
        _: KernelResultIterator<'_, FilteredEngineData>,
        _: bool,
    ) -> KernelResult<FileSize> {
        Err(read_only())
    }
}

impl ParquetHandler for LogFiles {
    fn read_parquet_files(
        &self,
        files: &[FileMeta],
        schema: SchemaRef,
        _: Option<PredicateRef>,
    ) -> KernelResult<FileDataReadResultIterator> {
        let mut batches: Vec<KernelResult<Box<dyn EngineData>>> = Vec::new();
        for file in files {
            match self.parquet(file, &schema) {
                Ok(of_file) => batches.extend(of_file.into_iter().map(Ok)),
                Err(error) => {
                    batches.push(Err(damaged(file, &error)));
                    break;
                }
            }
        }
        Ok(Box::new(batches.into_iter()))
    }

    fn write_parquet_file(&self, _: Url, _: KernelResultIteratorStatic<Box<dyn EngineData>>) -> KernelResult<FileSize> {
        Err(read_only())
    }

    fn read_parquet_footer(&self, file: &FileMeta) -> KernelResult<ParquetFooter> {
        let footer = || -> KernelResult<ParquetFooter> {
            let bytes = self.0.read(&self.path_of(&file.location)?)?;
            let metadata = ArrowReaderMetadata::load(&bytes, reader_options())?;
            Ok(ParquetFooter { schema: Arc::new(StructType::try_from_arrow(metadata.schema().as_ref())?) })
        };
        footer().map_err(|error| damaged(file, &error))
    }
}

impl LogFiles {
    /// The path of a URL: one that the kernel joined to the table's, or one that the log names in full.
    fn path_of(&self, url: &Url) -> KernelResult<Path> {
        if url.scheme() == SCHEME { path_of(url) } else { Ok(self.0.path_of(url)?) }
    }

    fn json(&self, file: &FileMeta, schema: &SchemaRef) -> KernelResult<Vec<Box<dyn EngineData>>> {
        let bytes = self.0.read(&self.path_of(&file.location)?)?;
        let order = build_json_reorder_indices(schema)?;
        let reader = ReaderBuilder::new(Arc::new(json_arrow_schema(schema)?)).with_coerce_primitive(true);
        let batches = reader.build(BufReader::new(Cursor::new(bytes)))?;
        let location = file.location.as_str();
        let batches = batches.map(|batch| -> KernelResult<Box<dyn EngineData>> {
            Ok(Box::new(fixup_json_read(batch?, &order, location)?))
        });
        batches.collect()
    }

    fn parquet(&self, file: &FileMeta, schema: &SchemaRef) -> KernelResult<Vec<Box<dyn EngineData>>> {
        let bytes = self.0.read(&self.path_of(&file.location)?)?;
        let metadata = ArrowReaderMetadata::load(&bytes, reader_options())?;
        let (order, mask) = parquet_read_plan(schema, &metadata)?;
        let mut row_indexes = None;
        if ordering_needs_row_indexes(&order) {
            row_indexes = Some(RowIndexBuilder::new(metadata.metadata().row_groups()).build()?);
        }
        let mut builder = ParquetRecordBatchReaderBuilder::new_with_metadata(bytes, metadata);
        if let Some(mask) = mask {
            builder = builder.with_projection(mask);
        }
        let location = file.location.as_str();
        let batches = builder.build()?.map(|batch| -> KernelResult<Box<dyn EngineData>> {
            let data: ArrowEngineData =
                fixup_parquet_read(batch?, &order, row_indexes.as_mut(), Some(location), Some(schema))?;
            Ok(Box::new(data))
        });
        batches.collect()
    }
}

/// The error of a file of the log that cannot be read.
fn damaged(file: &FileMeta, error: &KernelError) -> KernelError {
    let name = file.location.path_segments().and_then(|mut parts| parts.next_back()).unwrap_or_default();
    KernelError::generic(format!("the file {name} of the log is damaged: {error}"))
}

fn read_only() -> KernelError {
    KernelError::unsupported("tables are only read")
}

fn path_of(url: &Url) -> KernelResult<Path> {
    Ok(Path::from_url_path(url.path())?)
}

fn url_of(path: &Path) -> KernelResult<Url> {
    let mut url = Url::parse(ROOT)?;
    if let Ok(mut parts) = url.path_segments_mut() {
        parts.pop_if_empty().extend(path.as_ref().split('/').filter(|part| !part.is_empty()));
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_urls_convert_to_each_other() {
        for path in ["", "a", "a b/c%20d", "p=ü%2F#?/x.json"] {
            let path = Path::parse(path).unwrap();
            assert_eq!(path_of(&url_of(&path).unwrap()).unwrap(), path);
        }
    }
}
