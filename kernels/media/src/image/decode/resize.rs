//! A box of pixels → another size, by the crate `fast_image_resize`, whose filters are Pillow's.
//!
//! Like Pillow, and unlike the crate, rows are resized first, to 8 bits, and then columns: where a filter overshoots, the
//! order decides what is cut off.

use fast_image_resize::{
    FilterType, PixelTrait, ResizeAlg, ResizeOptions, Resizer,
    images::{TypedImage, TypedImageRef},
    pixels::{U8, U8x3},
};

use crate::image::{pixels::Pixels, spec::Resample, view::CropBox};

/// Memory that images are resized with, one after the other.
#[derive(Debug, Default)]
pub(in crate::image) struct ResizeScratch {
    resizer: Resizer,
    /// Rows that are resized, before columns are.
    rows: Vec<u8>,
}

/// Pixels of one size.
#[derive(Clone, Copy)]
struct SizedPixels<'a> {
    width: u32,
    height: u32,
    channels: usize,
    values: &'a [u8],
}

/// Resizes a box to `size`, width and height, into `out`.
pub(super) fn resize(
    pixels: &Pixels,
    crop: &CropBox,
    resample: Resample,
    size: (u32, u32),
    scratch: &mut ResizeScratch,
    out: &mut [u8],
) -> Result<(), String> {
    let ResizeScratch { resizer, rows } = scratch;
    let channels = pixels.channels;
    // Sides of images and tensors have at most 27 bits.
    let (width, height) = (pixels.width as u32, pixels.height as u32);
    let source = SizedPixels { width, height, channels, values: &pixels.values };
    let crop = within(crop, pixels);
    let Some((filter, support)) = filter(resample) else {
        nearest(pixels, &crop, size, out);
        return Ok(());
    };
    let algorithm = ResizeAlg::Convolution(filter);
    // The rows that the columns of the result read, with one more at both ends.
    let reach = support * (crop.height / f64::from(size.1)).max(1.0) + 1.0;
    let first = (crop.top - reach).floor().max(0.0);
    let end = (crop.top + crop.height + reach).ceil().min(pixels.height as f64);
    let count = (end - first) as u32;
    rows.clear();
    rows.resize(size.0 as usize * count as usize * channels, 0);
    let all_rows = CropBox { top: first, height: f64::from(count), ..crop };
    source.resize(all_rows, algorithm, (size.0, count), resizer, rows)?;
    let resized = SizedPixels { width: size.0, height: count, channels, values: rows };
    let columns = CropBox { left: 0.0, top: crop.top - first, width: f64::from(size.0), height: crop.height };
    resized.resize(columns, algorithm, size, resizer, out)
}

impl SizedPixels<'_> {
    fn resize(
        self,
        crop: CropBox,
        algorithm: ResizeAlg,
        size: (u32, u32),
        resizer: &mut Resizer,
        out: &mut [u8],
    ) -> Result<(), String> {
        let CropBox { left, top, width, height } = crop;
        let options = ResizeOptions::new().resize_alg(algorithm).use_alpha(false).crop(left, top, width, height);
        // `Resizer::resize` would compile all of the crate's types of pixels.
        match self.channels {
            1 => self.resize_typed::<U8>(&options, size, resizer, out),
            _ => self.resize_typed::<U8x3>(&options, size, resizer, out),
        }
    }

    fn resize_typed<P: PixelTrait>(
        self,
        options: &ResizeOptions,
        (width, height): (u32, u32),
        resizer: &mut Resizer,
        out: &mut [u8],
    ) -> Result<(), String> {
        let source = TypedImageRef::<P>::from_buffer(self.width, self.height, self.values);
        let source = source.map_err(|error| error.to_string())?;
        let target = TypedImage::<P>::from_buffer(width, height, out);
        let mut target = target.map_err(|error| error.to_string())?;
        resizer.resize_typed(&source, &mut target, options).map_err(|error| error.to_string())
    }
}

/// The pixel below the centre of each pixel of the result. Sums up steps as Pillow does: products round differently.
fn nearest(pixels: &Pixels, crop: &CropBox, (width, height): (u32, u32), out: &mut [u8]) {
    let places = |start: f64, length: f64, count: u32, end: usize| -> Vec<usize> {
        let step = length / f64::from(count);
        let steps = std::iter::successors(Some(start + step * 0.5), move |place| Some(place + step));
        steps.take(count as usize).map(|place| (place as usize).min(end - 1)).collect()
    };
    let columns = places(crop.left, crop.width, width, pixels.width);
    let rows = places(crop.top, crop.height, height, pixels.height);
    let channels = pixels.channels;
    for (row, target) in rows.into_iter().zip(out.chunks_exact_mut(columns.len() * channels)) {
        let source = &pixels.values[row * pixels.width * channels..][..pixels.width * channels];
        for (column, target) in columns.iter().zip(target.chunks_exact_mut(channels)) {
            target.copy_from_slice(&source[column * channels..][..channels]);
        }
    }
}

/// The filter of a name, and the pixels that it reaches to both sides; none for the nearest pixel.
fn filter(resample: Resample) -> Option<(FilterType, f64)> {
    Some(match resample {
        Resample::Nearest => return None,
        Resample::Bilinear => (FilterType::Bilinear, 1.0),
        Resample::Bicubic => (FilterType::CatmullRom, 2.0),
        Resample::Lanczos => (FilterType::Lanczos3, 3.0),
        Resample::Box => (FilterType::Box, 0.5),
        Resample::Hamming => (FilterType::Hamming, 1.0),
    })
}

/// The box without what rounding puts outside of the image.
fn within(crop: &CropBox, pixels: &Pixels) -> CropBox {
    let (left, top) = (crop.left.max(0.0), crop.top.max(0.0));
    CropBox {
        left,
        top,
        width: crop.width.min(pixels.width as f64 - left),
        height: crop.height.min(pixels.height as f64 - top),
    }
}
