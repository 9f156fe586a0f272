//! MDS, the format of `MosaicML` Streaming: folders of shards with an index → batches.

mod columns;
pub(crate) mod index;
mod shard;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow::{
    array::RecordBatch,
    datatypes::{Schema, SchemaRef},
};

use crate::{
    batches::{BATCH_BYTES, BATCH_ROWS, Batches, FileReader, batches},
    error::ConvertError,
    input::ReadBytes,
    json_type::Mismatch,
    mds::{
        columns::{MdsColumn, MdsKind},
        index::{MdsIndex, MdsShard},
        shard::ShardSamples,
    },
    options::Options,
    raw_column::RawKind,
    sources::SourceFile,
};

/// Folders of shards with a common schema.
pub(crate) struct MdsFolders {
    folders: Vec<(PathBuf, Arc<MdsIndex>)>,
    columns: Arc<[MdsColumn]>,
    schema: SchemaRef,
}

/// The rows of a folder.
struct MdsBatches {
    folder: PathBuf,
    index: Arc<MdsIndex>,
    columns: Arc<[MdsColumn]>,
    schema: SchemaRef,
    read: ReadBytes,
    /// Shards that were opened.
    opened: usize,
    samples: Option<ShardSamples>,
}

// === impl MdsFolders ===

impl MdsFolders {
    /// Reads the index of every folder, and the first documents of JSON.
    pub(crate) fn open(files: &[SourceFile], options: &Arc<Options>) -> Result<Self, ConvertError> {
        let (mut folders, mut columns) = (Vec::new(), None::<Vec<MdsColumn>>);
        for SourceFile { path, .. } in files {
            let file = |reason: String| ConvertError::File { path: path.clone(), reason };
            let index = MdsIndex::load(path).map_err(file)?;
            for shard in &index.shards {
                let found = columns_of(shard, options).map_err(file)?;
                let known = columns.get_or_insert_with(|| found.clone());
                let identity = |column: &MdsColumn| (column.name.clone(), column.encoding.clone());
                if !found.iter().map(identity).eq(known.iter().map(identity)) {
                    let reason = format!(
                        "its shard \"{}\" has other columns than the first: convert it separately",
                        shard.name()
                    );
                    return Err(file(reason));
                }
            }
            folders.push((path.clone(), Arc::new(index)));
        }
        let path = files.first().map(|file| file.path.clone()).unwrap_or_default();
        let mut columns = columns.ok_or(ConvertError::File { path, reason: "it has no shards".to_owned() })?;
        options.check_types(columns.iter().map(|column| column.name.as_str()))?;
        infer(&folders, &mut columns, options.infer_rows)?;
        let schema = Arc::new(Schema::new(columns.iter().map(MdsColumn::field).collect::<Vec<_>>()));
        Ok(Self { folders, columns: columns.into(), schema })
    }
}

impl FileReader for MdsFolders {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn read(&self, file: &SourceFile, read: &ReadBytes) -> Result<Batches, ConvertError> {
        let folder = self.folders.iter().find(|(path, _)| *path == file.path);
        let (folder, index) = folder.ok_or_else(|| ConvertError::Reader("a folder was not opened".to_owned()))?;
        let mut rows = MdsBatches {
            folder: folder.clone(),
            index: Arc::clone(index),
            columns: Arc::clone(&self.columns),
            schema: Arc::clone(&self.schema),
            read: Arc::clone(read),
            opened: 0,
            samples: None,
        };
        Ok(batches(move || rows.batch()))
    }
}

/// The columns of a shard; an error is the reason.
fn columns_of(shard: &MdsShard, options: &Options) -> Result<Vec<MdsColumn>, String> {
    let mut columns: Vec<MdsColumn> = Vec::with_capacity(shard.column_names.len());
    let stored = shard.column_names.iter().zip(&shard.column_encodings).zip(&shard.column_sizes);
    for ((name, encoding), size) in stored {
        let column = MdsColumn::new(name, encoding, options)?;
        if column.value_bytes() != *size {
            return Err(format!("column \"{name}\" has another size than its encoding {encoding}"));
        }
        if columns.iter().any(|other| other.name == *name) {
            return Err(format!("two columns have the name \"{name}\""));
        }
        columns.push(column);
    }
    if columns.is_empty() { Err(format!("its shard \"{}\" has no columns", shard.name())) } else { Ok(columns) }
}

