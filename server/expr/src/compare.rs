//! Rewrites comparisons of a column or a derived value with a constant of another type.
//!
//! The constant is converted to the type of the column. If that type has no such value, the comparison is replaced by
//! an equivalent one: `i > 2.5` by `i > 2`, and `i = 2.5` by false. The result can prune row groups.

use arrow::datatypes::{DataType, TimeUnit};
use datafusion_common::{
    DFSchema, DataFusionError, ScalarValue,
    tree_node::{Transformed, TreeNode},
};
use datafusion_expr::{
    Between, BinaryExpr, Case, Expr, Operator,
    expr::{InList, ScalarFunction},
};

use super::{
    align,
    constant::{Position, is_time_literal, position},
    numbers,
    operands::{cast, has_one_type, is_comparison_operator, keeps_digits, type_of},
    times,
};

/// Rewrites a comparison whose operands have been rewritten. In other expressions, literals get their final type.
pub(super) fn exact(node: Expr, schema: &DFSchema) -> Result<Expr, DataFusionError> {
    if !keeps_digits(&node) && !matches!(node, Expr::BinaryExpr(BinaryExpr { op: Operator::Minus, .. })) {
        return node.map_children(|child| Ok(Transformed::yes(far_literal(child)))).map(|mapped| mapped.data);
    }
    Ok(match node {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison_operator(op) => {
            comparison(*left, op, *right, schema)
        }
        Expr::Between(between) => exact_between(between, schema),
        Expr::InList(list) => in_list(list, schema),
        Expr::Case(case) => exact_case(case, schema),
        Expr::ScalarFunction(call) if call.func.name() == "nullif" && call.args.len() == 2 => nullif(call, schema),
        Expr::ScalarFunction(mut call) if has_one_type(&call) => {
            align::align(&mut call.args.iter_mut().collect::<Vec<_>>(), schema);
            Expr::ScalarFunction(call)
        }
        Expr::BinaryExpr(BinaryExpr { mut left, op: Operator::Minus, mut right }) => {
            align::align_times(&mut [left.as_mut(), right.as_mut()], schema);
            let [left, right] = [*left, *right].map(|side| Box::new(far_literal(side)));
            Expr::BinaryExpr(BinaryExpr::new(left, Operator::Minus, right))
        }
        other => other,
    })
}

/// Converts an untyped TIMESTAMP literal outside of the range of nanoseconds to microseconds.
pub(super) fn far_literal(expr: Expr) -> Expr {
    let of_unit = |unit| position(&expr, &DataType::Timestamp(unit, None));
    if is_time_literal(&expr)
        && matches!(of_unit(TimeUnit::Nanosecond), Some(Position::Below | Position::Above))
        && let Some(Position::At(value)) = of_unit(TimeUnit::Microsecond)
    {
        return Expr::Literal(value, None);
    }
    expr
}

fn comparison(left: Expr, op: Operator, right: Expr, schema: &DFSchema) -> Expr {
    let (left_type, right_type) = (type_of(&left, schema), type_of(&right, schema));
    if let Some(position) = position(&right, &left_type).filter(|_| !is_constant(&left)) {
        return compared(left, op, position);
    }
    if let (Some(position), Some(op)) = (position(&left, &right_type).filter(|_| !is_constant(&right)), op.swap()) {
        return compared(right, op, position);
    }
    let (left, right) = match (&left_type, &right_type) {
        (left_type, right_type) if times::are_comparable(left_type, right_type) => {
            times::comparable(left, right, schema)
        }
        (DataType::Time32(a) | DataType::Time64(a), DataType::Time32(b) | DataType::Time64(b)) if a != b => {
            (cast(left, DataType::Time64(TimeUnit::Nanosecond)), cast(right, DataType::Time64(TimeUnit::Nanosecond)))
        }
        (left_type, right_type) if left_type.is_floating() || right_type.is_floating() => {
            (as_double(left, schema), as_double(right, schema))
        }
        _ => (unless_exact(left, &right_type), unless_exact(right, &left_type)),
    };
    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right)))
}

fn is_constant(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(..)) || is_time_literal(expr)
}

/// A number as float64, to compare integers and decimals with floats: DataFusion's common types, float32 and decimals
/// of 15 digits, hold less. Returns other expressions unchanged.
fn as_double(expr: Expr, schema: &DFSchema) -> Expr {
    let expr = numbers::as_float(expr);
    let data_type = type_of(&expr, schema);
    if data_type.is_numeric() && data_type != DataType::Float64 { cast(expr, DataType::Float64) } else { expr }
}

/// A decimal literal as float64, unless it is compared with an integer or a decimal.
fn unless_exact(literal: Expr, other: &DataType) -> Expr {
    if numbers::is_exact(other) { literal } else { numbers::as_float(literal) }
}

/// `expr op constant` as a comparison of values of the expression's type.
fn compared(expr: Expr, op: Operator, position: Position) -> Expr {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    let binary = |expr, op, value| Expr::BinaryExpr(BinaryExpr::new(Box::new(expr), op, Box::new(literal(value))));
    match (position, op) {
        (Position::At(value), op) => binary(expr, op, value),
        // Still evaluates the expression, which may fail.
        (_, IsDistinctFrom) => expr.clone().is_null().or(expr.is_not_null()),
        (_, IsNotDistinctFrom) => expr.clone().is_null().and(expr.is_not_null()),
        (Position::After(floor), Lt | LtEq) => binary(expr, LtEq, floor),
        (Position::After(floor), Gt | GtEq) => binary(expr, Gt, floor),
        (_, Eq) | (Position::Below, Lt | LtEq) | (Position::Above, Gt | GtEq) => never(expr),
        (_, NotEq) | (Position::Below, Gt | GtEq) | (Position::Above, Lt | LtEq) => always(expr),
        // Unreachable: no other operator compares.
        (_, op) => Expr::BinaryExpr(BinaryExpr::new(Box::new(expr), op, Box::new(literal(ScalarValue::Null)))),
    }
}

