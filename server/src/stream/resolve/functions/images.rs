//! The columns of a plan's images.

use std::sync::Arc;

use arrow::{array::ArrayRef, datatypes::Schema};
use forebay_kernels::{ImageBytes, ImageDecoder, ImageKey, ImageProblem};
use forebay_proto::v1::{self, decode_image};

use super::{Computation, Drawing, FunctionColumn, argument_field, check_name};
use crate::{
    budget::Budget,
    images::{ImageColumn, ImagePart, ImagePool, ImagesError, OnError},
    plan::{self, DecodeImageCall, PlanError},
    stream::{environment::Environment, error::StreamError, resolve::passing::Passing},
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

/// What the crops of passing rows are drawn from.
pub(super) fn keys(passing: &Passing, drawing: Drawing) -> Vec<ImageKey> {
    let Drawing { seed, epoch } = drawing;
    passing.stored_rows().into_iter().map(|row| ImageKey { seed, epoch, row }).collect()
}

/// The error of one of the passing rows, naming the stored row.
pub(super) fn located(error: ImagesError, passing: &Passing, place: &str) -> StreamError {
    StreamError::Images { place: place.to_owned(), source: error.map_row(|row| passing.stored_row(row)) }
}

// === impl FunctionColumn ===

impl FunctionColumn {
    /// Whether the column depends on the seed and the epoch.
    pub(in crate::stream::resolve) fn is_random(&self) -> bool {
        match &self.computation {
            Computation::Images(column) => column.decoder.spec().is_random() && column.part != ImagePart::Bytes,
            Computation::Function(_) | Computation::Tokens(_) => false,
        }
    }

    /// Bytes of a row of the column, if they are known and many.
    pub(in crate::stream::resolve) fn row_bytes(&self) -> u64 {
        match &self.computation {
            Computation::Images(column) if column.part == ImagePart::Tensors => column.decoder.spec().tensor_bytes(),
            Computation::Images(_) | Computation::Function(_) | Computation::Tokens(_) => 0,
        }
    }

    /// Whether rows whose image cannot be decoded are left out.
    pub(in crate::stream::resolve) fn skips(&self) -> bool {
        match &self.computation {
            Computation::Images(column) => {
                column.on_error == OnError::Skip && matches!(column.part, ImagePart::Tensors | ImagePart::Boxes)
            }
            Computation::Function(_) | Computation::Tokens(_) => false,
        }
    }

    /// The stored rows of passing ones whose image cannot be decoded.
    pub(in crate::stream::resolve) async fn undecodable(
        &self,
        passing: &Passing,
        budget: &Budget,
        place: &str,
    ) -> Result<Vec<u64>, StreamError> {
        let (Computation::Images(column), [name]) = (&self.computation, self.arguments.as_slice()) else {
            return Ok(Vec::new());
        };
        let Some(images): Option<&ArrayRef> = passing.rows.column_by_name(name) else { return Ok(Vec::new()) };
        let failing = column.failing(images, keys(passing, Drawing::default()), budget).await;
        let failing = failing.map_err(|error| located(error, passing, place))?;
        let stored = passing.stored_rows();
        Ok(failing.into_iter().filter_map(|row| stored.get(row).copied()).collect())
    }
}
