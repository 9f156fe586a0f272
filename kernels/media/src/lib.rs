//! Images to tensors and texts to tokens: the work on a column before the first op of a program.
//!
//! A [`TextEncoder`] turns text into lists of tokens, and an [`ImageDecoder`] turns images into tensors. Nothing here depends
//! on gRPC, files or threads: callers divide the rows.

#![forbid(unsafe_code)]

mod image;
mod tokenize;

pub use image::{
    Crop, CropBox, IMAGE_PIXELS_MAX, IMAGE_VALUES_MAX, ImageBytes, ImageDecoder, ImageFormat, ImageHeader, ImageKey,
    ImageProblem, ImageRow, ImageRows, ImageSpec, ImageView, JpegFrame, Normalize, Orientation, Resample, box_type,
};
pub use tokenize::{
    SCRATCH_BYTES_PER_BYTE, TOKENIZER_BYTES_MAX, TextEncoder, TokenProblem, Tokenization, Tokenizer, TokenizerError,
    Truncation, is_text, text_runs,
};
