//! The fields of ops that scale by groups of rows.

use forebay_proto::{
    ops,
    v1::{self, op::Op as OpMessage},
};

use super::path::chain_path;

/// The columns by which an op scales; none for other ops.
pub(super) fn by(op: &OpMessage) -> &[String] {
    match op {
        OpMessage::Standardize(op) => &op.by,
        OpMessage::MinMax(op) => &op.by,
        OpMessage::Robust(op) => &op.by,
        _ => &[],
    }
}

/// The path of the first op of a canonical plan that scales by groups.
pub fn groups_path(plan: &v1::Plan) -> Option<String> {
    plan.outputs.iter().enumerate().find_map(|(output, of_output)| {
        of_output.parts.iter().enumerate().find_map(|(part, of_part)| {
            let ops = of_part.ops.iter().enumerate().filter_map(|(number, op)| Some((number, op.op.as_ref()?)));
            let (number, op) = { ops }.find(|(_, op)| !by(op).is_empty())?;
            Some(format!("{}.ops[{number}].{}.by", chain_path(output, part), ops::name(op)))
        })
    })
}

/// What a fit has learned of each group.
pub(super) fn scales(op: &OpMessage) -> Option<&v1::Scales> {
    match op {
        OpMessage::Standardize(op) => op.scales.as_ref(),
        OpMessage::MinMax(op) => op.scales.as_ref(),
        OpMessage::Robust(op) => op.scales.as_ref(),
        _ => None,
    }
}

/// Where a fit writes what it has learned of each group.
pub(super) fn scales_mut(op: &mut OpMessage) -> Option<&mut Option<v1::Scales>> {
    match op {
        OpMessage::Standardize(op) => Some(&mut op.scales),
        OpMessage::MinMax(op) => Some(&mut op.scales),
        OpMessage::Robust(op) => Some(&mut op.scales),
        _ => None,
    }
}
