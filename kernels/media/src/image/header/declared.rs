//! What images declare about themselves.

use crate::image::{error::ImageProblem, exif::Orientation};

/// The most pixels of an image: 2^27, such as 16,384 × 8192. Its decoder takes at most 2 GiB, 16 bytes per pixel.
pub const IMAGE_PIXELS_MAX: u64 = 1 << 27;

/// The format of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageFormat {
    /// JPEG, baseline or progressive.
    Jpeg,
    /// PNG.
    Png,
    /// WebP, lossy or lossless.
    WebP,
    /// GIF.
    Gif,
}

/// What an image declares about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageHeader {
    /// The format.
    pub format: ImageFormat,
    /// Columns as stored.
    pub width: u32,
    /// Rows as stored.
    pub height: u32,
    /// How they are shown.
    pub orientation: Orientation,
    /// The frame of a JPEG image.
    pub jpeg: Option<JpegFrame>,
}

/// What decides how a JPEG image can be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JpegFrame {
    /// 1, greyscale, 3, YCbCr or RGB, or 4, CMYK or YCCK.
    pub components: u8,
    /// Whether the image is stored in scans of rising quality, of which all coefficients are kept.
    pub is_progressive: bool,
}

// === impl ImageFormat ===

impl ImageFormat {
    /// The format's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Jpeg => "JPEG",
            Self::Png => "PNG",
            Self::WebP => "WebP",
            Self::Gif => "GIF",
        }
    }
}

// === impl ImageHeader ===

impl ImageHeader {
    /// Pixels of the image.
    pub fn pixel_count(&self) -> u64 {
        u64::from(self.width) * u64::from(self.height)
    }

    /// Width and height as shown.
    pub fn shown_size(&self) -> (u32, u32) {
        if self.orientation.exchanges_sides() { (self.height, self.width) } else { (self.width, self.height) }
    }
}

/// The error of a header that ends early.
pub(super) fn truncated(format: ImageFormat) -> ImageProblem {
    ImageProblem::Truncated { format: format.name(), missing: "the header is incomplete" }
}
