//! Defaults of an op `decode_image`, which the canonical plan names.

use forebay_proto::v1::{self, decode_image::Crop};

/// The bounds of random boxes that name none: those of torchvision.
pub(super) const SCALE: (f64, f64) = (0.08, 1.0);
pub(super) const RATIO: (f64, f64) = (3.0 / 4.0, 4.0 / 3.0);

/// Writes the defaults of an op.
pub(in crate::plan) fn write(op: &mut v1::DecodeImage) {
    op.channels.get_or_insert(3);
    if op.crop() == Crop::Random {
        op.scale_min.get_or_insert(SCALE.0);
        op.scale_max.get_or_insert(SCALE.1);
        op.ratio_min.get_or_insert(RATIO.0);
        op.ratio_max.get_or_insert(RATIO.1);
    }
}
