//! Folders of images → batches: the bytes of each file, the name of its folder as the label, its path, and its caption;
//! or the bytes and the row of a table.

mod contents;
mod table;
pub(crate) mod walk;

use std::{
    path::Path,
    sync::{Arc, atomic::Ordering},
};

use arrow::{
    array::{ArrayRef, BinaryBuilder, RecordBatch, StringBuilder},
    datatypes::{DataType, Field, Schema, SchemaRef},
};

use crate::{
    batches::{BATCH_BYTES, BATCH_ROWS, Batches, FileReader, batches},
    error::ConvertError,
    image_folder::{
        contents::contents,
        table::ImageTables,
        walk::{ImageFile, ImageWalk, tables_of},
    },
    input::ReadBytes,
    options::Options,
    sources::SourceFile,
};

/// Folders of images without tables.
struct ImageFolders {
    columns: ImageColumns,
}

/// The columns that the images have.
#[derive(Clone, Copy, Debug, Default)]
struct ImageColumns {
    has_label: bool,
    has_caption: bool,
}

/// The rows of a folder.
struct ImageBatches {
    columns: ImageColumns,
    images: ImageWalk,
    read: ReadBytes,
}

/// The columns of a batch.
#[derive(Default)]
struct ImageRows {
    images: BinaryBuilder,
    labels: StringBuilder,
    paths: StringBuilder,
    captions: StringBuilder,
    count: usize,
    bytes: usize,
}

/// Opens folders that have a table, or none of which has one.
pub(crate) fn open(folders: &[SourceFile], options: &Arc<Options>) -> Result<Box<dyn FileReader>, ConvertError> {
    if folders.iter().any(|folder| !tables_of(&folder.path).is_empty()) {
        return Ok(Box::new(ImageTables::open(folders, options)?));
    }
    Ok(Box::new(ImageFolders::open(folders, options)?))
}

// === impl ImageFolders ===

impl ImageFolders {
    /// Finds whether there are labels and captions.
    fn open(folders: &[SourceFile], options: &Options) -> Result<Self, ConvertError> {
        if let Some((name, _)) = options.types.first() {
            return Err(ConvertError::Usage(format!("--type {name}=…: folders of images have fixed types")));
        }
        let mut columns = ImageColumns::default();
        for SourceFile { path, .. } in folders {
            for image in ImageWalk::new(path)? {
                let image = image?;
                columns.has_label |= image.label().is_some();
                columns.has_caption |= image.caption.is_some();
            }
        }
        Ok(Self { columns })
    }
}

impl FileReader for ImageFolders {
    fn schema(&self) -> SchemaRef {
        self.columns.schema()
    }

    fn read(&self, folder: &SourceFile, read: &ReadBytes) -> Result<Batches, ConvertError> {
        let images = ImageWalk::new(&folder.path)?;
        let mut rows = ImageBatches { columns: self.columns, images, read: Arc::clone(read) };
        Ok(batches(move || rows.batch()))
    }
}

// === impl ImageColumns ===

impl ImageColumns {
    fn schema(self) -> SchemaRef {
        let column = |name: &str, kind: DataType, is_nullable: bool| Field::new(name, kind, is_nullable);
        let fields = [
            Some(column("image", DataType::Binary, false)),
            self.has_label.then(|| column("label", DataType::Utf8, true)),
            Some(column("path", DataType::Utf8, false)),
            self.has_caption.then(|| column("caption", DataType::Utf8, true)),
        ];
        Arc::new(Schema::new(fields.into_iter().flatten().collect::<Vec<_>>()))
    }
}

// === impl ImageBatches ===

impl ImageBatches {
    fn batch(&mut self) -> Result<Option<RecordBatch>, ConvertError> {
        let mut rows = ImageRows::default();
        while rows.count < BATCH_ROWS && rows.bytes < BATCH_BYTES {
            let Some(image) = self.images.next().transpose()? else { break };
            rows.add(&image)?;
            self.read.fetch_add(image.bytes, Ordering::Relaxed);
        }
        if rows.count == 0 { Ok(None) } else { rows.finish(self.columns).map(Some) }
    }
}

// === impl ImageRows ===

impl ImageRows {
    fn add(&mut self, image: &ImageFile) -> Result<(), ConvertError> {
        let bytes = contents(&image.path)?;
        self.images.append_value(&bytes);
        self.labels.append_option(image.label());
        self.paths.append_value(&image.relative);
        let caption = image.caption.as_deref().map(text).transpose()?;
        self.count += 1;
        self.bytes += bytes.len() + caption.as_ref().map_or(0, String::len);
        self.captions.append_option(caption);
        Ok(())
    }

    fn finish(mut self, columns: ImageColumns) -> Result<RecordBatch, ConvertError> {
        let arrays: [Option<ArrayRef>; 4] = [
            Some(Arc::new(self.images.finish())),
            columns.has_label.then(|| -> ArrayRef { Arc::new(self.labels.finish()) }),
            Some(Arc::new(self.paths.finish())),
            columns.has_caption.then(|| -> ArrayRef { Arc::new(self.captions.finish()) }),
        ];
        RecordBatch::try_new(columns.schema(), arrays.into_iter().flatten().collect()).map_err(ConvertError::Batch)
    }
}

fn text(path: &Path) -> Result<String, ConvertError> {
    String::from_utf8(contents(path)?).map_err(|_| {
        let reason = "the caption is not UTF-8: convert the file, for example with iconv".to_owned();
        ConvertError::File { path: path.to_owned(), reason }
    })
}
