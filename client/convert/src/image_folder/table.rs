//! Folders of images with a table: the rows of `metadata.csv` or `metadata.jsonl`, each with the bytes of its image.

use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Component, Path, PathBuf},
    sync::{Arc, atomic::Ordering},
};

use arrow::{
    array::{Array, ArrayRef, AsArray, BinaryBuilder, RecordBatch},
    datatypes::{DataType, Field, FieldRef, Schema, SchemaRef},
};

use crate::{
    batches::{BATCH_BYTES, Batches, FileReader, batches},
    csv_file::CsvFiles,
    error::{ConvertError, Place},
    image_folder::{
        contents::contents,
        walk::{ImageWalk, tables_of},
    },
    input::ReadBytes,
    json_file::JsonFiles,
    options::Options,
    sources::SourceFile,
};

/// The column of the table that names the image of a row.
const FILE_NAME: &str = "file_name";

/// The column of the images.
const IMAGE: &str = "image";

/// Folders with tables of a common schema.
pub(crate) struct ImageTables {
    tables: Box<dyn FileReader + Send>,
    schema: SchemaRef,
}

/// The rows of a folder.
struct TableBatches {
    folder: PathBuf,
    table: PathBuf,
    schema: SchemaRef,
    batches: Batches,
    /// Rows of the table that were not returned.
    left: Option<RecordBatch>,
    rows: u64,
    read: ReadBytes,
    /// Hashes of the names of images so far.
    names: HashSet<u64>,
}

// === impl ImageTables ===

impl ImageTables {
    /// Opens the tables of folders that all have one.
    pub(crate) fn open(folders: &[SourceFile], options: &Arc<Options>) -> Result<Self, ConvertError> {
        let files = folders.iter().map(|folder| table_file(&folder.path)).collect::<Result<Vec<_>, _>>()?;
        let is_csv = |file: &SourceFile| file.path.extension().is_some_and(|extension| extension == "csv");
        let tables: Box<dyn FileReader + Send> = match files.iter().filter(|file| is_csv(file)).count() {
            0 => Box::new(JsonFiles::open(&files, options)?),
            count if count == files.len() => Box::new(CsvFiles::open(&files, options)?),
            _ => {
                return Err(ConvertError::Usage(
                    "some tables are csv and some jsonl: convert them separately".to_owned(),
                ));
            }
        };
        let found = tables.schema();
        let bad = |reason: String| {
            let path = files.first().map(|file| file.path.clone()).unwrap_or_default();
            Err(ConvertError::File { path, reason })
        };
        match found.column_with_name(FILE_NAME) {
            Some((_, field)) if field.data_type() == &DataType::Utf8 => {}
            Some(_) => return bad(format!("its column {FILE_NAME} is not text: set --type {FILE_NAME}=string")),
            None => return bad(format!("it has no column {FILE_NAME}, which names the image of each row")),
        }
        if found.column_with_name(IMAGE).is_some() {
            return bad(format!("it has a column {IMAGE}, which has the bytes of the file: rename it"));
        }
        let image: FieldRef = Arc::new(Field::new(IMAGE, DataType::Binary, false));
        let schema = Schema::new([image].into_iter().chain(found.fields().iter().cloned()).collect::<Vec<_>>());
        Ok(Self { tables, schema: Arc::new(schema) })
    }
}

impl FileReader for ImageTables {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn read(&self, folder: &SourceFile, read: &ReadBytes) -> Result<Batches, ConvertError> {
        let table = table_file(&folder.path)?;
        let mut rows = TableBatches {
            folder: folder.path.clone(),
            batches: self.tables.read(&table, &ReadBytes::default())?,
            table: table.path,
            schema: Arc::clone(&self.schema),
            left: None,
            rows: 0,
            read: Arc::clone(read),
            names: HashSet::new(),
        };
        Ok(batches(move || rows.batch()))
    }
}

/// The table of a folder, which has one.
fn table_file(folder: &Path) -> Result<SourceFile, ConvertError> {
    let mut tables = tables_of(folder);
    let reason = match (tables.pop(), tables.is_empty()) {
        (Some(path), true) => return Ok(SourceFile { path, bytes: 0 }),
        (Some(_), false) => "it has both metadata.csv and metadata.jsonl: remove one",
        (None, _) => "it has no metadata.csv or metadata.jsonl, as another folder has: convert it separately",
    };
    Err(ConvertError::File { path: folder.to_owned(), reason: reason.to_owned() })
}

// === impl TableBatches ===

impl TableBatches {
    fn batch(&mut self) -> Result<Option<RecordBatch>, ConvertError> {
        let Some(batch) = self.left.take().map(Ok).or_else(|| self.batches.next()).transpose()? else {
            self.check_all_images()?;
            return Ok(None);
        };
        let names = batch.column_by_name(FILE_NAME).and_then(|names| names.as_string_opt::<i32>()).cloned();
        let names = names.ok_or_else(|| ConvertError::Reader(format!("a batch without {FILE_NAME}")))?;
        let (mut images, mut count, mut bytes) = (BinaryBuilder::new(), 0, 0);
        while count < names.len() && bytes < BATCH_BYTES {
            let name = names.is_valid(count).then(|| names.value(count));
            count += 1;
            self.rows += 1;
            let image = self.image(name.unwrap_or_default())?;
            self.read.fetch_add(image.len() as u64, Ordering::Relaxed);
            bytes += image.len();
            images.append_value(image);
        }
        self.left = Some(batch.slice(count, batch.num_rows() - count)).filter(|rest| rest.num_rows() > 0);
        let image: ArrayRef = Arc::new(images.finish());
        let rows = batch.slice(0, count);
        let columns = [image].into_iter().chain(rows.columns().iter().cloned()).collect();
        RecordBatch::try_new(Arc::clone(&self.schema), columns).map(Some).map_err(ConvertError::Batch)
    }

    /// The bytes of the image of a row.
    fn image(&mut self, name: &str) -> Result<Vec<u8>, ConvertError> {
        let bad = |reason: &str| ConvertError::Value {
            path: self.table.clone(),
            place: Place::Record(self.rows),
            column: Some(FILE_NAME.to_owned()),
            reason: reason.to_owned(),
        };
        let parts = Path::new(name).components();
        let parts = parts.filter(|part| *part != Component::CurDir).map(|part| match part {
            Component::Normal(part) => part.to_str().ok_or_else(|| bad("it is not UTF-8")),
            _ => Err(bad("the image is outside the folder: move it there")),
        });
        let name = parts.collect::<Result<Vec<_>, _>>()?.join("/");
        if name.is_empty() {
            return Err(bad("the row has no image: name it, or remove the row"));
        }
        let path = self.folder.join(&name);
        if !path.is_file() {
            return Err(bad(&format!("the folder has no file \"{}\"", name.escape_debug())));
        }
        self.names.insert(hash(&name));
        contents(&path)
    }

    /// Refuses images without a row, which the result would not have.
    fn check_all_images(&self) -> Result<(), ConvertError> {
        for image in ImageWalk::new(&self.folder)? {
            let image = image?;
            if !self.names.contains(&hash(&image.relative)) {
                let name = self.table.file_name().unwrap_or_default().to_string_lossy();
                let reason = format!("{name} has no row for it: add one, or move the image");
                return Err(ConvertError::File { path: image.path, reason });
            }
        }
        Ok(())
    }
}

fn hash(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}