/// Infers the types of documents from the first samples.
fn infer(
    folders: &[(PathBuf, Arc<MdsIndex>)],
    columns: &mut [MdsColumn],
    mut rows_left: usize,
) -> Result<(), ConvertError> {
    if columns.iter().all(|column| !matches!(column.kind, MdsKind::Raw(RawKind::Json(_)))) {
        return Ok(());
    }
    let shards = folders.iter().flat_map(|(folder, index)| index.shards.iter().map(move |shard| (folder, shard)));
    for (folder, shard) in shards {
        if rows_left == 0 {
            break;
        }
        let mut samples = ShardSamples::open(folder, shard, &ReadBytes::default())?;
        while rows_left > 0
            && let Some(sample) = samples.next_sample()?
        {
            rows_left -= 1;
            let values =
                split(&sample, columns).map_err(|reason| samples.bad_sample(samples.number(), None, reason))?;
            for (column, value) in columns.iter_mut().zip(values) {
                if let MdsKind::Raw(kind) = &mut column.kind {
                    kind.add(value, &column.name).map_err(|Mismatch { path, reason }| {
                        let advice = format!(": set --type {}=string to keep the documents as text", column.name);
                        samples.bad_sample(samples.number(), Some(&path), reason + &advice)
                    })?;
                }
            }
        }
    }
    Ok(())
}

/// The values of a sample, which begins with the sizes of those that vary. An error is the reason.
fn split<'a>(sample: &'a [u8], columns: &[MdsColumn]) -> Result<Vec<&'a [u8]>, String> {
    let misfit = || "the sizes of its values are not that of the sample: the shard is damaged".to_owned();
    let (mut rest, mut sizes) = (sample, Vec::with_capacity(columns.len()));
    for column in columns {
        let Some(bytes) = column.value_bytes() else {
            let (size, after) = rest.split_first_chunk().ok_or_else(misfit)?;
            rest = after;
            sizes.push(u32::from_le_bytes(*size) as usize);
            continue;
        };
        sizes.push(bytes as usize);
    }
    let mut values = Vec::with_capacity(columns.len());
    for size in sizes {
        let (value, after) = rest.split_at_checked(size).ok_or_else(misfit)?;
        values.push(value);
        rest = after;
    }
    if rest.is_empty() { Ok(values) } else { Err(misfit()) }
}

// === impl MdsBatches ===

impl MdsBatches {
    fn batch(&mut self) -> Result<Option<RecordBatch>, ConvertError> {
        loop {
            let mut samples = match self.samples.take() {
                Some(samples) => samples,
                None => match self.index.shards.get(self.opened) {
                    Some(shard) => {
                        self.opened += 1;
                        ShardSamples::open(Path::new(&self.folder), shard, &self.read)?
                    }
                    None => return Ok(None),
                },
            };
            let first = samples.number() + 1;
            let (mut rows, mut bytes) = (Vec::new(), 0);
            while rows.len() < BATCH_ROWS && bytes < BATCH_BYTES {
                let Some(sample) = samples.next_sample()? else { break };
                bytes += sample.len();
                rows.push(sample);
            }
            if !rows.is_empty() {
                let batch = self.batch_of(&rows, first, &samples)?;
                self.samples = Some(samples);
                return Ok(Some(batch));
            }
        }
    }

    fn batch_of(&self, rows: &[Vec<u8>], first: usize, samples: &ShardSamples) -> Result<RecordBatch, ConvertError> {
        let mut values: Vec<Vec<&[u8]>> = vec![Vec::with_capacity(rows.len()); self.columns.len()];
        for (row, sample) in rows.iter().enumerate() {
            let split = split(sample, &self.columns);
            let split = split.map_err(|reason| samples.bad_sample(first + row, None, reason))?;
            values.iter_mut().zip(split).for_each(|(values, value)| values.push(value));
        }
        let columns = self.columns.iter().zip(&values).map(|(column, values)| {
            column.convert(values).map_err(|bad| {
                let advice = format!(": raise --infer-rows, or set --type {}=", column.name);
                let advice = match &column.kind {
                    MdsKind::Raw(RawKind::Json(_)) => advice + "string",
                    MdsKind::Raw(_) => format!(": set --type {}=binary", column.name),
                    _ => String::new(),
                };
                samples.bad_sample(first + bad.row, Some(&column.name), bad.reason + &advice)
            })
        });
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(ConvertError::Batch)
    }
}
