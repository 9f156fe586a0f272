//! GIF, by the crate `gif`: the first frame on the screen, which Pillow fills with the transparent colour if there is one.

use std::num::NonZeroU64;

use gif::{ColorOutput, DecodeOptions, MemoryLimit};

use super::decoded::Decoded;
use crate::image::{
    error::ImageProblem,
    header::{IMAGE_PIXELS_MAX, ImageHeader},
    pixels::Layout,
};

const NAME: &str = "GIF";

pub(super) fn decode(bytes: &[u8], header: &ImageHeader) -> Result<Decoded, ImageProblem> {
    let damaged = |error| ImageProblem::damaged(NAME, &error);
    let mut options = DecodeOptions::new();
    options.set_color_output(ColorOutput::Indexed);
    options.check_frame_consistency(true);
    if let Some(limit) = NonZeroU64::new(IMAGE_PIXELS_MAX) {
        options.set_memory_limit(MemoryLimit::Bytes(limit));
    }
    let mut decoder = options.read_info(bytes).map_err(damaged)?;
    let global = decoder.global_palette().map(<[u8]>::to_vec);
    let frame = decoder.read_next_frame().map_err(damaged)?;
    let frame = frame.ok_or(ImageProblem::Truncated { format: NAME, missing: "it has no frame" })?;
    let palette = frame.palette.clone().or(global).unwrap_or_default();
    let colour = |index: u8| {
        let start = usize::from(index) * 3;
        // Missing colours are black.
        palette.get(start..start + 3).map_or([0; 3], |colour| [colour[0], colour[1], colour[2]])
    };
    let [left, top, columns, rows] = [frame.left, frame.top, frame.width, frame.height].map(usize::from);
    let (width, height) = (header.width as usize, header.height as usize);
    if frame.buffer.len() != columns * rows || left + columns > width || top + rows > height {
        return Err(ImageProblem::damaged(NAME, &"its first frame is not within its screen"));
    }
    let mut values = colour(frame.transparent.unwrap_or(0)).repeat(width * height);
    if columns > 0 {
        for (row, indices) in frame.buffer.chunks_exact(columns).enumerate() {
            let start = ((top + row) * width + left) * 3;
            let colours = values[start..start + columns * 3].as_chunks_mut::<3>().0;
            colours.iter_mut().zip(indices).for_each(|(target, index)| *target = colour(*index));
        }
    }
    Ok(Decoded { width, height, layout: Layout::Rgb, values })
}
