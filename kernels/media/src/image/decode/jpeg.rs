//! JPEG, by the crate `zune-jpeg`; reduced in size by `jpeg-decoder`, which computes fewer pixels of each block.

use jpeg_decoder::PixelFormat;
use zune_core::{bytestream::ZCursor, colorspace::ColorSpace, options::DecoderOptions};
use zune_jpeg::JpegDecoder;

use super::decoded::Decoded;
use crate::image::{error::ImageProblem, header::ImageHeader, pixels::Layout};

const NAME: &str = "JPEG";

/// The largest width and height: those of the format.
const SIDE_MAX: usize = 65_535;

/// Decodes into `values`, whose content is replaced.
pub(super) fn decode(bytes: &[u8], mut values: Vec<u8>) -> Result<Decoded, ImageProblem> {
    let damaged = |error| ImageProblem::damaged(NAME, &format!("{error:?}"));
    let options = DecoderOptions::default().set_strict_mode(true).set_max_width(SIDE_MAX).set_max_height(SIDE_MAX);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder.decode_headers().map_err(damaged)?;
    let (colours, layout) = match decoder.input_colorspace() {
        Some(ColorSpace::Luma) => (ColorSpace::Luma, Layout::Grey),
        Some(ColorSpace::CMYK) => (ColorSpace::CMYK, Layout::Cmyk),
        _ => (ColorSpace::RGB, Layout::Rgb),
    };
    decoder.set_options(options.jpeg_set_out_colorspace(colours));
    let size = decoder.output_buffer_size().ok_or_else(|| ImageProblem::damaged(NAME, &"it is too large"))?;
    values.clear();
    values.resize(size, 0);
    decoder.decode_into(&mut values).map_err(damaged)?;
    let (width, height) = decoder.dimensions().unwrap_or_default();
    Ok(Decoded { width, height, layout, values })
}

pub(super) fn decode_reduced(bytes: &[u8], header: &ImageHeader, reduction: u32) -> Result<Decoded, ImageProblem> {
    let damaged = |error| ImageProblem::damaged(NAME, &error);
    let mut decoder = jpeg_decoder::Decoder::new(bytes);
    decoder.read_info().map_err(damaged)?;
    // The sides of a JPEG image have 16 bits.
    let [width, height] = [header.width, header.height].map(|side| side.div_ceil(reduction) as u16);
    decoder.scale(width, height).map_err(damaged)?;
    let values = decoder.decode().map_err(damaged)?;
    let info = decoder.info().ok_or_else(|| ImageProblem::damaged(NAME, &"it has no frame"))?;
    let layout = match info.pixel_format {
        PixelFormat::L8 => Layout::Grey,
        PixelFormat::RGB24 => Layout::Rgb,
        PixelFormat::L16 | PixelFormat::CMYK32 => {
            return Err(ImageProblem::damaged(NAME, &"its components are not those of its header"));
        }
    };
    Ok(Decoded { width: info.width.into(), height: info.height.into(), layout, values })
}
