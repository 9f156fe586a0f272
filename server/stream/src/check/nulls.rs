//! Where nulls may occur, and which of them an output cannot hold.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, RecordBatch, UInt64Array, new_null_array},
    datatypes::{DataType, Field, FieldRef, Schema},
};
use forebay_catalog::Snapshot;
use forebay_expr::{ColumnStatistics, Expression, PruningStatistics};
use forebay_kernels::{BatchBuilder, Chain, DType, KernelError, Op, OutputSpec, Program};

use crate::rows::expressions::Expressions;

/// The stored columns; those that have no null in any row that passes the filter are not nullable.
pub(super) fn without_absent(stored: &Schema, snapshot: &Arc<Snapshot>, expressions: &Expressions) -> Schema {
    let names: Vec<String> = stored.fields().iter().map(|field| field.name().clone()).collect();
    let statistics = forebay_scan::statistics(snapshot, &names);
    let counted = |name: &String| statistics.columns.get(name).is_some_and(|known| is_zero(&known.null_counts));
    let filtered = |field: &Field| {
        expressions.filter.as_ref().is_some_and(|filter| excludes_nulls(filter, field, &expressions.filter_schema))
    };
    let narrowed = |field: &FieldRef| {
        let is_absent = field.is_nullable() && (counted(field.name()) || filtered(field));
        if is_absent { Arc::new(field.as_ref().clone().with_nullable(false)) } else { Arc::clone(field) }
    };
    Schema::new(stored.fields().iter().map(narrowed).collect::<Vec<_>>())
}

/// What the chains of outputs read; derived columns that have no nulls are not nullable.
pub(super) fn of_chains(expressions: &Expressions) -> Schema {
    let known: Vec<&str> = expressions.derived_without_nulls().collect();
    let narrowed = |field: &FieldRef| {
        let is_known = known.contains(&field.name().as_str());
        if is_known { Arc::new(field.as_ref().clone().with_nullable(false)) } else { Arc::clone(field) }
    };
    Schema::new(expressions.chain_schema.fields().iter().map(narrowed).collect::<Vec<_>>())
}

/// For each output the columns that may have nulls which it cannot hold.
pub(super) fn refused(outputs: &[OutputSpec], read: &Schema) -> Vec<Vec<String>> {
    let of_output = |output: &OutputSpec| {
        if output.dtype == DType::AsStored {
            return Vec::new();
        }
        let mut columns: Vec<String> = Vec::new();
        for chain in &output.chains {
            if !columns.contains(&chain.column) && may_end(output.dtype, chain, read) {
                columns.push(chain.column.clone());
            }
        }
        columns
    };
    outputs.iter().map(of_output).collect()
}

/// Whether every row group is known to have no null.
fn is_zero(counts: &UInt64Array) -> bool {
    counts.null_count() == 0 && counts.values().iter().all(|count| *count == 0)
}

/// Whether no row with a null in the column passes the filter: it would prune a row group of nothing else.
fn excludes_nulls(filter: &Expression, field: &Field, schema: &Arc<Schema>) -> bool {
    if !filter.columns().contains(field.name()) {
        return false;
    }
    let values = match field.data_type() {
        DataType::Dictionary(_, values) => values,
        other => other,
    };
    let bounds = new_null_array(values, 1);
    let null_counts = UInt64Array::from(vec![1]);
    let nulls = ColumnStatistics { minimums: Arc::clone(&bounds), maximums: bounds, null_counts };
    let columns = [(field.name().clone(), nulls)].into();
    filter.may_pass(schema, &PruningStatistics { row_counts: vec![1], columns }) == [false]
}

/// Whether a null may reach the end of a chain, found by computing the chain of a row of nulls.
fn may_end(dtype: DType, chain: &Chain, read: &Schema) -> bool {
    let spec = OutputSpec { name: "checked".to_owned(), dtype, chains: vec![chain.clone()] };
    // The whole output compiled, so the chain does.
    let Ok(program) = Program::compile(&[spec], read) else { return false };
    let fields = program.input_columns().iter().filter_map(|name| read.field_with_name(name).ok());
    let fields: Vec<Field> = fields.cloned().collect();
    let makes_nulls = chain.ops.iter().any(|op| matches!(op, Op::Lookup(_) | Op::MapId { default: None, .. }));
    if !makes_nulls && !fields.iter().any(Field::is_nullable) {
        return false;
    }
    let nulls = fields.iter().map(|field| new_null_array(field.data_type(), 1)).collect::<Vec<ArrayRef>>();
    let fields: Vec<Field> = fields.into_iter().map(|field| field.with_nullable(true)).collect();
    let Ok(row) = RecordBatch::try_new(Arc::new(Schema::new(fields)), nulls) else { return false };
    let appended = BatchBuilder::new(Arc::new(program), 1).append(&row, 0..1);
    matches!(appended, Err(KernelError::Null { .. } | KernelError::NullElement { .. } | KernelError::Unmapped { .. }))
}
