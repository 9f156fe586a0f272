//! WebP, by the crate `image-webp`: an animation shows its first image.

use std::io::Cursor;

use image_webp::WebPDecoder;

use super::decoded::Decoded;
use crate::image::{error::ImageProblem, pixels::Layout};

const NAME: &str = "WebP";

pub(super) fn decode(bytes: &[u8]) -> Result<Decoded, ImageProblem> {
    let damaged = |error| ImageProblem::damaged(NAME, &error);
    let mut decoder = WebPDecoder::new(Cursor::new(bytes)).map_err(damaged)?;
    // No chunk is larger than the image.
    decoder.set_memory_limit(bytes.len());
    let size = decoder.output_buffer_size().ok_or_else(|| ImageProblem::damaged(NAME, &"it is too large"))?;
    let mut values = vec![0; size];
    decoder.read_image(&mut values).map_err(damaged)?;
    let (width, height) = decoder.dimensions();
    let layout = if decoder.has_alpha() { Layout::Rgba } else { Layout::Rgb };
    Ok(Decoded { width: width as usize, height: height as usize, layout, values })
}
