//! Float literals, also written as casts: `1e300`, `-CAST('NaN' AS DOUBLE)`.

use arrow::datatypes::DataType;
use datafusion_common::ScalarValue;
use datafusion_expr::{Cast, Expr};

/// The value of a float literal, of a string literal cast to a float, or of the negation of either.
pub(super) fn of(expr: &Expr) -> Option<f64> {
    match expr {
        Expr::Literal(ScalarValue::Float64(Some(value)), _) => Some(*value),
        Expr::Literal(ScalarValue::Float32(Some(value)), _) => Some(f64::from(*value)),
        Expr::Cast(Cast { expr, field }) => {
            let Expr::Literal(text, _) = expr.as_ref() else { return None };
            text.try_as_str().flatten()?;
            match field.data_type() {
                DataType::Float64 | DataType::Float32 => {
                    of(&Expr::Literal(text.cast_to(field.data_type()).ok()?, None))
                }
                _ => None,
            }
        }
        Expr::Negative(inner) => of(inner).map(|value| -value),
        _ => None,
    }
}
