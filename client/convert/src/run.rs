//! A conversion from end to end: one thread reads, another encodes, and at most two batches wait between them.

use std::{
    any::Any,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{SyncSender, sync_channel},
    },
    thread,
};

use arrow::array::RecordBatch;

#[cfg(feature = "avro")]
use crate::avro::AvroFiles;
#[cfg(feature = "tfrecord")]
use crate::tfrecord::TfRecordFiles;
use crate::{
    arrow_file::ArrowFiles,
    batches::FileReader,
    csv_file::CsvFiles,
    destination::Destination,
    error::ConvertError,
    format::Format,
    image_folder,
    input::ReadBytes,
    json_file::JsonFiles,
    mds::MdsFolders,
    options::Options,
    orc::OrcFiles,
    parquet_file::ParquetFiles,
    sources::{self, SourceFile, Sources},
    type_name,
    webdataset::TarFiles,
    writer::{ParquetWriter, Written},
};

/// Batches between the reader and the encoder.
const QUEUE_BATCHES: usize = 2;

/// How far a conversion is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Bytes read so far.
    pub read_bytes: u64,
    /// Bytes of all files.
    pub total_bytes: u64,
    /// Rows encoded.
    pub rows: u64,
    /// Bytes written.
    pub bytes: u64,
}

/// What a conversion is about to do.
#[derive(Clone, Debug)]
pub struct Start {
    /// The format of the sources.
    pub format: Format,
    /// Files to read.
    pub sources: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Names of the columns, and their types as in pyarrow.
    pub columns: Vec<(String, String)>,
}

/// What a conversion wrote.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The absolute path of the folder.
    pub out: PathBuf,
    /// The format of the sources.
    pub format: Format,
    /// Files that were read.
    pub sources: u64,
    /// Rows.
    pub rows: u64,
    /// Row groups.
    pub row_groups: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Files.
    pub files: u64,
}

/// Converts files. Calls `start` before the first row is written. Ends with [`ConvertError::Stopped`] soon after `stop`
/// is set.
pub fn convert(
    options: &Arc<Options>,
    stop: &AtomicBool,
    start: impl FnOnce(&Start),
    progress: impl FnMut(Progress),
) -> Result<Outcome, ConvertError> {
    let Sources { format, files } = sources::find(options)?;
    check_options(options, format)?;
    let destination = Destination::create(&options.out, options.replace)?;
    let reader: Box<dyn FileReader> = match format {
        Format::Csv => Box::new(CsvFiles::open(&files, options)?),
        Format::JsonLines => Box::new(JsonFiles::open(&files, options)?),
        Format::Arrow => Box::new(ArrowFiles::open(&files)?),
        Format::Parquet => Box::new(ParquetFiles::open(&files)?),
        Format::Images => image_folder::open(&files, options)?,
        Format::Mds => Box::new(MdsFolders::open(&files, options)?),
        Format::WebDataset => Box::new(TarFiles::open(&files, options)?),
        Format::Orc => Box::new(OrcFiles::open(&files, options)?),
        #[cfg(feature = "avro")]
        Format::Avro => Box::new(AvroFiles::open(&files)?),
        #[cfg(feature = "tfrecord")]
        Format::TfRecord => Box::new(TfRecordFiles::open(&files, options)?),
        #[cfg(not(feature = "tfrecord"))]
        Format::TfRecord => return Err(without_feature(format)),
        #[cfg(not(feature = "avro"))]
        Format::Avro => return Err(without_feature(format)),
    };
    let schema = reader.schema();
    let columns = schema.fields().iter().map(|field| (field.name().clone(), type_name::name(field.data_type())));
    let bytes = files.iter().map(|file| file.bytes).sum();
    start(&Start { format, sources: files.len() as u64, bytes, columns: columns.collect() });
    let writer = ParquetWriter::new(options, destination.folder(), schema);
    let Written { rows, row_groups, bytes, files: count } = copy(&*reader, &files, writer, stop, progress)?;
    let out = destination.path().to_owned();
    destination.publish()?;
    Ok(Outcome { out, format, sources: files.len() as u64, rows, row_groups, bytes, files: count })
}

#[cfg(not(all(feature = "avro", feature = "tfrecord")))]
fn without_feature(format: Format) -> ConvertError {
    ConvertError::Usage(format!("this program was built without the feature {}", format.name()))
}

fn check_options(options: &Options, format: Format) -> Result<(), ConvertError> {
    if !options.types.is_empty() && matches!(format, Format::Arrow | Format::Parquet | Format::Avro | Format::Orc) {
        let reason = format!("--type does not apply: {} files have types", format.name());
        return Err(ConvertError::Usage(reason));
    }
    Ok(())
}

fn copy(
    reader: &dyn FileReader,
    files: &[SourceFile],
    mut writer: ParquetWriter<'_>,
    stop: &AtomicBool,
    mut progress: impl FnMut(Progress),
) -> Result<Written, ConvertError> {
    let read = ReadBytes::default();
    let total_bytes = files.iter().map(|file| file.bytes).sum();
    let read = &read;
    thread::scope(|scope| {
        let (sender, batches) = sync_channel(QUEUE_BATCHES);
        let reading = scope.spawn(move || read_all(reader, files, read, stop, &sender));
        // An error here drops the queue, which ends the reader.
        for batch in batches {
            writer.write(&batch)?;
            let Written { rows, bytes, .. } = writer.written();
            progress(Progress { read_bytes: read.load(Ordering::Relaxed), total_bytes, rows, bytes });
        }
        // A library may panic on a damaged file.
        reading.join().map_err(|panic| ConvertError::Reader(text_of(&*panic)))??;
        if stop.load(Ordering::Relaxed) { Err(ConvertError::Stopped) } else { writer.finish() }
    })
}

fn read_all(
    reader: &dyn FileReader,
    files: &[SourceFile],
    read: &ReadBytes,
    stop: &AtomicBool,
    batches: &SyncSender<RecordBatch>,
) -> Result<(), ConvertError> {
    for file in files {
        for batch in reader.read(file, read)? {
            if stop.load(Ordering::Relaxed) || batches.send(batch?).is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("it panicked").to_owned()
}
