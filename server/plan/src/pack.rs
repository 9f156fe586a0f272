//! Packed outputs: the checks of a plan with one, and the program of its sequences.

use std::sync::Arc;

use arrow::datatypes::{DataType, Schema, SchemaRef};
use forebay_kernels::{Chain, DOCUMENT_IDS, DType, OutputSpec, POSITION_IDS, Packing, Program};
use forebay_proto::v1;

use super::{ROW_ID, default_dtype::dtype_of, error::PlanError};

/// The largest length of a sequence or a part of a window: wider lists are not columns of a matrix.
pub(super) const LENGTH_MAX: u32 = 65_536;

/// A plan whose output is packed.
#[derive(Clone, Debug)]
pub struct PackedOutput {
    /// How documents are packed.
    pub packing: Arc<Packing>,
    /// Computes the documents, one list per row that passes.
    pub documents: Arc<Program>,
    /// The columns of the sequences that are made of them.
    pub sequences: SchemaRef,
}

/// Whether a plan has a packed output.
pub fn packs(plan: &v1::Plan) -> bool {
    plan.outputs.iter().any(|output| output.pack.is_some())
}

/// Checks the packed output of a plan, if there is one.
pub(super) fn check_pack(plan: &v1::Plan) -> Result<(), PlanError> {
    let Some(index) = plan.outputs.iter().position(|output| output.pack.is_some()) else { return Ok(()) };
    let (output, path) = (&plan.outputs[index], format!("plan.outputs[{index}].pack"));
    let Some(pack) = &output.pack else { return Ok(()) };
    if plan.outputs.len() > 1 {
        let reason = "its rows are sequences, which have no other outputs: make it the plan's only output";
        return Err(PlanError::field(path, reason));
    }
    if pack.length == 0 || pack.length > LENGTH_MAX {
        return Err(PlanError::field(format!("{path}.length"), format!("expected 1 to {LENGTH_MAX} tokens")));
    }
    if [DOCUMENT_IDS, POSITION_IDS, ROW_ID].contains(&output.name.as_str()) {
        let reason = format!("\"{}\" is the name of another column of the sequences", output.name);
        return Err(PlanError::field(format!("plan.outputs[{index}].name"), reason));
    }
    let is_short = match v1::DType::try_from(dtype_of(output)) {
        Ok(v1::DType::Int32) => true,
        Ok(v1::DType::Int64) => false,
        _ => {
            return Err(PlanError::field(format!("plan.outputs[{index}].dtype"), "packed tokens are INT32 or INT64"));
        }
    };
    for (field, token) in [("separator", pack.separator), ("padding", Some(pack.padding))] {
        if let Some(token) = token.filter(|token| is_short && i32::try_from(*token).is_err()) {
            let reason = format!("{token} is not an INT32; give the output the dtype INT64");
            return Err(PlanError::field(format!("{path}.{field}"), reason));
        }
    }
    Ok(())
}

/// The packed output of a plan, of which `documents` computes the lists, and the program of its sequences; none if it
/// has no such output.
pub fn packed_output(
    plan: &v1::Plan,
    documents: &Arc<Program>,
    with_row_ids: bool,
) -> Result<Option<(PackedOutput, Program)>, PlanError> {
    let [output] = plan.outputs.as_slice() else { return Ok(None) };
    let Some(pack) = &output.pack else { return Ok(None) };
    let packing = Packing {
        name: output.name.clone(),
        length: pack.length as usize,
        separator: pack.separator,
        padding: pack.padding,
        row_ids: with_row_ids.then(|| ROW_ID.to_owned()),
    };
    let lists = documents.schema().fields().first().map_or(DataType::Null, |field| field.data_type().clone());
    let sequences = packing.schema(&lists).ok_or_else(|| {
        let reason = "packing takes lists of tokens from one column; this output has a fixed width";
        PlanError::field("plan.outputs[0].pack", reason)
    })?;
    let spec = |column: &str, dtype: DType| OutputSpec {
        name: column.to_owned(),
        dtype,
        chains: vec![Chain { column: column.to_owned(), ops: Vec::new() }],
    };
    let tokens = if dtype_of(output) == v1::DType::Int64 as i32 { DType::Int64 } else { DType::Int32 };
    let mut specs =
        vec![spec(&output.name, tokens), spec(DOCUMENT_IDS, DType::Int32), spec(POSITION_IDS, DType::Int32)];
    if with_row_ids {
        specs.push(spec(ROW_ID, DType::AsStored));
    }
    let program = compiled(&specs, &sequences)?;
    let output =
        PackedOutput { packing: Arc::new(packing), documents: Arc::clone(documents), sequences: Arc::new(sequences) };
    Ok(Some((output, program)))
}

fn compiled(specs: &[OutputSpec], schema: &Schema) -> Result<Program, PlanError> {
    Program::compile(specs, schema).map_err(|error| PlanError::of_outputs(error, schema))
}
