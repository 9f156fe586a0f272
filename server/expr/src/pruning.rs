//! Prunes row groups: a filter and their statistics show where it cannot be true.

mod monotone;

use std::{collections::HashMap, sync::Arc};

use arrow::{
    array::{ArrayRef, BooleanArray, UInt64Array},
    datatypes::{DataType, SchemaRef},
};
use datafusion_common::{Column, ScalarValue};
use datafusion_physical_expr::simplifier::PhysicalExprSimplifier;
use datafusion_pruning::PruningPredicateBuilder;

use super::expression::Expression;

/// Statistics of one column, with one value per row group; null means unknown.
#[derive(Clone, Debug)]
pub struct ColumnStatistics {
    /// A lower bound of the values.
    pub minimums: ArrayRef,
    /// An upper bound of the values.
    pub maximums: ArrayRef,
    /// Numbers of nulls.
    pub null_counts: UInt64Array,
}

/// Statistics of some columns, per row group.
#[derive(Clone, Debug, Default)]
pub struct PruningStatistics {
    /// Rows of each row group.
    pub row_counts: Vec<u64>,
    /// By column name; a column may be missing.
    pub columns: HashMap<String, ColumnStatistics>,
}

impl Expression {
    /// For each row group, whether the filter may be true for any of its rows. True without usable statistics.
    pub fn may_pass(&self, schema: &SchemaRef, statistics: &PruningStatistics) -> Vec<bool> {
        let keep_all = || vec![true; statistics.row_counts.len()];
        let monotone = monotone::only(Arc::clone(self.physical()), schema);
        // Moves NOT inwards: pruning does not look through it.
        let simplified = monotone.and_then(|filter| PhysicalExprSimplifier::new(schema).simplify(filter));
        let Ok(filter) = simplified else { return keep_all() };
        let builder = PruningPredicateBuilder::new().with_file_schema(SchemaRef::clone(schema));
        match builder.build(filter) {
            Some(predicate) => predicate.prune(statistics).unwrap_or_else(|_| keep_all()),
            None => keep_all(),
        }
    }
}

/// Whether bounds of this type are usable: those of floats exclude NaN, which expressions order after every number.
fn has_true_bounds(array: &ArrayRef) -> bool {
    !matches!(array.data_type(), DataType::Float16 | DataType::Float32 | DataType::Float64)
}

impl datafusion_common::pruning::PruningStatistics for PruningStatistics {
    fn min_values(&self, column: &Column) -> Option<ArrayRef> {
        self.columns.get(&column.name).map(|known| known.minimums.clone()).filter(has_true_bounds)
    }

    fn max_values(&self, column: &Column) -> Option<ArrayRef> {
        self.columns.get(&column.name).map(|known| known.maximums.clone()).filter(has_true_bounds)
    }

    fn num_containers(&self) -> usize {
        self.row_counts.len()
    }

    fn null_counts(&self, column: &Column) -> Option<ArrayRef> {
        let known = self.columns.get(&column.name)?;
        Some(Arc::new(known.null_counts.clone()))
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        Some(Arc::new(UInt64Array::from(self.row_counts.clone())))
    }

    fn contained(&self, _column: &Column, _values: &std::collections::HashSet<ScalarValue>) -> Option<BooleanArray> {
        None
    }
}
