//! Excludes non-monotone expressions from pruning: bounds of a column bound a derived value only if the derivation
//! preserves order.
//!
//! DataFusion's pruning looks through negation and every cast between types that are not strings. Some do not preserve
//! order: timestamps cast to times start again at midnight, an integer cast to a boolean is false only for zero, and
//! the negation of the smallest int64 is itself. Others merge values, while pruning compares the values before the
//! cast.

use std::{
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
};

use arrow::{
    array::RecordBatch,
    datatypes::{DataType, FieldRef, Schema, SchemaRef},
};
use datafusion_common::{
    DataFusionError, plan_err,
    tree_node::{Transformed, TreeNode},
};
use datafusion_expr::ColumnarValue;
use datafusion_physical_expr::{
    PhysicalExpr, ScalarFunctionExpr,
    expressions::{CastExpr, NegativeExpr, TryCastExpr},
};

use crate::{casts::is_lossless, floats};

/// The filter with non-monotone expressions hidden from pruning.
pub(super) fn only(
    filter: Arc<dyn PhysicalExpr>,
    schema: &SchemaRef,
) -> Result<Arc<dyn PhysicalExpr>, DataFusionError> {
    let hide = |node: Arc<dyn PhysicalExpr>| {
        let call = node.downcast_ref::<ScalarFunctionExpr>().filter(|call| floats::is_canonical(call.fun()));
        if let Some([float]) = call.map(ScalarFunctionExpr::args)
            && float.data_type(schema)?.is_floating()
        {
            // Floats have no bounds here, so only nulls matter, and making floats canonical preserves nulls.
            return Ok(Transformed::yes(Arc::clone(float)));
        }
        let keeps_order = match (node.downcast_ref::<CastExpr>(), node.downcast_ref::<TryCastExpr>()) {
            (Some(cast), _) => is_lossless(&cast.expr().data_type(schema)?, cast.cast_type()),
            (_, Some(cast)) => is_lossless(&cast.expr().data_type(schema)?, cast.cast_type()),
            (None, None) => node.downcast_ref::<NegativeExpr>().is_none(),
        };
        Ok(if keeps_order { Transformed::no(node) } else { Transformed::yes(Arc::new(Hidden(node)) as _) })
    };
    filter.transform_up(hide).map(|transformed| transformed.data)
}

/// An expression that pruning cannot look into.
#[derive(Debug, Eq)]
struct Hidden(Arc<dyn PhysicalExpr>);

// === impl Hidden ===

impl PartialEq for Hidden {
    fn eq(&self, other: &Self) -> bool {
        self.0.eq(&other.0)
    }
}

impl Hash for Hidden {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl fmt::Display for Hidden {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, formatter)
    }
}

impl PhysicalExpr for Hidden {
    fn data_type(&self, schema: &Schema) -> Result<DataType, DataFusionError> {
        self.0.data_type(schema)
    }

    fn nullable(&self, schema: &Schema) -> Result<bool, DataFusionError> {
        self.0.nullable(schema)
    }

    fn return_field(&self, schema: &Schema) -> Result<FieldRef, DataFusionError> {
        self.0.return_field(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue, DataFusionError> {
        self.0.evaluate(batch)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.0]
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>, DataFusionError> {
        let Some(child) = children.into_iter().next() else { return plan_err!("a hidden expression has one child") };
        Ok(Arc::new(Self(child)))
    }

    fn fmt_sql(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt_sql(formatter)
    }
}
