//! Rewrites what combines dates, timestamps, intervals and durations, where DataFusion's types lose or overflow.
//!
//! - A date or timestamp plus or minus an interval, a duration or a time of day: [`functions::shift`].
//! - Timestamps of several types get a common one that holds the year 9999: nanoseconds end in 2262.
//! - Intervals and durations are compared by their lengths: [`functions::span`].
//! - A cast to a timestamp with a zone finds an instant for every local time: [`functions::zoned`].

use std::sync::Arc;

use arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use datafusion_common::{
    DFSchema, DataFusionError, ScalarValue,
    tree_node::{Transformed, TreeNode},
};
use datafusion_expr::{BinaryExpr, Cast, Expr, Operator, TryCast, expr::ScalarFunction};

use super::{
    constant::{Position, is_time_literal, position},
    functions::{extreme, shift, span, zoned},
    operands::{cast, type_of},
};

/// Rewrites arithmetic, `AT TIME ZONE` and functions whose operands have been rewritten.
pub(super) fn exact(node: Expr, schema: &DFSchema) -> Expr {
    match node {
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::Plus | Operator::Minus), right }) => {
            arithmetic(*left, op, *right, schema)
        }
        Expr::Cast(Cast { expr, field }) => match widened(field.data_type(), &expr, schema) {
            Some(target) => cast(*expr, target),
            None => Expr::Cast(Cast { expr, field }),
        },
        Expr::TryCast(TryCast { expr, field }) => match widened(field.data_type(), &expr, schema) {
            Some(target) => Expr::TryCast(TryCast::new(expr, target)),
            None => Expr::TryCast(TryCast { expr, field }),
        },
        Expr::ScalarFunction(call) if matches!(call.func.name(), "greatest" | "least") => {
            let is_interval = |expr: &Expr| matches!(type_of(expr, schema), DataType::Interval(_));
            if !call.args.iter().any(is_interval) {
                return Expr::ScalarFunction(call);
            }
            let func = extreme::function(call.func.name() == "greatest");
            Expr::ScalarFunction(ScalarFunction { func, args: call.args })
        }
        other => other,
    }
}

/// Replaces casts of local times and texts to a timestamp with a zone. Requires a coerced expression.
pub(super) fn resolved(expr: Expr, schema: &DFSchema) -> Result<Expr, DataFusionError> {
    let replace = |expr: Box<Expr>, target: &DataType, is_try: bool| -> Result<Expr, Box<Expr>> {
        match target {
            DataType::Timestamp(unit, Some(zone)) if is_local(&type_of(&expr, schema), zone) => {
                let func = zoned::function(*unit, zone, is_try);
                Ok(Expr::ScalarFunction(ScalarFunction { func, args: vec![*expr] }))
            }
            _ => Err(expr),
        }
    };
    let rewrite = |node| {
        Ok(Transformed::yes(match node {
            Expr::Cast(Cast { expr, field }) => {
                replace(expr, field.data_type(), false).unwrap_or_else(|expr| Expr::Cast(Cast { expr, field }))
            }
            Expr::TryCast(TryCast { expr, field }) => {
                replace(expr, field.data_type(), true).unwrap_or_else(|expr| Expr::TryCast(TryCast { expr, field }))
            }
            other => other,
        }))
    };
    expr.transform_up(rewrite).map(|transformed| transformed.data)
}

/// Whether values of a type are local times of a zone that may skip or repeat some. Texts are read in any year.
fn is_local(data_type: &DataType, zone: &str) -> bool {
    let is_fixed = zone == "UTC" || zone.starts_with(['+', '-']);
    match data_type {
        DataType::Timestamp(_, None) | DataType::Date32 | DataType::Date64 => !is_fixed,
        text => text.is_string(),
    }
}

/// The type of a cast to a timestamp: SQL names nanoseconds, but the cast keeps the unit of a timestamp, and makes
/// microseconds of dates and, with a zone, of texts. A cast that drops a zone is unchanged.
fn widened(target: &DataType, expr: &Expr, schema: &DFSchema) -> Option<DataType> {
    let DataType::Timestamp(TimeUnit::Nanosecond, zone) = target else { return None };
    let unit = match type_of(expr, schema) {
        DataType::Timestamp(unit, from) if zone.is_some() || from.is_none() => unit,
        DataType::Date32 | DataType::Date64 => TimeUnit::Microsecond,
        text if text.is_string() && zone.is_some() => {
            let of_unit = |unit| position(expr, &DataType::Timestamp(unit, None));
            match (of_unit(TimeUnit::Microsecond), of_unit(TimeUnit::Nanosecond)) {
                (Some(Position::After(_)), Some(Position::At(_))) => TimeUnit::Nanosecond,
                _ => TimeUnit::Microsecond,
            }
        }
        _ => return None,
    };
    Some(DataType::Timestamp(unit, zone.clone()))
}

