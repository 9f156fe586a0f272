//! Checks of an op `decode_image`, and of what surrounds it.

use forebay_media::IMAGE_VALUES_MAX;
use forebay_proto::{
    ops,
    v1::{
        self,
        decode_image::{Crop, OnError, Orientation},
        fill_null::Fill,
        op::Op as OpMessage,
    },
};

use super::super::error::PlanError;

/// Checks the fields of an op, besides their bounds.
pub(super) fn check(op: &v1::DecodeImage, path: &str) -> Result<(), PlanError> {
    let wrong = |field: &str, reason: String| Err(PlanError::field(format!("{path}.{field}"), reason));
    let channels = op.channels.unwrap_or(3);
    if channels != 1 && channels != 3 {
        return wrong("channels", format!("expected 1 (greyscale) or 3 (RGB), not {channels}"));
    }
    let values = u64::from(op.height) * u64::from(op.width) * u64::from(channels);
    if values > IMAGE_VALUES_MAX {
        return wrong("height", format!("a tensor of {values} values, the limit is {IMAGE_VALUES_MAX}"));
    }
    if op.orientation() == Orientation::Ignore && !op.turned_like.is_empty() {
        return wrong("turned_like", "belongs to the orientation APPLY: leave it out".to_owned());
    }
    check_bounds(op, path)?;
    if let Some(normalize) = &op.normalize {
        check_normalize(normalize, channels, &format!("{path}.normalize"))?;
    }
    if op.encoded && op.normalize.is_some() {
        return wrong("normalize", "an encoded image has no values to scale: leave it out".to_owned());
    }
    if op.encoded && op.on_error() == OnError::Null {
        return wrong("on_error", "an encoded image is as stored: use FAIL or SKIP".to_owned());
    }
    Ok(())
}

fn check_bounds(op: &v1::DecodeImage, path: &str) -> Result<(), PlanError> {
    let bounds = [
        ("scale_min", op.scale_min, "scale_max", op.scale_max, 1.0),
        ("ratio_min", op.ratio_min, "ratio_max", op.ratio_max, 1000.0),
    ];
    for (low, least, high, most, limit) in bounds {
        let given = [(low, least), (high, most)];
        if op.crop() != Crop::Random {
            if let Some((field, _)) = given.into_iter().find(|(_, bound)| bound.is_some()) {
                let reason = "belongs to the crop RANDOM: leave it out";
                return Err(PlanError::field(format!("{path}.{field}"), reason));
            }
            continue;
        }
        for (field, bound) in given {
            if !bound.is_none_or(|bound| 1e-3 <= bound && bound <= limit) {
                let reason = format!("expected 0.001 to {limit}");
                return Err(PlanError::field(format!("{path}.{field}"), reason));
            }
        }
        if let (Some(least), Some(most)) = (least, most)
            && least > most
        {
            return Err(PlanError::field(format!("{path}.{low}"), format!("{least} is above {high}, {most}")));
        }
    }
    Ok(())
}

fn check_normalize(normalize: &v1::Normalize, channels: u32, path: &str) -> Result<(), PlanError> {
    for (field, values) in [("mean", &normalize.mean), ("std", &normalize.std)] {
        if values.len() != channels as usize || !values.iter().all(|value| value.is_finite()) {
            let reason = format!("expected {channels} number(s), one for each channel");
            return Err(PlanError::field(format!("{path}.{field}"), reason));
        }
    }
    if normalize.std.contains(&0.0) {
        return Err(PlanError::field(format!("{path}.std"), "expected numbers other than 0: they divide"));
    }
    Ok(())
}

/// Checks that an image is alone in its output, and which ops follow.
pub(super) fn check_place(
    op: &v1::DecodeImage,
    output: &v1::Output,
    part: &v1::Part,
    output_index: usize,
    chain: &str,
) -> Result<(), PlanError> {
    if output.parts.len() > 1 {
        let reason = "an image is the only column of its output: give each column an output";
        return Err(PlanError::field(format!("plan.outputs[{output_index}].parts"), reason));
    }
    if op.encoded {
        if part.ops.len() > 1 {
            let reason = "no op follows an encoded image, which is as stored";
            return Err(PlanError::field(format!("{chain}.ops[1]"), reason));
        }
        if output.dtype.is_some_and(|dtype| dtype != v1::DType::AsStored as i32) {
            let reason = "an encoded image is AS_STORED: leave the dtype out";
            return Err(PlanError::field(format!("plan.outputs[{output_index}].dtype"), reason));
        }
        return Ok(());
    }
    if output.dtype == Some(v1::DType::AsStored as i32) {
        let reason = "a tensor is UINT8 or of floats: leave the dtype out, or set encoded for the bytes as stored";
        return Err(PlanError::field(format!("plan.outputs[{output_index}].dtype"), reason));
    }
    for (number, op) in part.ops.iter().enumerate().skip(1) {
        if !op.op.as_ref().is_some_and(follows) {
            let reason = format!(
                "after decode_image, expected fill_null with a number or one of {}, with given values: nothing is \
                 learned from pixels",
                ops::ARITHMETIC.join(", ")
            );
            return Err(PlanError::field(format!("{chain}.ops[{number}]"), reason));
        }
    }
    Ok(())
}

/// Whether an op computes each value of a tensor by itself, without learning.
fn follows(op: &OpMessage) -> bool {
    match op {
        OpMessage::FillNull(fill) => {
            matches!(fill.fill, Some(Fill::Value(_) | Fill::Integer(_) | Fill::Unsigned(_)))
        }
        _ => ops::is_arithmetic(op) && !ops::learns(op),
    }
}
