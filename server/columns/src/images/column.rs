//! What a plan computes from a column of images.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, FixedSizeListArray, Int32Array, UInt8Array, new_empty_array},
    buffer::NullBuffer,
    compute::concat,
    datatypes::{DataType, Field},
};
use forebay_media::{ImageBytes, ImageDecoder, ImageKey, ImageProblem, ImageRows, ImageSpec, box_type};
use forebay_runtime::{
    budget::{Budget, Reservation},
    metrics,
};
use futures::{StreamExt as _, TryStreamExt as _, stream};

use super::{
    ImagePool, OnError,
    error::ImagesError,
    jobs::{Headers, ImageJob, jobs, rows},
    orientation::Turning,
};

/// What is computed from images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImagePart {
    /// Their tensors.
    Tensors,
    /// Their bytes, as stored.
    Bytes,
    /// The boxes that are shown of them.
    Boxes,
    /// Whether they are mirrored.
    Flips,
}

/// A column that is computed from a column of images.
#[derive(Clone, Debug)]
pub struct ImageColumn {
    /// The column of images, for errors.
    pub column: String,
    /// What is computed.
    pub part: ImagePart,
    /// Decodes.
    pub decoder: Arc<ImageDecoder>,
    /// What happens to bytes that are not a whole image.
    pub on_error: OnError,
    /// How images are turned.
    pub turning: Turning,
    /// The threads that decode.
    pub pool: ImagePool,
}

/// A computed column, and its memory.
#[derive(Debug)]
pub struct ImageValues {
    /// A value per row.
    pub array: ArrayRef,
    /// The memory of the values.
    pub held: Vec<Reservation>,
}

/// The images of a block of rows.
#[derive(Debug)]
struct ImageBlock {
    images: ImageBytes,
    headers: Headers,
    keys: Vec<ImageKey>,
}

// === impl ImagePart ===

impl ImagePart {
    /// The field of a column of this name, computed from a column of images.
    pub fn field(self, name: &str, spec: &ImageSpec, on_error: OnError, images: &Field) -> Field {
        // A struct without nulls may have null bytes.
        let may_be_null = images.is_nullable() || matches!(images.data_type(), DataType::Struct(_));
        match self {
            Self::Tensors => {
                let makes_nulls = spec.fill.is_none() && (may_be_null || on_error == OnError::Null);
                spec.field(name).with_nullable(makes_nulls)
            }
            Self::Bytes => {
                Field::new(name, ImageBytes::data_type(images.data_type()).unwrap_or(DataType::Binary), true)
            }
            Self::Boxes => Field::new(name, box_type(), may_be_null),
            Self::Flips => Field::new(name, DataType::UInt8, false),
        }
    }
}

// === impl ImageColumn ===

impl ImageColumn {
    /// The values of images, which are turned like those of other columns. `keys` has one per row. Errors name rows of the
    /// array.
    pub async fn of(
        &self,
        (images, others): (&ArrayRef, &[ArrayRef]),
        keys: Vec<ImageKey>,
        budget: &Budget,
    ) -> Result<ImageValues, ImagesError> {
        let of_bytes = |array: ArrayRef| ImageValues { array, held: Vec::new() };
        match self.part {
            ImagePart::Tensors => self.tensors((images, others), keys, budget).await,
            ImagePart::Bytes => Ok(of_bytes(ImageBytes::array(images)?)),
            ImagePart::Flips => {
                let spec = self.decoder.spec();
                Ok(of_bytes(Arc::new(keys.iter().map(|key| Some(u8::from(spec.flips(*key)))).collect::<UInt8Array>())))
            }
            ImagePart::Boxes => {
                let (column, images, others) = (self.clone(), ImageBytes::of(images)?, of_all(others)?);
                Ok(of_bytes(self.pool.cpu.run(move || column.boxes(&images, &others, &keys)).await??))
            }
        }
    }

    /// The rows whose image cannot be decoded, as the plan's choice for them is made from. Counts nothing.
    pub async fn failing(
        &self,
        (images, others): (&ArrayRef, &[ArrayRef]),
        keys: Vec<ImageKey>,
        budget: &Budget,
    ) -> Result<Vec<usize>, ImagesError> {
        let block = Arc::new(self.block(images, others, keys).await?);
        let failed = match self.part {
            ImagePart::Tensors => self.decoded(&block, budget).await?.into_iter().flat_map(|done| done.1).collect(),
            ImagePart::Bytes | ImagePart::Boxes | ImagePart::Flips => damaged(&block.headers),
        };
        Ok(failed.into_iter().map(|(row, _)| row).collect())
    }

