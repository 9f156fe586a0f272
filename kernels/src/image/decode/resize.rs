//! A box of pixels → another size, by the crate `fast_image_resize`, whose filters are Pillow's.

use fast_image_resize::{
    FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer,
    images::{Image, ImageRef},
};

use crate::image::{pixels::Pixels, spec::Resample, view::CropBox};

/// Resizes a box to `size`, width and height, into `out`.
pub(super) fn resize(
    pixels: &Pixels,
    crop: &CropBox,
    resample: Resample,
    (width, height): (u32, u32),
    resizer: &mut Resizer,
    out: &mut [u8],
) -> Result<(), String> {
    let kind = if pixels.channels == 1 { PixelType::U8 } else { PixelType::U8x3 };
    // Sides of images and tensors have at most 27 bits.
    let source = ImageRef::new(pixels.width as u32, pixels.height as u32, &pixels.values, kind);
    let source = source.map_err(|error| error.to_string())?;
    let mut target = Image::from_slice_u8(width, height, out, kind).map_err(|error| error.to_string())?;
    let CropBox { left, top, width, height } = within(crop, pixels);
    let options = ResizeOptions::new().resize_alg(algorithm(resample)).use_alpha(false).crop(left, top, width, height);
    resizer.resize(&source, &mut target, &options).map_err(|error| error.to_string())
}

fn algorithm(resample: Resample) -> ResizeAlg {
    ResizeAlg::Convolution(match resample {
        Resample::Nearest => return ResizeAlg::Nearest,
        Resample::Bilinear => FilterType::Bilinear,
        Resample::Bicubic => FilterType::CatmullRom,
        Resample::Lanczos => FilterType::Lanczos3,
        Resample::Box => FilterType::Box,
        Resample::Hamming => FilterType::Hamming,
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
