//! PNG, by the crate `png`: palettes are applied, 16 bits become their upper 8, an animation shows its first image.

use std::io::Cursor;

use png::{ColorType, Decoder, Limits, Transformations};

use super::decoded::Decoded;
use crate::image::{error::ImageProblem, pixels::Layout};

const NAME: &str = "PNG";

/// Bytes that the decoder may allocate for what is not pixels: chunks with profiles and text, which are ignored.
const CHUNK_BYTES_MAX: usize = 64 << 20;

/// Decodes into `values`, whose content is replaced.
pub(super) fn decode(bytes: &[u8], mut values: Vec<u8>) -> Result<Decoded, ImageProblem> {
    let damaged = |error| ImageProblem::damaged(NAME, &error);
    let mut decoder = Decoder::new_with_limits(Cursor::new(bytes), Limits { bytes: CHUNK_BYTES_MAX });
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    decoder.set_transformations(Transformations::EXPAND | Transformations::STRIP_16);
    let mut reader = decoder.read_info().map_err(damaged)?;
    let size = reader.output_buffer_size().ok_or_else(|| ImageProblem::damaged(NAME, &"it is too large"))?;
    values.clear();
    values.resize(size, 0);
    let info = reader.next_frame(&mut values).map_err(damaged)?;
    let layout = match info.color_type {
        ColorType::Grayscale => Layout::Grey,
        ColorType::GrayscaleAlpha => Layout::GreyAlpha,
        ColorType::Rgb => Layout::Rgb,
        ColorType::Rgba => Layout::Rgba,
        ColorType::Indexed => return Err(ImageProblem::damaged(NAME, &"it has no palette")),
    };
    values.truncate(info.buffer_size());
    Ok(Decoded { width: info.width as usize, height: info.height as usize, layout, values })
}
