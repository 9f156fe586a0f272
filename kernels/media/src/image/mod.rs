//! Images: bytes of a JPEG, PNG, WebP or GIF image → a tensor of one size.
//!
//! An [`ImageHeader`] says what memory a decoder needs, and an [`ImageView`] what is shown of the image, both before a pixel is
//! decoded. An [`ImageDecoder`] writes the tensors of a run of rows. Unless stated otherwise, the pixels are those of
//! Pillow: `ImageOps.exif_transpose`, `convert`, a crop, `resize`. Nothing here is parallel: the caller divides the rows.
//!
//! Without the feature `images` every image is refused.

#[cfg(not(feature = "images"))]
mod absent;
mod bytes;
#[cfg(feature = "images")]
mod decode;
mod draw;
mod error;
mod exif;
mod exponential;
mod header;
#[cfg(feature = "images")]
mod pixels;
mod spec;
#[cfg(test)]
#[cfg(feature = "images")]
mod tests;
mod view;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::{
    array::{ArrayRef, FixedSizeListArray, Float32Array, UInt8Array},
    buffer::{NullBuffer, ScalarBuffer},
    datatypes::{DataType, Field},
    error::ArrowError,
};

pub use bytes::ImageBytes;
pub use draw::ImageKey;
pub use error::ImageProblem;
pub use exif::Orientation;
pub use header::{IMAGE_PIXELS_MAX, ImageFormat, ImageHeader, JpegFrame};
pub use spec::{IMAGE_VALUES_MAX, ImageSpec, Normalize, Resample};
pub use view::{Crop, CropBox, ImageView};

#[cfg(not(feature = "images"))]
use absent::{DecodeScratch, decode};
#[cfg(feature = "images")]
use decode::{DecodeScratch, decode};

/// Decodes images for an op.
#[derive(Debug)]
pub struct ImageDecoder {
    spec: ImageSpec,
    /// The value of each of 256 levels per channel, if the op normalizes.
    levels: Vec<[f32; 256]>,
    /// Memory of runs that have ended, one for each thread that decoded at the same time.
    scratches: Mutex<Vec<DecodeScratch>>,
}

/// The tensors of a run of rows.
#[derive(Debug)]
pub struct ImageRows {
    /// A tensor per row. Rows that failed are null or filled.
    pub tensors: ArrayRef,
    /// The rows that have no pixels, and why.
    pub failed: Vec<(usize, ImageProblem)>,
}

/// An image of a run of rows.
#[derive(Debug)]
pub enum ImageRow<'a> {
    /// Null.
    Null,
    /// An image whose header was read.
    Image(&'a [u8], ImageHeader, ImageKey),
    /// Bytes that have no header.
    Failed(ImageProblem),
}

// === impl ImageDecoder ===

impl ImageDecoder {
    /// Whether this build decodes images.
    pub const IS_BUILT: bool = cfg!(feature = "images");

    /// A decoder for an op.
    pub fn new(spec: ImageSpec) -> Self {
        let levels = spec.normalize.as_ref().map_or_else(Vec::new, |normalize| {
            let channels = normalize.mean.iter().zip(&normalize.std);
            channels
                .map(|(mean, std)| std::array::from_fn(|level| ((level as f64 / 255.0 - mean) / std) as f32))
                .collect()
        });
        Self { spec, levels, scratches: Mutex::default() }
    }

    /// What the decoder makes of images.
    pub fn spec(&self) -> &ImageSpec {
        &self.spec
    }

    /// The tensors of a run of rows.
    pub fn decode(&self, rows: Vec<ImageRow>) -> Result<ImageRows, ArrowError> {
        let (count, width) = (rows.len(), self.spec.value_count());
        let mut pixels = vec![0; count * width];
        let (mut failed, mut is_valid) = (Vec::new(), vec![true; count]);
        let mut scratch = self.scratches().pop().unwrap_or_default();
        for (row, (image, out)) in rows.into_iter().zip(pixels.chunks_exact_mut(width)).enumerate() {
            let decoded = match image {
                ImageRow::Image(bytes, header, key) => {
                    let view = self.spec.view(&header, key);
                    decode(bytes, &header, &view, &self.spec, &mut scratch, out)
                }
                ImageRow::Failed(problem) => Err(problem),
                ImageRow::Null => {
                    is_valid[row] = false;
                    continue;
                }
            };
            if let Err(problem) = decoded {
                is_valid[row] = false;
                failed.push((row, problem));
            }
        }
        self.scratches().push(scratch);
        Ok(ImageRows { tensors: self.assembled(pixels, &is_valid)?, failed })
    }

    fn scratches(&self) -> MutexGuard<'_, Vec<DecodeScratch>> {
        self.scratches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The column of the pixels.
    fn assembled(&self, mut pixels: Vec<u8>, is_valid: &[bool]) -> Result<ArrayRef, ArrowError> {
        let width = self.spec.value_count();
        let fill = self.spec.fill;
        let invalid = || (0..is_valid.len()).filter(|row| !is_valid[*row]).map(|row| row * width..(row + 1) * width);
        let values: ArrayRef = if self.levels.is_empty() {
            // A fill that is not a byte is left to the chain.
            invalid().for_each(|values| pixels[values].fill(fill.unwrap_or(0.0) as u8));
            Arc::new(UInt8Array::new(ScalarBuffer::from(pixels), None))
        } else {
            let channels = self.levels.len();
            let scaled = pixels.chunks_exact(channels);
            let scaled =
                scaled.flat_map(|pixel| pixel.iter().zip(&self.levels).map(|(level, of)| of[usize::from(*level)]));
            let mut scaled: Vec<f32> = scaled.collect();
            invalid().for_each(|values| scaled[values].fill(fill.unwrap_or(0.0)));
            Arc::new(Float32Array::new(ScalarBuffer::from(scaled), None))
        };
        let nulls = fill.is_none().then(|| NullBuffer::from(is_valid)).filter(|nulls| nulls.null_count() > 0);
        let item = Arc::new(Field::new("item", self.spec.item_type(), false));
        let tensors = FixedSizeListArray::try_new(item, i32::try_from(width).unwrap_or(i32::MAX), values, nulls)?;
        Ok(Arc::new(tensors))
    }
}

/// The type of the boxes of views: left, top, width and height.
pub fn box_type() -> DataType {
    DataType::FixedSizeList(Arc::new(Field::new("item", DataType::Int32, false)), 4)
}