/// A sum or a difference of times.
fn arithmetic(left: Expr, op: Operator, right: Expr, schema: &DFSchema) -> Expr {
    let (left, right) = (far_reaching(left), far_reaching(right));
    let (left_type, right_type) = (type_of(&left, schema), type_of(&right, schema));
    let is_minus = op == Operator::Minus;
    if is_moment(&left_type) && is_shift(&left_type, &right_type) {
        return shifted(left, &left_type, right, &right_type, is_minus);
    }
    if !is_minus && is_moment(&right_type) && is_shift(&right_type, &left_type) {
        return shifted(right, &right_type, left, &left_type, false);
    }
    let (left, right) = if is_minus && is_moment(&left_type) && is_moment(&right_type) {
        let both_days = !matches!(left_type, DataType::Timestamp(..)) && !matches!(right_type, DataType::Timestamp(..));
        match common_moment(&[&left_type, &right_type], true).filter(|_| !both_days) {
            Some(target) => (as_type(left, &left_type, &target), as_type(right, &right_type, &target)),
            None => (left, right),
        }
    } else {
        (left, right)
    };
    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right)))
}

/// A TIMESTAMP or TIME literal in microseconds if they hold it: with nanoseconds, a sum would end in 2262.
fn far_reaching(expr: Expr) -> Expr {
    let of_type = |data_type: &DataType| position(&expr, data_type);
    let micros = match &expr {
        Expr::Cast(Cast { field, .. }) if is_time_literal(&expr) => match field.data_type() {
            DataType::Timestamp(..) => of_type(&DataType::Timestamp(TimeUnit::Microsecond, None)),
            _ => of_type(&DataType::Time64(TimeUnit::Microsecond)),
        },
        _ => None,
    };
    match micros {
        Some(Position::At(value)) => Expr::Literal(value, None),
        _ => expr,
    }
}

/// Whether a type can be added to a moment. A timestamp and a time of day cannot be added.
fn is_shift(moment: &DataType, data_type: &DataType) -> bool {
    match data_type {
        DataType::Interval(_) | DataType::Duration(_) => true,
        DataType::Time32(_) | DataType::Time64(_) => !matches!(moment, DataType::Timestamp(..)),
        _ => false,
    }
}

fn shifted(moment: Expr, moment_type: &DataType, span: Expr, span_type: &DataType, subtract: bool) -> Expr {
    let literal = match &span {
        Expr::Literal(value, _) => Some(value),
        _ => None,
    };
    let needed = shift::unit_of(literal, span_type);
    let result = match (moment_type, needed) {
        (kept, None) => kept.clone(),
        (DataType::Timestamp(unit, zone), Some(needed)) => DataType::Timestamp((*unit).max(needed), zone.clone()),
        (_, Some(needed)) => DataType::Timestamp(needed.max(TimeUnit::Microsecond), None),
    };
    let func = shift::function(subtract, result);
    Expr::ScalarFunction(ScalarFunction { func, args: vec![moment, span] })
}

/// Gives expressions of which all must have one type their common type: literal intervals among durations, and
/// dates and timestamps of several types.
pub(super) fn align(exprs: &mut [&mut Expr], schema: &DFSchema) {
    let types: Vec<DataType> = exprs.iter().map(|expr| type_of(expr, schema)).collect();
    let known = |is_one: fn(&DataType) -> bool| types.iter().find(|data_type| is_one(data_type)).cloned();
    if let Some(duration) = known(|data_type| matches!(data_type, DataType::Duration(_))) {
        for expr in exprs.iter_mut() {
            if let Some(Position::At(value)) = position(expr, &duration) {
                **expr = Expr::Literal(value, None);
            }
        }
    }
    let moments: Vec<&DataType> = types.iter().filter(|data_type| is_moment(data_type)).collect();
    if !types.iter().all(|data_type| is_moment(data_type) || data_type.is_null()) {
        return;
    }
    let Some(target) = common_moment(&moments, false) else { return };
    for (expr, data_type) in exprs.iter_mut().zip(&types) {
        let value = std::mem::replace(*expr, Expr::Literal(ScalarValue::Null, None));
        **expr = match position(&value, &target) {
            Some(Position::At(literal)) if matches!(target, DataType::Timestamp(..)) => Expr::Literal(literal, None),
            _ => as_type(value, data_type, &target),
        };
    }
}

/// Whether two operands of a comparison need [`comparable`].
pub(super) fn are_comparable(left: &DataType, right: &DataType) -> bool {
    let is_span = |data_type: &DataType| matches!(data_type, DataType::Interval(_) | DataType::Duration(_));
    let is_stamp = |data_type: &DataType| matches!(data_type, DataType::Timestamp(..));
    let spans = is_span(left) && is_span(right) && (left != right || matches!(left, DataType::Interval(_)));
    let spelled = (is_span(left) && right.is_string()) || (left.is_string() && is_span(right));
    let moments = is_moment(left) && is_moment(right) && (is_stamp(left) || is_stamp(right)) && !are_alike(left, right);
    let read = (is_stamp(left) && right.is_string()) || (left.is_string() && is_stamp(right));
    spans || spelled || moments || read
}