    async fn tensors(
        &self,
        (images, others): (&ArrayRef, &[ArrayRef]),
        keys: Vec<ImageKey>,
        budget: &Budget,
    ) -> Result<ImageValues, ImagesError> {
        let spec = self.decoder.spec();
        if images.is_empty() {
            return Ok(ImageValues { array: new_empty_array(&spec.data_type()), held: Vec::new() });
        }
        let count = images.len();
        let block = Arc::new(self.block(images, others, keys).await?);
        let done = self.decoded(&block, budget).await?;
        drop(block);
        let (mut arrays, mut held) = (Vec::with_capacity(done.len()), Vec::with_capacity(done.len()));
        for (array, failed, memory) in done {
            self.judge(failed)?;
            arrays.push(array);
            held.push(memory);
        }
        if arrays.len() == 1 {
            return Ok(ImageValues { array: arrays.remove(0), held });
        }
        let bytes = (count as u64).saturating_mul(spec.tensor_bytes());
        let whole = budget.reserve(bytes);
        let whole =
            whole.map_err(|source| ImagesError::Tensors { column: self.column.clone(), rows: count, source })?;
        let joined = move || concat(&arrays.iter().map(AsRef::as_ref).collect::<Vec<_>>());
        Ok(ImageValues { array: self.pool.cpu.run(joined).await??, held: vec![whole] })
    }

    /// Reads the headers of images.
    async fn block(
        &self,
        images: &ArrayRef,
        others: &[ArrayRef],
        keys: Vec<ImageKey>,
    ) -> Result<ImageBlock, ImagesError> {
        let (turning, images, others) = (self.turning, ImageBytes::of(images)?, of_all(others)?);
        let read = move || ImageBlock { headers: turning.of(&images, &others), images, keys };
        Ok(self.pool.cpu.run(read).await?)
    }

    /// The tensors of each job, the rows that failed, and the memory of the tensors.
    async fn decoded(
        &self,
        block: &Arc<ImageBlock>,
        budget: &Budget,
    ) -> Result<Vec<(ArrayRef, Vec<(usize, ImageProblem)>, Reservation)>, ImagesError> {
        let jobs = jobs(&block.headers, &block.keys, self.decoder.spec());
        let jobs = jobs.into_iter().map(|job| self.job(Arc::clone(block), job, budget));
        stream::iter(jobs).buffered(self.pool.cpu.threads().max(1)).try_collect().await
    }

    async fn job(
        &self,
        block: Arc<ImageBlock>,
        job: ImageJob,
        budget: &Budget,
    ) -> Result<(ArrayRef, Vec<(usize, ImageProblem)>, Reservation), ImagesError> {
        // Never closed.
        let _permit = self.pool.permits.acquire().await;
        let ImageJob { rows: range, bytes, largest: (row, width, height) } = job;
        let memory = budget.reserve(bytes);
        let mut memory =
            memory.map_err(|source| ImagesError::Memory { column: self.column.clone(), row, width, height, source })?;
        let (decoder, first) = (Arc::clone(&self.decoder), range.start);
        let decode = move || decoder.decode(rows(&block.images, &block.headers, &block.keys, range));
        let ImageRows { tensors, failed } = self.pool.cpu.run(decode).await??;
        memory.resize(tensors.get_array_memory_size() as u64);
        Ok((tensors, failed.into_iter().map(|(row, problem)| (first + row, problem)).collect(), memory))
    }

    fn boxes(&self, images: &ImageBytes, others: &[ImageBytes], keys: &[ImageKey]) -> Result<ArrayRef, ImagesError> {
        let (spec, headers) = (self.decoder.spec(), self.turning.of(images, others));
        self.judge(damaged(&headers))?;
        let (mut values, mut is_valid) = (Vec::with_capacity(4 * headers.len()), Vec::with_capacity(headers.len()));
        for (header, key) in headers.iter().zip(keys) {
            let found = header.as_ref().and_then(|header| header.as_ref().ok());
            is_valid.push(found.is_some());
            values.extend(found.map_or([0; 4], |header| ImageSpec::whole_box(&spec.view(header, *key))));
        }
        let DataType::FixedSizeList(item, length) = box_type() else { return Ok(new_empty_array(&box_type())) };
        let nulls = Some(NullBuffer::from(is_valid)).filter(|nulls| nulls.null_count() > 0);
        let values = Arc::new(Int32Array::from(values));
        Ok(Arc::new(FixedSizeListArray::try_new(item, length, values, nulls)?))
    }

    /// Counts images that cannot be decoded, and fails if the plan does not accept them. The rows that a plan skips were
    /// left out before.
    fn judge(&self, failed: Vec<(usize, ImageProblem)>) -> Result<(), ImagesError> {
        if failed.is_empty() {
            return Ok(());
        }
        if self.on_error == OnError::Null {
            metrics::image_errors(self.on_error.label(), failed.len() as u64);
            return Ok(());
        }
        metrics::image_errors(OnError::Fail.label(), 1);
        let first = failed.into_iter().next();
        first.map_or(Ok(()), |(row, problem)| Err(ImagesError::Image { column: self.column.clone(), row, problem }))
    }
}

/// The bytes of columns of images.
fn of_all(columns: &[ArrayRef]) -> Result<Vec<ImageBytes>, ImagesError> {
    columns.iter().map(|column| Ok(ImageBytes::of(column)?)).collect()
}

/// The rows whose header cannot be read.
fn damaged(headers: &Headers) -> Vec<(usize, ImageProblem)> {
    let found = headers.iter().enumerate();
    found.filter_map(|(row, header)| Some((row, header.as_ref()?.as_ref().err()?.clone()))).collect()
}
