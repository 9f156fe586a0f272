//! One order of floats in all comparisons: all NaN are equal and greater than every number, and -0.0 equals 0.0.
//!
//! Spark, `PostgreSQL` and `DuckDB` have the same order. Arrow's kernels compare floats by their bits, where the sign
//! of a NaN matters and IN distinguishes the zeros, so operands of comparisons are made canonical first.
//!
//! The same function protects lossy casts: the simplifier would move the cast to the other operand, and
//! `CAST(1.25 AS INT) = 1` would be false.

use std::sync::{Arc, LazyLock};

use arrow::{
    array::{ArrayRef, AsArray, PrimitiveArray},
    datatypes::{ArrowPrimitiveType, DataType, Float16Type, Float32Type, Float64Type},
};
use datafusion_common::{
    DFSchema, DataFusionError, ScalarValue, plan_err,
    tree_node::{Transformed, TreeNode},
};
use datafusion_expr::{
    Between, BinaryExpr, Cast, ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TryCast,
    Volatility,
    expr::{InList, ScalarFunction},
};

use super::{casts::is_lossless, numbers, operands};

type F16 = <Float16Type as ArrowPrimitiveType>::Native;

static CANONICAL: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    Arc::new(ScalarUDF::new_from_impl(Canonical { signature: Signature::any(1, Volatility::Immutable) }))
});

/// Makes all compared floats canonical. Requires a coerced expression, in which both operands have one type.
pub(super) fn ordered(expr: Expr, schema: &DFSchema) -> Result<Expr, DataFusionError> {
    let rewrite = |node| Ok(Transformed::yes(rewrite(node, schema)));
    expr.transform_up(rewrite).map(|transformed| transformed.data)
}

/// The function that makes floats canonical.
pub(super) fn canonical_function() -> Arc<ScalarUDF> {
    Arc::clone(&CANONICAL)
}

/// Whether a function is the one of this module.
pub(super) fn is_canonical(function: &ScalarUDF) -> bool {
    function == CANONICAL.as_ref()
}

fn rewrite(node: Expr, schema: &DFSchema) -> Expr {
    let canonical = |expr: Expr| canonical(expr, schema);
    match node {
        Expr::Between(Between { expr, negated, low, high }) => Expr::Between(Between::new(
            Box::new(canonical(*expr)),
            negated,
            Box::new(canonical(*low)),
            Box::new(canonical(*high)),
        )),
        Expr::InList(InList { expr, list, negated }) => Expr::InList(InList {
            expr: Box::new(canonical(*expr)),
            list: list.into_iter().map(canonical).collect(),
            negated,
        }),
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if operands::is_comparison_operator(op) => {
            Expr::BinaryExpr(BinaryExpr::new(Box::new(canonical(*left)), op, Box::new(canonical(*right))))
        }
        Expr::ScalarFunction(ScalarFunction { func, args }) if matches!(func.name(), "greatest" | "least") => {
            Expr::ScalarFunction(ScalarFunction { func, args: args.into_iter().map(canonical).collect() })
        }
        other => other,
    }
}

/// Makes the floats of an expression canonical. Returns expressions that cannot be NaN or -0.0 unchanged, so that they
/// still prune.
fn canonical(expr: Expr, schema: &DFSchema) -> Expr {
    let is_unchanged = match &expr {
        Expr::Literal(value, _) => !is_special(value),
        Expr::Cast(Cast { expr: from, field }) | Expr::TryCast(TryCast { expr: from, field }) => {
            let (from, to) = (operands::type_of(from, schema), field.data_type());
            if to.is_floating() { numbers::is_exact(&from) } else { is_lossless(&from, to) }
        }
        expr => !operands::type_of(expr, schema).is_floating(),
    };
    if is_unchanged {
        return expr;
    }
    Expr::ScalarFunction(ScalarFunction { func: Arc::clone(&CANONICAL), args: vec![expr] })
}

fn is_special(value: &ScalarValue) -> bool {
    match value {
        ScalarValue::Float16(Some(value)) => value.is_nan() || value.to_bits() == F16::NEG_ZERO.to_bits(),
        ScalarValue::Float32(Some(value)) => value.is_nan() || value.to_bits() == (-0.0_f32).to_bits(),
        ScalarValue::Float64(Some(value)) => value.is_nan() || value.to_bits() == (-0.0_f64).to_bits(),
        _ => false,
    }
}

/// A function that maps all NaN to one and -0.0 to 0.0. SQL cannot call it by name.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Canonical {
    signature: Signature,
}

// === impl Canonical ===

impl ScalarUDFImpl for Canonical {
    fn name(&self) -> &'static str {
        "canonical"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType, DataFusionError> {
        let [data_type] = arg_types else { return plan_err!("canonical takes one argument") };
        Ok(data_type.clone())
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue, DataFusionError> {
        match args.args.as_slice() {
            [ColumnarValue::Array(values)] => Ok(ColumnarValue::Array(with_one_nan(values))),
            [ColumnarValue::Scalar(value)] => {
                let array = with_one_nan(&value.to_array()?);
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?))
            }
            _ => plan_err!("canonical takes one argument"),
        }
    }
}

fn with_one_nan(values: &ArrayRef) -> ArrayRef {
    fn map<T: ArrowPrimitiveType>(values: &ArrayRef, canonical: impl Fn(T::Native) -> T::Native) -> ArrayRef {
        let mapped: PrimitiveArray<T> = values.as_primitive::<T>().unary(canonical);
        Arc::new(mapped)
    }
    match values.data_type() {
        DataType::Float16 => map::<Float16Type>(values, |value| {
            if value.is_nan() {
                F16::NAN
            } else if value.to_bits() == F16::NEG_ZERO.to_bits() {
                F16::ZERO
            } else {
                value
            }
        }),
        // Adding zero changes only -0.0, to 0.0.
        DataType::Float32 => map::<Float32Type>(values, |value| if value.is_nan() { f32::NAN } else { value + 0.0 }),
        DataType::Float64 => map::<Float64Type>(values, |value| if value.is_nan() { f64::NAN } else { value + 0.0 }),
        _ => Arc::clone(values),
    }
}
