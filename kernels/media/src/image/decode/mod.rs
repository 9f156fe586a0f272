//! Bytes of an image → its tensor, by the crates of each format.

mod decoded;
mod gif;
mod jpeg;
mod png;
mod resize;
mod webp;

use std::{
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
};

use decoded::Decoded;
use resize::ResizeScratch;

use super::{
    error::ImageProblem,
    header::{ImageFormat, ImageHeader},
    pixels::{self, Pixels},
    spec::ImageSpec,
    view::{CropBox, ImageView},
};

/// The most bytes of decoded pixels whose memory the next image uses again: 1.4 megapixels in RGB. A zeroed allocation of
/// this size costs page faults, 12 % of the time to decode photographs of 500 by 375 pixels.
const KEPT_BYTES_MAX: usize = 4 << 20;

/// Memory that images are decoded with, one after the other.
#[derive(Debug, Default)]
pub(super) struct DecodeScratch {
    resize: ResizeScratch,
    /// The pixels of the image before.
    decoded: Vec<u8>,
}

/// Writes the tensor of an image, `spec.value_count()` values of 8 bits.
pub(super) fn decode(
    bytes: &[u8],
    header: &ImageHeader,
    view: &ImageView,
    spec: &ImageSpec,
    scratch: &mut DecodeScratch,
    out: &mut [u8],
) -> Result<(), ImageProblem> {
    let reduction = spec.reduction(header, view);
    let memory = mem::take(&mut scratch.decoded);
    // A decoder that panics is a damaged image.
    let decoded = catch_unwind(AssertUnwindSafe(|| decoded(bytes, header, reduction, memory)));
    let decoded =
        decoded.unwrap_or_else(|_| Err(ImageProblem::damaged(header.format.name(), &"its decoder failed")))?;
    check(header, &decoded, reduction)?;
    let Decoded { width, height, layout, values } = decoded;
    let channels = spec.channels as usize;
    let shown = Pixels::new((width, height), layout, values, channels).upright(header.orientation);
    let crop = reduced(&view.crop, reduction);
    let size = (spec.width, spec.height);
    resize::resize(&shown, &crop, spec.resample, size, &mut scratch.resize, out)
        .map_err(|reason| ImageProblem::damaged(header.format.name(), &reason))?;
    if shown.values.capacity() <= KEPT_BYTES_MAX {
        scratch.decoded = shown.values;
    }
    if view.is_flipped {
        pixels::mirror(out, spec.width as usize, channels);
    }
    Ok(())
}

fn decoded(bytes: &[u8], header: &ImageHeader, reduction: u32, memory: Vec<u8>) -> Result<Decoded, ImageProblem> {
    match header.format {
        ImageFormat::Jpeg if reduction > 1 => jpeg::decode_reduced(bytes, header, reduction),
        ImageFormat::Jpeg => jpeg::decode(bytes, memory),
        ImageFormat::Png => png::decode(bytes, memory),
        ImageFormat::WebP => webp::decode(bytes),
        ImageFormat::Gif => gif::decode(bytes, header),
    }
}

/// Checks that the decoder found the size that memory was reserved for.
fn check(header: &ImageHeader, decoded: &Decoded, reduction: u32) -> Result<(), ImageProblem> {
    let expected = [header.width, header.height].map(|side| side.div_ceil(reduction) as usize);
    let has_size = [decoded.width, decoded.height] == expected;
    let count = decoded.width * decoded.height * decoded.layout.channels();
    if has_size && decoded.values.len() == count {
        return Ok(());
    }
    let found = format!("it has {} × {} pixels, not those of its header", decoded.width, decoded.height);
    Err(ImageProblem::damaged(header.format.name(), &found))
}

/// A box in an image that was decoded this many times smaller. The last columns and rows of that image are of pixels
/// beyond the edge.
fn reduced(crop: &CropBox, reduction: u32) -> CropBox {
    let CropBox { left, top, width, height } = *crop;
    let scale = 1.0 / f64::from(reduction);
    CropBox { left: left * scale, top: top * scale, width: width * scale, height: height * scale }
}
