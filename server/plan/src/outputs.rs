//! A canonical, fitted plan → output specs of the kernels, and the columns to read for them.

use std::{collections::BTreeSet, sync::Arc};

use arrow::datatypes::{DataType, Field, Schema};
use forebay_kernels::{Chain, DType, Op, OutputSpec, Program};
use forebay_proto::v1;
use forebay_runtime::error::near_names;

use super::{
    OPS_MAX, PLAN_BYTES_MAX, PLAN_COLUMNS_MAX, PLAN_ENTRIES_MAX, ROW_ID,
    chain_start::{chain_start, renumbered},
    decode_image::more_outputs,
    default_dtype::{dtype_of, of_elements},
    encodings::chain_schema,
    error::PlanError,
    history::check_history,
    learn::first_unlearned,
    lookup::Tables,
    null_advice::null_advice,
    ops::kernel_op,
    pack::check_pack,
    path::chain_path,
};

/// Compiles the outputs of a canonical plan for a schema of stored and derived columns.
pub fn compile(plan: &v1::Plan, schema: &Schema, with_row_ids: bool, tables: &Tables) -> Result<Program, PlanError> {
    if let Some((path, op)) = first_unlearned(plan)? {
        return Err(PlanError::NotFitted { path, op });
    }
    let mut specs = output_specs(plan, schema, tables)?;
    specs.extend(more_outputs(plan));
    let read = chain_schema(plan, schema)?;
    let mut fields = read.fields().to_vec();
    if with_row_ids {
        if schema.index_of(ROW_ID).is_ok() {
            return Err(PlanError::row_id_column("with_row_ids", ROW_ID));
        }
        let chains = vec![Chain { column: ROW_ID.to_owned(), ops: Vec::new() }];
        specs.push(OutputSpec { name: ROW_ID.to_owned(), dtype: DType::AsStored, chains });
        if read.index_of(ROW_ID).is_err() {
            fields.push(Arc::new(Field::new(ROW_ID, DataType::UInt64, false)));
        }
    }
    let schema = Schema::new(fields);
    let program = Program::compile(&specs, &schema);
    let program = program.map_err(|error| PlanError::of_outputs(renumbered(error, plan), &schema))?;
    Ok(program.with_null_advice(|output, chain| null_advice(plan, &schema, output, chain)))
}

/// Converts every output. An op that is not fitted is an error.
pub fn output_specs(plan: &v1::Plan, schema: &Schema, tables: &Tables) -> Result<Vec<OutputSpec>, PlanError> {
    check_shape(plan)?;
    let mut specs = Vec::with_capacity(plan.outputs.len());
    for (index, output) in plan.outputs.iter().enumerate() {
        let path = format!("plan.outputs[{index}]");
        let mut chains = Vec::with_capacity(output.parts.len());
        for (part_index, part) in output.parts.iter().enumerate() {
            let path = chain_path(index, part_index);
            for column in &part.columns {
                let (column, first) = chain_start(part, column);
                check_column(schema, &column, &path)?;
                let ops = part.ops.iter().enumerate().skip(first);
                let ops: Result<Vec<Op>, PlanError> =
                    ops.map(|(number, op)| kernel_op(op, &path, number, tables)).collect();
                chains.push(Chain { column, ops: ops? });
            }
        }
        if chains.is_empty() {
            return Err(PlanError::field(format!("{path}.parts"), "an output needs at least one column"));
        }
        specs.push(OutputSpec { name: output.name.clone(), dtype: dtype(output, schema, &path)?, chains });
    }
    Ok(specs)
}

/// Returns the indices of the stored columns among `names`, in the order of the stored schema.
pub fn stored_columns<'a>(stored: &Schema, names: impl IntoIterator<Item = &'a str>) -> Vec<usize> {
    let indices: BTreeSet<usize> = names.into_iter().filter_map(|name| stored.index_of(name).ok()).collect();
    indices.into_iter().collect()
}

/// Checks the sizes of a plan before it is compiled.
pub fn check_shape(plan: &v1::Plan) -> Result<(), PlanError> {
    let joined = plan.join.iter().map(|join| join.columns.len().max(1)).sum();
    let entries = [
        ("plan.join", joined),
        ("plan.derive", plan.derive.len()),
        ("plan.outputs", plan.outputs.len()),
        ("plan.units", plan.units.len()),
        ("plan.types", plan.types.len()),
    ];
    for (path, count) in entries {
        if count > PLAN_ENTRIES_MAX {
            return Err(PlanError::field(path, format!("{count} entries, the limit is {PLAN_ENTRIES_MAX}")));
        }
    }
    let columns: usize = plan.outputs.iter().flat_map(|output| &output.parts).map(|part| part.columns.len()).sum();
    if columns > PLAN_COLUMNS_MAX {
        return Err(PlanError::field("plan.outputs", format!("{columns} columns, the limit is {PLAN_COLUMNS_MAX}")));
    }
    for (index, output) in plan.outputs.iter().enumerate() {
        for (part_index, part) in output.parts.iter().enumerate() {
            let (path, ops) = (format!("{}.ops", chain_path(index, part_index)), part.ops.len());
            if ops > OPS_MAX {
                return Err(PlanError::field(path, format!("{ops} ops, the limit is {OPS_MAX}")));
            }
            let learned: usize = part.ops.iter().map(prost::Message::encoded_len).sum();
            if learned.saturating_mul(part.columns.len()) > PLAN_BYTES_MAX {
                let reason = format!("more than {PLAN_BYTES_MAX} bytes for {} columns", part.columns.len());
                return Err(PlanError::field(path, reason));
            }
        }
    }
    if plan.outputs.is_empty() {
        return Err(PlanError::field("plan.outputs", "a plan needs at least one output"));
    }
    if let Some(history) = &plan.history {
        check_history(history, "plan.history")?;
    }
    check_pack(plan)
}

fn check_column(schema: &Schema, column: &str, path: &str) -> Result<(), PlanError> {
    let named = schema.fields().iter().filter(|field| field.name() == column).count();
    match named {
        1 => Ok(()),
        0 => Err(PlanError::UnknownColumn {
            path: format!("{path}.columns"),
            column: column.to_owned(),
            near: near_names(column, schema.fields().iter().map(|field| field.name().as_str())),
        }),
        _ => Err(PlanError::field(format!("{path}.columns"), format!("the dataset has {named} columns \"{column}\""))),
    }
}

fn dtype(output: &v1::Output, schema: &Schema, path: &str) -> Result<DType, PlanError> {
    let named = v1::DType::try_from(dtype_of(output));
    Ok(match named.map(|named| if named == v1::DType::Element { of_elements(output, schema) } else { named }) {
        Ok(v1::DType::Float32) => DType::Float32,
        Ok(v1::DType::Float16) => DType::Float16,
        Ok(v1::DType::Float64) => DType::Float64,
        Ok(v1::DType::Bfloat16) => DType::BFloat16,
        Ok(v1::DType::Int32) => DType::Int32,
        Ok(v1::DType::Int64) => DType::Int64,
        Ok(v1::DType::Uint8) => DType::UInt8,
        Ok(v1::DType::AsStored) => DType::AsStored,
        Ok(v1::DType::Element) | Err(_) => {
            let allowed =
                "expected one of FLOAT32, FLOAT16, BFLOAT16, FLOAT64, INT32, INT64, UINT8, AS_STORED, ELEMENT";
            return Err(PlanError::field(format!("{path}.dtype"), allowed));
        }
    })
}
