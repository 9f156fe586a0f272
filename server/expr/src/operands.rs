//! Types of expressions, and which expressions compare their operands or give them one type.

use arrow::datatypes::DataType;
use datafusion_common::DFSchema;
use datafusion_expr::{BinaryExpr, Cast, Expr, ExprSchemable, Operator, expr::ScalarFunction};

/// The type of an expression; null if it has none yet.
pub(super) fn type_of(expr: &Expr, schema: &DFSchema) -> DataType {
    expr.get_type(schema).unwrap_or(DataType::Null)
}

/// An expression cast to a type.
pub(super) fn cast(expr: Expr, data_type: DataType) -> Expr {
    Expr::Cast(Cast::new(Box::new(expr), data_type))
}

/// Whether decimal literals among the operands of an expression keep all digits until the comparison is rewritten.
pub(super) fn keeps_digits(expr: &Expr) -> bool {
    match expr {
        Expr::BinaryExpr(BinaryExpr { op, .. }) => is_comparison_operator(*op),
        Expr::Between(_) | Expr::InList(_) | Expr::Case(_) => true,
        Expr::ScalarFunction(call) => call.func.name() == "nullif" || has_one_type(call),
        _ => false,
    }
}

/// Whether an operator is a comparison.
pub(super) fn is_comparison_operator(operator: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(operator, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

/// Whether the arguments and the result of a function have one type.
pub(super) fn has_one_type(call: &ScalarFunction) -> bool {
    matches!(call.func.name(), "coalesce" | "nvl" | "greatest" | "least")
}
