//! Decoding in a build without images, which refuses the op before it has one.

use super::{error::ImageProblem, header::ImageHeader, spec::ImageSpec, view::ImageView};

#[derive(Debug, Default)]
pub(super) struct DecodeScratch;

pub(super) fn decode(
    _bytes: &[u8],
    _header: &ImageHeader,
    _view: &ImageView,
    _spec: &ImageSpec,
    _scratch: &mut DecodeScratch,
    _out: &mut [u8],
) -> Result<(), ImageProblem> {
    Err(ImageProblem::NotBuilt)
}
