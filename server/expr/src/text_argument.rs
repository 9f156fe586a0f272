//! The arguments of functions that must be string literals, because their cost or type depends on them.

use datafusion_common::ScalarValue;
use datafusion_expr::{Cast, Expr, TryCast};

/// A string argument, if it is known before evaluation.
#[derive(Clone, Copy, Debug)]
pub(super) enum TextArgument<'a> {
    /// A string literal.
    Literal(&'a str),
    /// Null.
    Null,
    /// Computed, or not a string.
    Computed,
}

/// The value of an expression as a string argument.
pub(super) fn text_argument(expr: &Expr) -> TextArgument<'_> {
    match expr {
        Expr::Literal(ScalarValue::Null, _) => TextArgument::Null,
        Expr::Literal(value, _) => match value.try_as_str() {
            Some(Some(text)) => TextArgument::Literal(text),
            Some(None) => TextArgument::Null,
            None => TextArgument::Computed,
        },
        Expr::Cast(Cast { expr, .. }) | Expr::TryCast(TryCast { expr, .. }) => text_argument(expr),
        _ => TextArgument::Computed,
    }
}
