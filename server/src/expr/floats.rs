//! One order of floats wherever they are compared: all NaN are equal and greater than every number, and -0.0 is 0.0.
//!
//! Spark, `PostgreSQL` and `DuckDB` have the same rule. Arrow's kernels order floats by their bits instead, where a NaN's
//! sign decides and IN tells the zeros apart, so what is compared is made canonical first.
//!
//! The same function keeps casts that lose something in place: the simplifier would compare what is cast instead, and
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

use super::{casts::is_lossless, compare, numbers};

type Half = <Float16Type as ArrowPrimitiveType>::Native;

static CANONICAL: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    Arc::new(ScalarUDF::new_from_impl(Canonical { signature: Signature::any(1, Volatility::Immutable) }))
});

/// Makes every float that is compared canonical. The expression must have been coerced: both sides have one type.
pub(super) fn ordered(expr: Expr, schema: &DFSchema) -> Result<Expr, DataFusionError> {
    let rewrite = |node| Ok(Transformed::yes(rewrite(node, schema)));
    expr.transform_up(rewrite).map(|transformed| transformed.data)
}

/// Whether a function is the one that makes floats canonical.
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
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if compare::is_comparison_operator(op) => {
            Expr::BinaryExpr(BinaryExpr::new(Box::new(canonical(*left)), op, Box::new(canonical(*right))))
        }
        Expr::ScalarFunction(ScalarFunction { func, args }) if matches!(func.name(), "greatest" | "least") => {
            Expr::ScalarFunction(ScalarFunction { func, args: args.into_iter().map(canonical).collect() })
        }
        other => other,
    }
}

/// An expression whose floats are canonical; what cannot be NaN or -0.0 stays as it is, so that it still prunes.
fn canonical(expr: Expr, schema: &DFSchema) -> Expr {
    let is_kept = match &expr {
        Expr::Literal(value, _) => !is_special(value),
        Expr::Cast(Cast { expr: from, field }) | Expr::TryCast(TryCast { expr: from, field }) => {
            let (from, to) = (compare::type_of(from, schema), field.data_type());
            if to.is_floating() { numbers::is_exact(&from) } else { is_lossless(&from, to) }
        }
        expr => !compare::type_of(expr, schema).is_floating(),
    };
    if is_kept {
        return expr;
    }
    Expr::ScalarFunction(ScalarFunction { func: Arc::clone(&CANONICAL), args: vec![expr] })
}

fn is_special(value: &ScalarValue) -> bool {
    match value {
        ScalarValue::Float16(Some(value)) => value.is_nan() || value.to_bits() == Half::NEG_ZERO.to_bits(),
        ScalarValue::Float32(Some(value)) => value.is_nan() || value.to_bits() == (-0.0_f32).to_bits(),
        ScalarValue::Float64(Some(value)) => value.is_nan() || value.to_bits() == (-0.0_f64).to_bits(),
        _ => false,
    }
}

/// A float with one NaN and one zero. Expressions cannot call it by name.
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
        let [data_type] = arg_types else { return plan_err!("canonical has one argument") };
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
            _ => plan_err!("canonical has one argument"),
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
                Half::NAN
            } else if value.to_bits() == Half::NEG_ZERO.to_bits() {
                Half::ZERO
            } else {
                value
            }
        }),
        // Adding zero leaves every number as it is and makes -0.0 the other zero.
        DataType::Float32 => map::<Float32Type>(values, |value| if value.is_nan() { f32::NAN } else { value + 0.0 }),
        DataType::Float64 => map::<Float64Type>(values, |value| if value.is_nan() { f64::NAN } else { value + 0.0 }),
        _ => Arc::clone(values),
    }
}