/// Timestamps of one unit, both with a zone or both without.
fn are_alike(left: &DataType, right: &DataType) -> bool {
    matches!((left, right), (DataType::Timestamp(a, left_zone), DataType::Timestamp(b, right_zone))
        if a == b && left_zone.is_some() == right_zone.is_some())
}

/// Operands of a comparison in a type in which they compare exactly.
pub(super) fn comparable(left: Expr, right: Expr, schema: &DFSchema) -> (Expr, Expr) {
    let types = [type_of(&left, schema), type_of(&right, schema)];
    let is_span = |data_type: &DataType| matches!(data_type, DataType::Interval(_) | DataType::Duration(_));
    if types.iter().any(is_span) {
        let [left_type, right_type] = types;
        return (length(left, &left_type), length(right, &right_type));
    }
    let zone = types.iter().find_map(zone_of);
    let fine = DataType::Timestamp(TimeUnit::Nanosecond, zone.clone());
    let units: Vec<TimeUnit> = types.iter().filter_map(unit_of).collect();
    let own = |expr: Expr, data_type: &DataType| match data_type {
        DataType::Timestamp(unit, None) if zone.is_some() => cast(expr, DataType::Timestamp(*unit, zone.clone())),
        DataType::Timestamp(..) => expr,
        // Each is as fine as the other side if that holds every year.
        _ if units == [TimeUnit::Nanosecond] && data_type.is_string() => cast(expr, fine.clone()),
        _ if units == [TimeUnit::Nanosecond] => cast(expr, DataType::Timestamp(TimeUnit::Second, zone.clone())),
        text if text.is_string() => cast(expr, DataType::Timestamp(TimeUnit::Microsecond, zone.clone())),
        _ => cast(expr, DataType::Timestamp(units.first().copied().unwrap_or(TimeUnit::Second), zone.clone())),
    };
    let [left_type, right_type] = &types;
    let (left, right) = (own(left, left_type), own(right, right_type));
    match (unit_of(&type_of(&left, schema)), unit_of(&type_of(&right, schema))) {
        (Some(a), Some(b)) if a != b => (nanoseconds(left, a), nanoseconds(right, b)),
        _ => (left, right),
    }
}

/// The length of an interval, of a duration or of a text of an interval.
fn length(expr: Expr, data_type: &DataType) -> Expr {
    let interval = DataType::Interval(IntervalUnit::MonthDayNano);
    let expr = if data_type.is_string() || data_type.is_null() { cast(expr, interval) } else { expr };
    Expr::ScalarFunction(ScalarFunction { func: span::function(), args: vec![expr] })
}

/// A timestamp as a decimal count of nanoseconds, to compare different units: int64 nanoseconds end in 2262.
fn nanoseconds(expr: Expr, unit: TimeUnit) -> Expr {
    let factor = match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    };
    let count = cast(cast(expr, DataType::Int64), DataType::Decimal128(19, 0));
    let factor = Expr::Literal(ScalarValue::Decimal128(Some(factor), 10, 0), None);
    Expr::BinaryExpr(BinaryExpr::new(Box::new(count), Operator::Multiply, Box::new(factor)))
}

fn is_moment(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Date32 | DataType::Date64 | DataType::Timestamp(..))
}

fn zone_of(data_type: &DataType) -> Option<Arc<str>> {
    match data_type {
        DataType::Timestamp(_, zone) => zone.clone(),
        _ => None,
    }
}

fn unit_of(data_type: &DataType) -> Option<TimeUnit> {
    match data_type {
        DataType::Timestamp(unit, _) => Some(*unit),
        _ => None,
    }
}

/// The common type of dates and timestamps, if they differ and one is a timestamp: of the finest unit, and local times
/// are those of the first zone. Nanoseconds are only common where every value has the range of nanoseconds anyway: with
/// dates, and in differences, microseconds are.
fn common_moment(types: &[&DataType], is_difference: bool) -> Option<DataType> {
    let unit = types.iter().filter_map(|data_type| unit_of(data_type)).max()?;
    let first = types.first()?;
    if types.iter().all(|data_type| data_type == first) {
        return None;
    }
    let zone = types.iter().find_map(|data_type| zone_of(data_type));
    let holds_less = |data_type: &&DataType| unit_of(data_type).is_some_and(|unit| unit == TimeUnit::Nanosecond);
    let is_far = if is_difference {
        !types.iter().all(holds_less)
    } else {
        types.iter().any(|data_type| !matches!(data_type, DataType::Timestamp(..)))
    };
    let unit = if is_far { unit.min(TimeUnit::Microsecond) } else { unit };
    Some(DataType::Timestamp(unit, zone))
}

fn as_type(expr: Expr, from: &DataType, target: &DataType) -> Expr {
    if from == target || from.is_null() { expr } else { cast(expr, target.clone()) }
}
