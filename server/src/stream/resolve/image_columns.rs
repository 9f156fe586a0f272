//! The columns of a plan's images.

use std::sync::Arc;

use arrow::datatypes::Schema;
use forebay_kernels::{ImageBytes, ImageDecoder, ImageProblem};
use forebay_proto::v1::{self, decode_image};

use super::{
    function_column::{Computation, FunctionColumn},
    function_names::{argument_field, check_name},
};
use crate::{
    images::{ImageColumn, ImagePart, ImagePool, OnError},
    plan::{self, DecodeImageCall, PlanError},
    stream::environment::Environment,
};

/// The threads that decode the images of a plan; none if it has none.
pub(super) fn pool(environment: &Environment, plan: &v1::Plan) -> Result<Option<ImagePool>, PlanError> {
    let calls = plan::decode_image_calls(plan)?;
    let Some((_, path)) = calls.first() else { return Ok(None) };
    if !ImageDecoder::IS_BUILT {
        return Err(PlanError::field(path, ImageProblem::NotBuilt.to_string()));
    }
    Ok(Some(environment.images.clone()))
}

/// Adds the columns of images, which are checked against the columns that they may read.
pub(super) fn add_columns(
    pool: Option<&ImagePool>,
    plan: &v1::Plan,
    schema: &Schema,
    columns: &mut Vec<FunctionColumn>,
) -> Result<(), PlanError> {
    for (call, path) in plan::decode_image_calls(plan)? {
        let pool = pool.ok_or_else(|| PlanError::field(&path, "the threads that decode images were not found"))?;
        let images = argument_field(&call.column, schema, &path)?;
        if ImageBytes::data_type(images.data_type()).is_none() {
            let reason = format!(
                "an image is a column of bytes, or a struct with a field \"bytes\", and column \"{}\" is {}",
                call.column,
                images.data_type()
            );
            return Err(PlanError::field(&path, reason));
        }
        let decoder = Arc::new(ImageDecoder::new(call.spec()));
        for (name, part) in parts(&call) {
            if columns.iter().any(|known| *known.field.name() == name) {
                continue;
            }
            check_name(&name, schema, &path)?;
            let field = Arc::new(part.field(&name, decoder.spec(), on_error(&call), images));
            let (column, decoder, pool) = (call.column.clone(), Arc::clone(&decoder), pool.clone());
            let computed = ImageColumn { column, part, decoder, on_error: on_error(&call), pool };
            let (arguments, computation) = (vec![call.column.clone()], Computation::Images(computed));
            columns.push(FunctionColumn { field, arguments, computation });
        }
    }
    Ok(())
}

/// The columns of a call, with their names.
fn parts(call: &DecodeImageCall) -> Vec<(String, ImagePart)> {
    if call.op.encoded {
        return vec![
            (call.bytes(), ImagePart::Bytes),
            (call.boxes(), ImagePart::Boxes),
            (call.flips(), ImagePart::Flips),
        ];
    }
    vec![(call.tensors(), ImagePart::Tensors)]
}

fn on_error(call: &DecodeImageCall) -> OnError {
    match call.on_error() {
        decode_image::OnError::Fail => OnError::Fail,
        decode_image::OnError::Null => OnError::Null,
        decode_image::OnError::Skip => OnError::Skip,
    }
}
