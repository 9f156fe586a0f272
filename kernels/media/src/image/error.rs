//! Errors of images, worded for the author of the data.

/// Why bytes have no pixels.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageProblem {
    /// There are no bytes.
    #[error("there are no bytes")]
    Empty,
    /// They are not an image of a known format.
    #[error("not a JPEG, PNG, WebP or GIF image; the first bytes are {first}")]
    Format {
        /// The first bytes in hexadecimal digits.
        first: String,
    },
    /// The header contradicts the format.
    #[error("damaged {format} image: {reason}")]
    Damaged {
        /// The format.
        format: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// The bytes end early.
    #[error("truncated {format} image: {missing}")]
    Truncated {
        /// The format.
        format: &'static str,
        /// What is missing.
        missing: &'static str,
    },
    /// The image has no pixels.
    #[error("the {format} image has {width} × {height} pixels")]
    NoPixels {
        /// The format.
        format: &'static str,
        /// Its width.
        width: u32,
        /// Its height.
        height: u32,
    },
    /// It declares more pixels than the limit.
    #[error(
        "the {format} image declares {width} × {height} pixels, the limit is {limit}: reduce it when the dataset is made"
    )]
    TooLarge {
        /// The format.
        format: &'static str,
        /// Its width.
        width: u32,
        /// Its height.
        height: u32,
        /// The limit.
        limit: u64,
    },
    /// The decoder has no implementation of this variant of the format.
    #[error("{variant}, which is not supported: convert the image to another variant")]
    Unsupported {
        /// The variant, such as "a 12-bit JPEG image".
        variant: String,
    },
    /// The server was built without images.
    #[error("this forebay-server was built without its feature `images`; `make build` builds it with every feature")]
    NotBuilt,
}

/// Characters of a decoder's message.
#[cfg(feature = "images")]
const CHARACTERS_MAX: usize = 200;

impl ImageProblem {
    /// A decoder's error. Messages may contain text of the image.
    #[cfg(feature = "images")]
    pub(super) fn damaged(format: &'static str, reason: &impl ToString) -> Self {
        Self::Damaged { format, reason: shortened(&reason.to_string()) }
    }
}

#[cfg(feature = "images")]
fn shortened(text: &str) -> String {
    let first = text.lines().next().unwrap_or_default();
    let mut shown: String = first.chars().take(CHARACTERS_MAX).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}
