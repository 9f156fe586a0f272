//! Names what an expression uses and this server does not offer: functions, with similar ones, and forms of SQL.

use datafusion_sql::sqlparser::ast::{BinaryOperator, Expr as SqlExpr, ExprWithAlias, Function, Ident};
use forebay_runtime::error::near_names;

use super::{aliases, functions, nodes::first};

/// Functions of other dialects, and what to write instead.
const ELSEWHERE: [(&str, &str); 30] = [
    ("add_months", "add an INTERVAL: x + INTERVAL '1 month'"),
    ("array_contains", "lists have only array_length()"),
    ("array_size", "use array_length()"),
    ("cardinality", "use array_length()"),
    ("date_add", "add an INTERVAL: x + INTERVAL '1 day'"),
    ("date_diff", "use datediff(end, start), in days"),
    ("date_sub", "subtract an INTERVAL: x - INTERVAL '1 day'"),
    ("element_at", "lists have only array_length()"),
    ("equal_null", "use a <=> b"),
    ("from_utc_timestamp", "use x AT TIME ZONE 'zone'"),
    ("hash", "use hash64(x, seed)"),
    ("iff", "use if(condition, a, b)"),
    ("iif", "use if(condition, a, b)"),
    ("isnotnull", "use x IS NOT NULL"),
    ("isnull", "use x IS NULL"),
    ("len", "use length() for text and array_length() for lists"),
    ("locate", "use strpos(text, part), whose arguments are reversed"),
    ("lpad", "the size of its result is an argument, which could use all memory"),
    ("mod", "use a % b"),
    ("monotonically_increasing_id", "use __row_id"),
    ("percent_rank", "window functions are not supported"),
    ("regexp", "use regexp_like(x, 'pattern') or x ~ 'pattern'"),
    ("repeat", "the size of its result is an argument, which could use all memory"),
    ("rlike", "use regexp_like(x, 'pattern') or x ~ 'pattern'"),
    ("row_number", "use __row_id"),
    ("rpad", "the size of its result is an argument, which could use all memory"),
    ("split", "use split_part(text, delimiter, number)"),
    ("unix_timestamp", "use to_unixtime(), which rounds towards zero"),
    ("xxhash64", "use hash64(x, seed)"),
    ("zeroifnull", "use coalesce(x, 0)"),
];

/// Functions of many rows.
const AGGREGATES: [&str; 24] = [
    "any_value",
    "approx_distinct",
    "approx_percentile_cont",
    "array_agg",
    "avg",
    "bool_and",
    "bool_or",
    "collect_list",
    "collect_set",
    "corr",
    "count",
    "first_value",
    "last_value",
    "max",
    "mean",
    "median",
    "min",
    "mode",
    "percentile",
    "stddev",
    "string_agg",
    "sum",
    "var_pop",
    "variance",
];

const ONE_ROW: &str = "an expression is computed from one row";

/// Why an expression cannot be planned.
pub(super) enum Refused {
    /// An unknown function, and what to use instead.
    Function { name: String, near: String },
    /// A form of SQL.
    Form(String),
}

/// The first function or form that no plan exists for.
pub(super) fn refused(sql: &ExprWithAlias) -> Option<Refused> {
    first(&sql.expr, |node| match node {
        SqlExpr::Function(function) => refused_function(function),
        node => never_offered(node).map(Refused::Form),
    })
}

/// The first form that may have been the reason why an expression cannot be planned.
pub(super) fn suspected(sql: &ExprWithAlias) -> Option<String> {
    first(&sql.expr, sometimes_offered)
}

/// Whether a column that does not exist is written in double quotes, where a string was probably meant.
pub(super) fn is_quoted(sql: &ExprWithAlias, column: &str) -> bool {
    let is_it = |name: &Ident| name.quote_style == Some('"') && name.value == column;
    first(&sql.expr, |node| matches!(node, SqlExpr::Identifier(name) if is_it(name)).then_some(())).is_some()
}

fn refused_function(function: &Function) -> Option<Refused> {
    let name = aliases::name_of(function)?;
    if function.over.is_some() {
        return Some(Refused::Form(format!("window functions ({name}() OVER …) are not supported: {ONE_ROW}")));
    }
    if function.filter.is_some() || !function.within_group.is_empty() || AGGREGATES.contains(&name.as_str()) {
        return Some(Refused::Form(format!(
            "aggregate functions ({name}()) are not supported: {ONE_ROW}; ops such as standardize and fill_null learn \
             from all rows"
        )));
    }
    if functions::is_known(&name) || aliases::names().any(|alias| alias == name) {
        return None;
    }
    let near = match ELSEWHERE.iter().find(|(other, _)| *other == name) {
        Some((_, instead)) => (*instead).to_owned(),
        None => near_names(&name, functions::offered_names().into_iter().chain(aliases::names())),
    };
    Some(Refused::Function { name, near })
}

