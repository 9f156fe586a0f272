//! What an op makes of images: the shape and the values of its tensors, and the memory that an image needs.

use std::{collections::HashMap, sync::Arc};

use arrow::datatypes::{DataType, Field};
use forebay_kernels::{FIXED_WIDTH_MAX, SHAPE_KEY};

use super::{
    draw::ImageKey,
    header::ImageHeader,
    view::{self, Crop, ImageView},
};

/// The most values of a tensor: 2^24, such as 2364 × 2364 × 3.
pub const IMAGE_VALUES_MAX: u64 = FIXED_WIDTH_MAX as u64;

/// Bytes that a decoder takes for a pixel: a progressive JPEG of four components has 8 of coefficients, 4 decoded and 3 of
/// RGB; PNG, WebP and GIF need less.
const DECODER_BYTES_PER_PIXEL: u64 = 16;

/// Bytes of a decoder besides those of pixels: tables and rows.
const DECODER_BYTES: u64 = 256 << 10;

/// Bytes for each row and column of the image and of the tensor: the weights of a resize, six of 8 bytes for Lanczos, and
/// the coefficients of a row of blocks of a JPEG image.
const WEIGHT_BYTES: u64 = 256;

/// How an image is resized: Pillow's filters of these names, which average over all pixels that a result covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resample {
    /// The nearest pixel.
    Nearest,
    /// A triangle.
    Bilinear,
    /// A cubic with a = −½.
    Bicubic,
    /// A sinc over three periods, windowed.
    Lanczos,
    /// A rectangle.
    Box,
    /// A windowed sinc.
    Hamming,
}

/// Scales every channel: (x / 255 − mean) / std.
#[derive(Clone, Debug, PartialEq)]
pub struct Normalize {
    /// One mean per channel.
    pub mean: Vec<f64>,
    /// One deviation per channel, none of them 0.
    pub std: Vec<f64>,
}

/// What an op makes of images.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageSpec {
    /// Rows of the tensor.
    pub height: u32,
    /// Columns of the tensor.
    pub width: u32,
    /// 1, greyscale, or 3, RGB.
    pub channels: u32,
    /// How the part that is shown becomes that size.
    pub resample: Resample,
    /// The part that is shown.
    pub crop: Crop,
    /// Whether every second image is mirrored.
    pub flip: bool,
    /// The seed of the op's draws.
    pub seed: u64,
    /// Set: the values are FLOAT32.
    pub normalize: Option<Normalize>,
    /// The value of every element in place of null.
    pub fill: Option<f32>,
}

// === impl ImageSpec ===

impl ImageSpec {
    /// Whether the result depends on seed, epoch and row.
    pub fn is_random(&self) -> bool {
        self.flip || matches!(self.crop, Crop::Random { .. })
    }

    /// Values of a tensor.
    pub fn value_count(&self) -> usize {
        self.height as usize * self.width as usize * self.channels as usize
    }

    /// Bytes of a tensor.
    pub fn tensor_bytes(&self) -> u64 {
        let value_bytes = if self.normalize.is_some() { size_of::<f32>() } else { 1 };
        (self.value_count() * value_bytes) as u64
    }

    /// The type of the elements.
    pub(super) fn item_type(&self) -> DataType {
        if self.normalize.is_some() { DataType::Float32 } else { DataType::UInt8 }
    }

    /// The type of the tensors: lists of one length.
    pub fn data_type(&self) -> DataType {
        let item = Arc::new(Field::new("item", self.item_type(), false));
        DataType::FixedSizeList(item, i32::try_from(self.value_count()).unwrap_or(i32::MAX))
    }

    /// A column of tensors, from which outputs take the shape.
    pub fn field(&self, name: &str) -> Field {
        let shape = format!("[{},{},{}]", self.height, self.width, self.channels);
        let metadata = HashMap::from([(SHAPE_KEY.to_owned(), shape)]);
        Field::new(name, self.data_type(), true).with_metadata(metadata)
    }

    /// What is shown of an image.
    pub fn view(&self, header: &ImageHeader, key: ImageKey) -> ImageView {
        let draws = view::draws(key, self.seed);
        ImageView::new(header, self.crop, (self.width, self.height), self.flip, &draws)
    }

    /// Whether an image is mirrored.
    pub fn flips(&self, key: ImageKey) -> bool {
        self.flip && view::flips(&view::draws(key, self.seed))
    }

    /// The box of a view in whole pixels: left, top, width and height.
    pub fn whole_box(view: &ImageView) -> [i32; 4] {
        view::rounded(&view.crop)
    }

    /// How many times smaller in both directions an image is decoded: 1, or 4 or 8 for a JPEG image whose part that is
    /// shown is then still twice as large as the tensor. A half saves no time, and no factor does for progressive images, of which
    /// all coefficients are decoded and kept.
    pub(super) fn reduction(&self, header: &ImageHeader, view: &ImageView) -> u32 {
        /// Pixels of the reduced image per row or column of the tensor, at least.
        const GAP: f64 = 2.0;
        let is_plain = header.jpeg.is_some_and(|frame| matches!(frame.components, 1 | 3) && !frame.is_progressive);
        if !is_plain || self.resample == Resample::Nearest {
            return 1;
        }
        let (across, down) = (view.crop.width / f64::from(self.width), view.crop.height / f64::from(self.height));
        let largest = across.min(down) / GAP;
        [8, 4].into_iter().find(|factor| f64::from(*factor) <= largest).unwrap_or(1)
    }

    /// Bytes that decoding an image takes at once, its tensor included.
    pub fn decoding_bytes(&self, header: &ImageHeader, view: &ImageView) -> u64 {
        let reduction = u64::from(self.reduction(header, view));
        let pixels = header.pixel_count() / (reduction * reduction);
        let (width, height) = header.shown_size();
        // Rows are resized first, and then columns.
        let resized_rows = u64::from(self.width) * u64::from(height) * u64::from(self.channels);
        let weights = WEIGHT_BYTES * (u64::from(width + height) + u64::from(self.width + self.height));
        pixels * DECODER_BYTES_PER_PIXEL + resized_rows + weights + self.tensor_bytes() + DECODER_BYTES
    }
}
