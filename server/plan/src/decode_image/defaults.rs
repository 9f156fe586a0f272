//! Defaults of an op `decode_image`, which the canonical plan names.

use forebay_proto::v1::{
    self,
    decode_image::{Crop, Orientation},
    op::Op as OpMessage,
};

/// The bounds of random boxes that name none: those of torchvision.
pub(super) const SCALE: (f64, f64) = (0.08, 1.0);
pub(super) const RATIO: (f64, f64) = (3.0 / 4.0, 4.0 / 3.0);

/// Writes the columns that the images of a plan's ops are turned like, which depend on its other ops.
pub(crate) fn write_turned_like(plan: &mut v1::Plan) {
    let part = |output: &v1::Output| {
        let part = output.parts.first()?;
        let Some(OpMessage::DecodeImage(op)) = part.ops.first().and_then(|op| op.op.as_ref()) else { return None };
        (op.orientation() == Orientation::Apply).then(|| (part.columns.first().cloned(), op.seed))
    };
    let images: Vec<(String, u64)> =
        plan.outputs.iter().filter_map(part).filter_map(|(column, seed)| Some((column?, seed))).collect();
    for output in &mut plan.outputs {
        let Some(part) = output.parts.first_mut() else { continue };
        let Some(OpMessage::DecodeImage(op)) = part.ops.first_mut().and_then(|op| op.op.as_mut()) else { continue };
        if op.orientation() == Orientation::Apply && op.turned_like.is_empty() {
            let others = images.iter().filter(|(column, seed)| *seed == op.seed && !part.columns.contains(column));
            for (column, _) in others {
                if !op.turned_like.contains(column) {
                    op.turned_like.push(column.clone());
                }
            }
        }
    }
}

/// Writes the bounds of random boxes.
pub(crate) fn write(op: &mut v1::DecodeImage) {
    if op.crop() == Crop::Random {
        op.scale_min.get_or_insert(SCALE.0);
        op.scale_max.get_or_insert(SCALE.1);
        op.ratio_min.get_or_insert(RATIO.0);
        op.ratio_max.get_or_insert(RATIO.1);
    }
}