/// The name of a form that is never offered, with a way out.
fn never_offered(node: &SqlExpr) -> Option<String> {
    let (form, instead) = match node {
        SqlExpr::Subquery(_) | SqlExpr::InSubquery { .. } | SqlExpr::Exists { .. } => {
            ("subqueries", "an expression reads the columns of one dataset")
        }
        SqlExpr::Like { any: true, .. } => ("LIKE ANY", "combine several LIKE with OR"),
        SqlExpr::ILike { any: true, .. } => ("ILIKE ANY", "combine several ILIKE with OR"),
        SqlExpr::RLike { .. } => ("RLIKE", "use regexp_like(x, 'pattern') or x ~ 'pattern'"),
        SqlExpr::AnyOp { .. } => ("ANY", "use IN (…)"),
        SqlExpr::AllOp { .. } => ("ALL", "use NOT IN (…)"),
        SqlExpr::InUnnest { .. } => ("IN UNNEST", "use IN (…)"),
        SqlExpr::Array(_) => ("array literals", "use IN (…) to compare with several values"),
        SqlExpr::Map(_) | SqlExpr::Dictionary(_) => ("map literals", "use CASE"),
        SqlExpr::Lambda(_) => ("lambda functions", ONE_ROW),
        SqlExpr::JsonAccess { .. } => ("JSON paths", "extract the field when the data is written"),
        SqlExpr::Collate { .. } => ("COLLATE", "text is compared by its UTF-8 bytes"),
        SqlExpr::Convert { .. } => ("CONVERT", "use CAST(x AS type)"),
        SqlExpr::MatchAgainst { .. } => ("MATCH AGAINST", "use regexp_like(x, 'pattern')"),
        SqlExpr::MemberOf(_) => ("MEMBER OF", "use IN (…)"),
        SqlExpr::GroupingSets(_) | SqlExpr::Cube(_) | SqlExpr::Rollup(_) => ("grouping sets", ONE_ROW),
        SqlExpr::Wildcard(_) | SqlExpr::QualifiedWildcard(..) => ("*", "name the columns"),
        _ => return None,
    };
    let verb = if form.ends_with('s') { "are" } else { "is" };
    Some(format!("{form} {verb} not supported: {instead}"))
}

/// The name of a form of which some uses are not offered.
fn sometimes_offered(node: &SqlExpr) -> Option<String> {
    let form = match node {
        SqlExpr::BinaryOp { op, .. } if !is_common(op) => return Some(format!("the operator {op} is not supported")),
        SqlExpr::UnaryOp { op, .. } => return Some(format!("the operator {op} is not supported here")),
        SqlExpr::CompoundFieldAccess { .. } => "a subscript of this value",
        SqlExpr::CompoundIdentifier(_) => "a name with a dot",
        SqlExpr::Cast { format: Some(_), .. } => "CAST with FORMAT",
        SqlExpr::Cast { array: true, .. } => "CAST to an array",
        SqlExpr::Cast { data_type, .. } => return Some(format!("CAST to {data_type} is not supported")),
        SqlExpr::Ceil { .. } => "CEIL with a unit or a scale",
        SqlExpr::Floor { .. } => "FLOOR with a unit or a scale",
        SqlExpr::Substring { .. } => "this form of SUBSTRING",
        SqlExpr::Trim { .. } => "this form of TRIM",
        SqlExpr::Overlay { .. } => "this form of OVERLAY",
        SqlExpr::Tuple(_) => "a tuple",
        SqlExpr::Struct { .. } | SqlExpr::Named { .. } => "a struct literal",
        SqlExpr::IsNormalized { .. } => "IS NORMALIZED",
        SqlExpr::Prefixed { .. } => "a prefixed string",
        SqlExpr::Interval(_) => "this form of INTERVAL",
        _ => return None,
    };
    Some(format!("{form} is not supported"))
}

fn is_common(op: &BinaryOperator) -> bool {
    use BinaryOperator::{
        And, BitwiseAnd, BitwiseOr, BitwiseXor, Divide, Eq, Gt, GtEq, Lt, LtEq, Minus, Modulo, Multiply, NotEq, Or,
        PGBitwiseShiftLeft, PGBitwiseShiftRight, PGRegexIMatch, PGRegexMatch, PGRegexNotIMatch, PGRegexNotMatch, Plus,
        StringConcat,
    };
    matches!(
        op,
        And | BitwiseAnd
            | BitwiseOr
            | BitwiseXor
            | Divide
            | Eq
            | Gt
            | GtEq
            | Lt
            | LtEq
            | Minus
            | Modulo
            | Multiply
            | NotEq
            | Or
            | PGBitwiseShiftLeft
            | PGBitwiseShiftRight
            | PGRegexIMatch
            | PGRegexMatch
            | PGRegexNotIMatch
            | PGRegexNotMatch
            | Plus
            | StringConcat
    )
}
