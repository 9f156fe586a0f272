//! Headers of images: format, size and orientation, read without decoding a pixel.
//!
//! The memory of a decoder is reserved by them, so nothing here allocates by what the bytes declare.

mod declared;
mod jpeg;

pub use declared::{IMAGE_PIXELS_MAX, ImageFormat, ImageHeader, JpegFrame};

use super::{
    error::ImageProblem,
    exif::{self, Orientation},
};
use declared::truncated;

/// Bytes of the error about an unknown format.
const FIRST_BYTES: usize = 8;

// === impl ImageHeader ===

impl ImageHeader {
    /// Reads the header of an image.
    pub fn read(bytes: &[u8]) -> Result<Self, ImageProblem> {
        let header = if bytes.starts_with(&[0xff, 0xd8]) {
            jpeg::read(bytes)
        } else if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
            png(bytes)
        } else if bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP") {
            webp(bytes)
        } else if bytes.starts_with(b"GIF87a") || bytes.starts_with(b"GIF89a") {
            gif(bytes)
        } else if bytes.is_empty() {
            Err(ImageProblem::Empty)
        } else {
            let first = bytes.iter().take(FIRST_BYTES).map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ");
            Err(ImageProblem::Format { first })
        };
        header.and_then(Self::checked)
    }

    fn checked(self) -> Result<Self, ImageProblem> {
        let Self { format, width, height, .. } = self;
        let format = format.name();
        if width == 0 || height == 0 {
            return Err(ImageProblem::NoPixels { format, width, height });
        }
        if self.pixel_count() > IMAGE_PIXELS_MAX {
            return Err(ImageProblem::TooLarge { format, width, height, limit: IMAGE_PIXELS_MAX });
        }
        Ok(self)
    }
}

fn long_at(bytes: &[u8], at: usize) -> Option<[u8; 4]> {
    bytes.get(at..at.checked_add(4)?)?.try_into().ok()
}

/// PNG: the chunk IHDR, and the orientation of a chunk eXIf.
fn png(bytes: &[u8]) -> Result<ImageHeader, ImageProblem> {
    const SIGNATURE_BYTES: usize = 8;
    let incomplete = || truncated(ImageFormat::Png);
    let size = |at| long_at(bytes, at).map(u32::from_be_bytes).ok_or_else(incomplete);
    if bytes.get(12..16).ok_or_else(incomplete)? != b"IHDR" {
        let reason = "the first chunk is not IHDR".to_owned();
        return Err(ImageProblem::Damaged { format: ImageFormat::Png.name(), reason });
    }
    let (width, height) = (size(16)?, size(20)?);
    let (mut at, mut orientation) = (SIGNATURE_BYTES, Orientation::Upright);
    while let (Some(length), Some(name)) = (long_at(bytes, at).map(u32::from_be_bytes), long_at(bytes, at + 4)) {
        let start = at + 8;
        let Some(end) = start.checked_add(length as usize) else { break };
        if &name == b"eXIf" {
            orientation = bytes.get(start..end).map(exif::orientation).unwrap_or_default();
            break;
        }
        // A checksum follows the data.
        let Some(next) = end.checked_add(4) else { break };
        at = next;
    }
    Ok(ImageHeader { format: ImageFormat::Png, width, height, orientation, jpeg: None })
}

/// WebP: a chunk VP8, VP8L or VP8X, and the orientation of a chunk EXIF.
fn webp(bytes: &[u8]) -> Result<ImageHeader, ImageProblem> {
    const FIRST_CHUNK: usize = 12;
    let format = ImageFormat::WebP;
    let incomplete = || truncated(format);
    let damaged = |reason: &str| ImageProblem::Damaged { format: format.name(), reason: reason.to_owned() };
    let declared = long_at(bytes, 4).map(u32::from_le_bytes).ok_or_else(incomplete)?;
    if u64::from(declared) + 8 > bytes.len() as u64 {
        return Err(ImageProblem::Truncated { format: format.name(), missing: "it declares more bytes" });
    }
    let data = bytes.get(FIRST_CHUNK + 8..).ok_or_else(incomplete)?;
    let short = |at: usize| data.get(at..at + 2).map(|bytes| u32::from(bytes[0]) | u32::from(bytes[1]) << 8);
    let (width, height) = match &bytes[FIRST_CHUNK..FIRST_CHUNK + 4] {
        b"VP8 " => {
            if data.get(3..6).ok_or_else(incomplete)? != [0x9d, 0x01, 0x2a] {
                return Err(damaged("the first frame is not a key frame"));
            }
            (short(6).ok_or_else(incomplete)? & 0x3fff, short(8).ok_or_else(incomplete)? & 0x3fff)
        }
        b"VP8L" => {
            let sizes = long_at(data, 1).map(u32::from_le_bytes).ok_or_else(incomplete)?;
            ((sizes & 0x3fff) + 1, (sizes >> 14 & 0x3fff) + 1)
        }
        b"VP8X" => {
            let size = |at: usize| {
                let bytes = data.get(at..at + 3).ok_or_else(incomplete)?;
                Ok(1 + (u32::from(bytes[0]) | u32::from(bytes[1]) << 8 | u32::from(bytes[2]) << 16))
            };
            (size(4)?, size(7)?)
        }
        _ => return Err(damaged("the first chunk is not VP8, VP8L or VP8X")),
    };
    let (mut at, mut orientation) = (FIRST_CHUNK, Orientation::Upright);
    while let (Some(name), Some(length)) = (long_at(bytes, at), long_at(bytes, at + 4).map(u32::from_le_bytes)) {
        let start = at + 8;
        if &name == b"EXIF" {
            let data = bytes.get(start..start.saturating_add(length as usize));
            orientation = data.map(exif::orientation).unwrap_or_default();
            break;
        }
        // Chunks begin at even places.
        at = start.saturating_add(length as usize).saturating_add(length as usize & 1);
        if at >= bytes.len() {
            break;
        }
    }
    Ok(ImageHeader { format, width, height, orientation, jpeg: None })
}

/// GIF: the size of the screen, which has the frames.
fn gif(bytes: &[u8]) -> Result<ImageHeader, ImageProblem> {
    let format = ImageFormat::Gif;
    let size = bytes.get(6..10).ok_or_else(|| truncated(format))?;
    let (width, height) = (u16::from_le_bytes([size[0], size[1]]), u16::from_le_bytes([size[2], size[3]]));
    Ok(ImageHeader {
        format,
        width: width.into(),
        height: height.into(),
        orientation: Orientation::Upright,
        jpeg: None,
    })
}
