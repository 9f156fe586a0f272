//! The columns of a plan's images.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema};
use forebay_columns::images::{ImageColumn, ImagePart, ImagePool, OnError, Turning};
use forebay_media::{ImageBytes, ImageDecoder};
use forebay_plan::{DecodeImageCall, PlanError};
use forebay_proto::v1::{self, decode_image};

use super::{
    function_column::{Computation, FunctionColumn},
    function_names::{argument_field, check_name},
};

/// Adds the columns of images, which are checked against the columns that they may read.
pub(crate) fn add_columns(
    pool: Option<&ImagePool>,
    plan: &v1::Plan,
    schema: &Schema,
    columns: &mut Vec<FunctionColumn>,
) -> Result<(), PlanError> {
    for (call, path) in forebay_plan::decode_image_calls(plan)? {
        let pool = pool.ok_or_else(|| PlanError::field(&path, "the threads that decode images were not found"))?;
        let images = image_field(&call.column, schema, &path)?;
        let arguments = [std::slice::from_ref(&call.column), &call.op.turned_like].concat();
        for other in &call.op.turned_like {
            image_field(other, schema, &format!("{path}.turned_like"))?;
        }
        let decoder = Arc::new(ImageDecoder::new(call.spec()));
        for (name, part) in parts(&call) {
            if columns.iter().any(|known| *known.field.name() == name) {
                continue;
            }
            check_name(&name, schema, &path)?;
            let field = Arc::new(part.field(&name, decoder.spec(), on_error(&call), images));
            let (column, decoder, pool) = (call.column.clone(), Arc::clone(&decoder), pool.clone());
            let turning = turning(&call);
            let computed = ImageColumn { column, part, decoder, on_error: on_error(&call), turning, pool };
            let (arguments, computation) = (arguments.clone(), Computation::Images(computed));
            columns.push(FunctionColumn { field, arguments, computation });
        }
    }
    Ok(())
}

/// A column that must have images.
fn image_field<'a>(column: &str, schema: &'a Schema, path: &str) -> Result<&'a Field, PlanError> {
    let field = argument_field(column, schema, path)?;
    if ImageBytes::data_type(field.data_type()).is_some() {
        return Ok(field);
    }
    let reason = format!(
        "an image is a column of bytes, or a struct with a field \"bytes\", and column \"{column}\" is {}",
        field.data_type()
    );
    Err(PlanError::field(path, reason))
}

fn turning(call: &DecodeImageCall) -> Turning {
    match call.op.orientation() {
        decode_image::Orientation::Apply => Turning::Upright,
        decode_image::Orientation::Ignore => Turning::AsStored,
    }
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
