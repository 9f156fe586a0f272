//! Functions and operators that are written differently elsewhere, rewritten to those that have the same meaning:
//! `year(x)` and EXTRACT to `date_part('year', x)`, `if(c, a, b)` and `nvl2(x, a, b)` to CASE, `nvl(a, b)` to `coalesce`, and
//! `a <=> b` to IS NOT DISTINCT FROM.

use datafusion_sql::sqlparser::ast::{
    BinaryOperator, CaseWhen, CastKind, DataType as SqlType, Expr as SqlExpr, Function, FunctionArg, FunctionArgExpr,
    FunctionArguments, Ident, ObjectName, Value, VisitMut, helpers::attached_token::AttachedToken,
};

use super::nodes::replace;

/// Functions of a date or time, and the parts of `date_part` that they return.
const PARTS: [(&str, &str); 11] = [
    ("year", "year"),
    ("quarter", "quarter"),
    ("month", "month"),
    ("weekofyear", "week"),
    ("day", "day"),
    ("dayofmonth", "day"),
    ("dayofyear", "doy"),
    ("dayofweek", "dow"),
    ("hour", "hour"),
    ("minute", "minute"),
    ("second", "second"),
];

/// The names of the functions that exist only as rewritten ones.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    PARTS.iter().map(|(name, _)| *name).chain(["datediff", "if"])
}

/// Rewrites every alias. A call with a wrong number of arguments is an error.
pub(super) fn expand(sql: &mut impl VisitMut) -> Result<(), String> {
    replace(sql, rewritten)
}

/// The lower-case name of a function, unless it is qualified.
pub(super) fn name_of(function: &Function) -> Option<String> {
    let [part] = function.name.0.as_slice() else { return None };
    part.as_ident().map(|name| name.value.to_lowercase())
}

fn rewritten(node: &SqlExpr) -> Result<Option<SqlExpr>, String> {
    if let SqlExpr::BinaryOp { left, op: BinaryOperator::Spaceship, right } = node {
        let same = SqlExpr::IsNotDistinctFrom(left.clone(), right.clone());
        return Ok(Some(SqlExpr::Nested(Box::new(same))));
    }
    if let SqlExpr::Extract { field, expr, .. } = node {
        // The planner would take DataFusion's function.
        return Ok(Some(call("date_part", [text(&field.to_string()), expr.as_ref().clone()])));
    }
    let SqlExpr::Function(function) = node else { return Ok(None) };
    let Some(name) = name_of(function) else { return Ok(None) };
    if let Some((_, part)) = PARTS.iter().find(|(known, _)| *known == name) {
        let [value] = arguments(function, &name, "one argument, a date or a timestamp")?;
        return Ok(Some(part_of(part, value)));
    }
    Ok(match name.as_str() {
        "datediff" => {
            let [end, start] = arguments(function, &name, "two arguments, the end and the start")?;
            Some(nested(binary(days(end), BinaryOperator::Minus, days(start))))
        }
        // An instant, like that of `to_timestamp`; with a zone as it is.
        "from_unixtime" if has_one_argument(function) => {
            let [seconds] = arguments(function, &name, "seconds and optionally a zone")?;
            Some(call("from_unixtime", [seconds, text("UTC")]))
        }
        "if" => {
            let [condition, result, otherwise] = arguments(function, &name, "a condition and two values")?;
            Some(case(condition, result, otherwise))
        }
        // The planner's own makes texts of dates and timestamps.
        "nvl" | "ifnull" => Some(call("coalesce", arguments::<2>(function, &name, "two values")?)),
        "nvl2" => {
            let [value, result, otherwise] = arguments(function, &name, "three values")?;
            Some(case(SqlExpr::IsNotNull(Box::new(value)), result, otherwise))
        }
        _ => None,
    })
}

fn has_one_argument(function: &Function) -> bool {
    matches!(&function.args, FunctionArguments::List(list) if list.args.len() == 1)
}

/// The arguments of a plain call.
fn arguments<const N: usize>(function: &Function, name: &str, expected: &str) -> Result<[SqlExpr; N], String> {
    let wrong = || format!("{name}() takes {expected}");
    let FunctionArguments::List(list) = &function.args else { return Err(wrong()) };
    let values = list.args.iter().map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value.clone()),
        _ => None,
    });
    let values: Option<Vec<SqlExpr>> = values.collect();
    values.and_then(|values| values.try_into().ok()).ok_or_else(wrong)
}

/// `date_part`; Sunday is day 1 of a week, as in Spark.
fn part_of(part: &str, value: SqlExpr) -> SqlExpr {
    let extracted = call("date_part", [text(part), value]);
    if part != "dow" {
        return extracted;
    }
    let one = SqlExpr::Value(Value::Number("1".to_owned(), false).into());
    nested(binary(extracted, BinaryOperator::Plus, one))
}

/// Days since 1970 of a date, a timestamp or a text.
fn days(value: SqlExpr) -> SqlExpr {
    cast(cast(value, SqlType::Date), SqlType::BigInt(None))
}

fn case(condition: SqlExpr, result: SqlExpr, otherwise: SqlExpr) -> SqlExpr {
    SqlExpr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: None,
        conditions: vec![CaseWhen { condition, result }],
        else_result: Some(Box::new(otherwise)),
    }
}

fn cast(value: SqlExpr, data_type: SqlType) -> SqlExpr {
    SqlExpr::Cast { kind: CastKind::Cast, expr: Box::new(value), data_type, array: false, format: None }
}

fn binary(left: SqlExpr, op: BinaryOperator, right: SqlExpr) -> SqlExpr {
    SqlExpr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }
}

fn nested(value: SqlExpr) -> SqlExpr {
    SqlExpr::Nested(Box::new(value))
}

fn text(value: &str) -> SqlExpr {
    SqlExpr::Value(Value::SingleQuotedString(value.to_owned()).into())
}

fn call<const N: usize>(name: &str, values: [SqlExpr; N]) -> SqlExpr {
    use datafusion_sql::sqlparser::ast::FunctionArgumentList;
    let args = values.into_iter().map(|value| FunctionArg::Unnamed(FunctionArgExpr::Expr(value))).collect();
    SqlExpr::Function(Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList { duplicate_treatment: None, args, clauses: Vec::new() }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}