fn literal(value: ScalarValue) -> Expr {
    Expr::Literal(value, None)
}

/// False, and null where the expression is null.
fn never(expr: Expr) -> Expr {
    expr.is_null().and(literal(ScalarValue::Boolean(None)))
}

/// True, and null where the expression is null.
fn always(expr: Expr) -> Expr {
    expr.is_not_null().or(literal(ScalarValue::Boolean(None)))
}

fn exact_between(between: Between, schema: &DFSchema) -> Expr {
    let Between { expr, negated, low, high } = between;
    let data_type = type_of(&expr, schema);
    if let (Some(Position::At(low)), Some(Position::At(high))) =
        (position(&low, &data_type), position(&high, &data_type))
    {
        return Expr::Between(Between::new(expr, negated, Box::new(literal(low)), Box::new(literal(high))));
    }
    let (above, below, join) = if negated {
        (Operator::Lt, Operator::Gt, Operator::Or)
    } else {
        (Operator::GtEq, Operator::LtEq, Operator::And)
    };
    let (left, right) = (comparison((*expr).clone(), above, *low, schema), comparison(*expr, below, *high, schema));
    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), join, Box::new(right)))
}

fn in_list(list: InList, schema: &DFSchema) -> Expr {
    let InList { mut expr, mut list, negated } = list;
    let data_type = type_of(&expr, schema);
    if data_type.is_floating() {
        *expr = as_double(*expr, schema);
        list = list.into_iter().map(|item| as_double(item, schema)).collect();
    }
    let is_apart =
        |item: &Expr| position(item, &data_type).is_none() && times::are_comparable(&data_type, &type_of(item, schema));
    if list.iter().any(is_apart) {
        return one_of(&expr, list, negated, schema);
    }
    let item = |item: Expr| match position(&item, &data_type) {
        Some(Position::At(value)) => Some(literal(value)),
        Some(_) => None,
        None => Some(unless_exact(item, &data_type)),
    };
    let list: Vec<Expr> = list.into_iter().filter_map(item).collect();
    match (list.is_empty(), negated) {
        (true, false) => never(*expr),
        (true, true) => always(*expr),
        (false, _) => Expr::InList(InList { expr, list, negated }),
    }
}

/// `IN` as the comparisons that define it, for items of other types.
fn one_of(expr: &Expr, list: Vec<Expr>, negated: bool, schema: &DFSchema) -> Expr {
    let (op, join) = if negated { (Operator::NotEq, Operator::And) } else { (Operator::Eq, Operator::Or) };
    let compared = list.into_iter().map(|item| comparison(expr.clone(), op, item, schema));
    let joined =
        compared.reduce(|left, right| Expr::BinaryExpr(BinaryExpr::new(Box::new(left), join, Box::new(right))));
    joined.unwrap_or_else(|| literal(ScalarValue::Boolean(Some(negated))))
}

/// Rewrites `CASE x WHEN a …` to `CASE WHEN x = a …` unless all types are equal.
fn exact_case(case: Case, schema: &DFSchema) -> Expr {
    let Case { expr, mut when_then_expr, mut else_expr } = case;
    let results = when_then_expr.iter_mut().map(|(_, then)| then.as_mut());
    let mut results: Vec<&mut Expr> = results.chain(else_expr.as_deref_mut()).collect();
    align::align(&mut results, schema);
    align::unite(&mut results, schema);
    let Some(base) = expr else { return Expr::Case(Case { expr: None, when_then_expr, else_expr }) };
    let data_type = type_of(&base, schema);
    let is_plain = |(when, _): &(Box<Expr>, Box<Expr>)| {
        let has_own_order = data_type.is_floating() || matches!(data_type, DataType::Interval(_));
        !has_own_order && type_of(when, schema) == data_type && !data_type.is_null()
    };
    if when_then_expr.iter().all(is_plain) {
        return Expr::Case(Case { expr: Some(base), when_then_expr, else_expr });
    }
    for (when, _) in &mut when_then_expr {
        let value = std::mem::replace(when.as_mut(), literal(ScalarValue::Null));
        **when = comparison((*base).clone(), Operator::Eq, value, schema);
    }
    Expr::Case(Case { expr: None, when_then_expr, else_expr })
}

/// Rewrites `nullif(a, b)` to a CASE that keeps the type of `a` and the sign of a zero.
fn nullif(call: ScalarFunction, schema: &DFSchema) -> Expr {
    let mut args = call.args.into_iter();
    let (Some(value), Some(other)) = (args.next(), args.next()) else { return literal(ScalarValue::Null) };
    let value = numbers::as_float(value);
    let equal = comparison(value.clone(), Operator::Eq, other, schema);
    let null = literal(ScalarValue::Null);
    Expr::Case(Case::new(None, vec![(Box::new(equal), Box::new(null))], Some(Box::new(value))))
}
