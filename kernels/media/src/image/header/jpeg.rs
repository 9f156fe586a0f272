//! JPEG: the segments of the file up to its end, whose marker a truncated one lacks.

use super::declared::{ImageFormat, ImageHeader, JpegFrame, truncated};
use crate::image::{
    error::ImageProblem,
    exif::{self, Orientation},
};

/// A segment's marker, and its data.
struct Segment<'a> {
    marker: u8,
    data: &'a [u8],
}

/// The segments of a JPEG image, without the entropy-coded data.
struct Segments<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// Reads size and orientation, and checks that the end is there.
pub(super) fn read(bytes: &[u8]) -> Result<ImageHeader, ImageProblem> {
    const FIRST_SEGMENT: usize = 2;
    const END: u8 = 0xd9;
    let format = ImageFormat::Jpeg;
    let (mut first_frame, mut orientation) = (None, None::<Orientation>);
    let mut segments = Segments { bytes, at: FIRST_SEGMENT };
    while let Some(Segment { marker, data }) = segments.next()? {
        match marker {
            END => {
                let (width, height, jpeg) = first_frame.ok_or_else(|| ImageProblem::Damaged {
                    format: format.name(),
                    reason: "no frame header precedes its end".to_owned(),
                })?;
                let orientation = orientation.unwrap_or_default();
                return Ok(ImageHeader { format, width, height, orientation, jpeg: Some(jpeg) });
            }
            0xe1 if data.starts_with(b"Exif\0\0") => {
                orientation.get_or_insert_with(|| exif::orientation(data));
            }
            0xc0..=0xcf if !matches!(marker, 0xc4 | 0xc8 | 0xcc) => {
                let found = frame(marker, data)?;
                first_frame.get_or_insert(found);
            }
            _ => {}
        }
    }
    Err(ImageProblem::Truncated { format: format.name(), missing: "it has no end-of-image marker" })
}

/// Width, height and kind of a frame header.
fn frame(marker: u8, data: &[u8]) -> Result<(u32, u32, JpegFrame), ImageProblem> {
    let fields = data.get(..6).ok_or_else(|| truncated(ImageFormat::Jpeg))?;
    let unsupported = |variant: &str| Err(ImageProblem::Unsupported { variant: variant.to_owned() });
    match marker {
        0xc0..=0xc2 => {}
        0xc3 | 0xc7 | 0xcb | 0xcf => return unsupported("a lossless JPEG image"),
        0xc5 | 0xc6 => return unsupported("a hierarchical JPEG image"),
        _ => return unsupported("a JPEG image with arithmetic coding"),
    }
    if fields[0] != 8 {
        return unsupported(&format!("a JPEG image of {} bits per sample", fields[0]));
    }
    let short = |at: usize| u32::from(u16::from_be_bytes([fields[at], fields[at + 1]]));
    let jpeg = JpegFrame { components: fields[5], is_progressive: marker == 0xc2 };
    Ok((short(3), short(1), jpeg))
}

impl<'a> Segments<'a> {
    /// The next segment; none at the end of the bytes.
    fn next(&mut self) -> Result<Option<Segment<'a>>, ImageProblem> {
        let Some(marker) = self.marker() else { return Ok(None) };
        // These have no data.
        if matches!(marker, 0x01 | 0xd0..=0xd9) {
            return Ok(Some(Segment { marker, data: &[] }));
        }
        let length = self.bytes.get(self.at..self.at + 2).map(|length| u16::from_be_bytes([length[0], length[1]]));
        let Some(length) = length.map(usize::from) else { return Ok(None) };
        if length < 2 {
            let reason = format!("segment {marker:02x} has an invalid length");
            return Err(ImageProblem::Damaged { format: ImageFormat::Jpeg.name(), reason });
        }
        let Some(data) = self.bytes.get(self.at + 2..self.at + length) else { return Ok(None) };
        self.at += length;
        Ok(Some(Segment { marker, data }))
    }

    /// Passes over the data before the next marker, and the marker.
    fn marker(&mut self) -> Option<u8> {
        loop {
            self.at += self.bytes.get(self.at..)?.iter().position(|byte| *byte == 0xff)?;
            self.at += self.bytes[self.at..].iter().position(|byte| *byte != 0xff)?;
            let marker = self.bytes[self.at];
            self.at += 1;
            // A zero byte follows an 0xff of the data, and restart markers divide it.
            if !matches!(marker, 0x00 | 0xd0..=0xd7) {
                return Some(marker);
            }
        }
    }
}
