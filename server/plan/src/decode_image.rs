//! `decode_image` ops of a canonical plan: the first op of a chain, and with it a `fill_null` that follows. The result is a
//! column of tensors that the other ops read; for an encoded image, columns of its bytes, its box and its flip.
//!
//! In a program there is no such op: its chain begins at the column of its result.

mod check;
pub(super) mod defaults;

use forebay_kernels::{Chain, DType, OutputSpec};
use forebay_media::{Crop, ImageSpec, Normalize, Resample};
use forebay_proto::v1::{
    self,
    decode_image::{self as message, OnError},
    fill_null::Fill,
    op::Op as OpMessage,
};
use forebay_runtime::state::short_digest;
use prost::Message as _;

use defaults::{RATIO, SCALE};

use super::{error::PlanError, ops::check_parameters, path::chain_path};

/// Digits of the op's digest in the name of a column.
const DIGEST_DIGITS: usize = 8;

/// Suffixes of the names of the columns that an encoded image has in addition to its bytes.
const BOX_SUFFIX: &str = "_box";
const FLIP_SUFFIX: &str = "_flip";

/// The tensors of a column of images.
#[derive(Clone, Debug, PartialEq)]
pub struct DecodeImageCall {
    /// The column of images.
    pub column: String,
    /// The op.
    pub op: v1::DecodeImage,
    /// The value in place of null.
    pub fill: Option<f32>,
}

// === impl DecodeImageCall ===

impl DecodeImageCall {
    /// The call that the chain of a canonical part begins with, and the number of its ops.
    pub(super) fn starting(part: &v1::Part) -> Option<(Self, usize)> {
        let op = |number: usize| part.ops.get(number).and_then(|op| op.op.as_ref());
        let Some(OpMessage::DecodeImage(message)) = op(0) else { return None };
        let fill = fill_of(op(1), message);
        let (column, count) = (part.columns.first()?.clone(), 1 + usize::from(fill.is_some()));
        Some((Self { column, op: message.clone(), fill }, count))
    }

    /// The name of the column of the tensors, such as `decode_image(image, 224 × 224 × 3, 0f3a…)`. Calls of other results
    /// have other names.
    pub fn tensors(&self) -> String {
        let mut bytes = self.op.encode_to_vec();
        bytes.extend(self.fill.iter().flat_map(|fill| fill.to_le_bytes()));
        let digest = short_digest(&[&bytes]);
        let (height, width, channels) = (self.op.height, self.op.width, self.op.channels());
        let digits = digest.get(..DIGEST_DIGITS).unwrap_or(&digest);
        format!("decode_image({}, {height} × {width} × {channels}, {digits})", self.column)
    }

    /// The name of the column of an encoded image's bytes.
    pub fn bytes(&self) -> String {
        format!("{}.bytes", self.tensors())
    }

    /// The name of the column of its box.
    pub fn boxes(&self) -> String {
        format!("{}.box", self.tensors())
    }

    /// The name of the column of its flip.
    pub fn flips(&self) -> String {
        format!("{}.flip", self.tensors())
    }

    /// The column that the chain of the part reads.
    pub(super) fn result(&self) -> String {
        if self.op.encoded { self.bytes() } else { self.tensors() }
    }

    /// The outputs of an encoded image in addition to its bytes.
    fn more_outputs(&self, name: &str) -> [OutputSpec; 2] {
        let spec = |suffix: &str, dtype: DType, column: String| OutputSpec {
            name: format!("{name}{suffix}"),
            dtype,
            chains: vec![Chain { column, ops: Vec::new() }],
        };
        [spec(BOX_SUFFIX, DType::Int32, self.boxes()), spec(FLIP_SUFFIX, DType::UInt8, self.flips())]
    }

    /// What becomes of images. The op was checked.
    pub fn spec(&self) -> ImageSpec {
        let op = &self.op;
        ImageSpec {
            height: op.height,
            width: op.width,
            channels: op.channels.unwrap_or(3),
            resample: match op.resize() {
                message::Resize::Bilinear => Resample::Bilinear,
                message::Resize::Nearest => Resample::Nearest,
                message::Resize::Bicubic => Resample::Bicubic,
                message::Resize::Lanczos => Resample::Lanczos,
                message::Resize::Box => Resample::Box,
                message::Resize::Hamming => Resample::Hamming,
            },
            crop: match op.crop() {
                message::Crop::None => Crop::None,
                message::Crop::Center => Crop::Center,
                message::Crop::Random => Crop::Random {
                    scale: (op.scale_min.unwrap_or(SCALE.0), op.scale_max.unwrap_or(SCALE.1)),
                    ratio: (op.ratio_min.unwrap_or(RATIO.0), op.ratio_max.unwrap_or(RATIO.1)),
                },
            },
            flip: op.flip,
            seed: op.seed,
            normalize: op
                .normalize
                .as_ref()
                .map(|normalize| Normalize { mean: normalize.mean.clone(), std: normalize.std.clone() }),
            fill: self.fill,
        }
    }

    /// What happens to bytes that are not a whole image.
    pub fn on_error(&self) -> OnError {
        self.op.on_error()
    }
}

/// The value of a `fill_null` that the tensors can hold.
fn fill_of(op: Option<&OpMessage>, message: &v1::DecodeImage) -> Option<f32> {
    let Some(OpMessage::FillNull(v1::FillNull { fill: Some(fill) })) = op else { return None };
    let value = match fill {
        Fill::Value(value) => *value,
        Fill::Integer(value) => *value as f64,
        Fill::Unsigned(value) => *value as f64,
        Fill::Text(_) | Fill::Stat(_) | Fill::Decimal(_) => return None,
    };
    let is_byte = value.fract() == 0.0 && (0.0..=255.0).contains(&value);
    (message.normalize.is_some() || is_byte).then_some(value as f32)
}

/// The `decode_image` ops of a canonical plan, those of one result once, with the path of the first op that has it.
pub fn decode_image_calls(plan: &v1::Plan) -> Result<Vec<(DecodeImageCall, String)>, PlanError> {
    let mut calls: Vec<(DecodeImageCall, String)> = Vec::new();
    for (output_index, output) in plan.outputs.iter().enumerate() {
        for (part_index, part) in output.parts.iter().enumerate() {
            let chain = chain_path(output_index, part_index);
            for (number, op) in part.ops.iter().enumerate() {
                let Some(message @ OpMessage::DecodeImage(_)) = &op.op else { continue };
                let path = format!("{chain}.ops[{number}].decode_image");
                let start = DecodeImageCall::starting(part).filter(|_| number == 0);
                let Some((call, _)) = start else {
                    let reason =
                        "must be the first op of its part: a decoder reads columns, stored, joined or derived ones";
                    return Err(PlanError::field(path, reason));
                };
                check_parameters(message, &path)?;
                check::check(&call.op, &path)?;
                check::check_place(&call.op, output, part, output_index, &chain)?;
                if !calls.iter().any(|(known, _)| *known == call) {
                    calls.push((call, path));
                }
            }
        }
    }
    Ok(calls)
}

/// The outputs that encoded images have in addition to their bytes, in the order of the plan.
pub(super) fn more_outputs(plan: &v1::Plan) -> Vec<OutputSpec> {
    let calls = plan.outputs.iter().filter_map(|output| {
        let (call, _) = DecodeImageCall::starting(output.parts.first()?)?;
        call.op.encoded.then(|| call.more_outputs(&output.name))
    });
    calls.flatten().collect()
}

#[cfg(test)]
mod tests;
