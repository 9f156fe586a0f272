//! The conditions of a filter that some columns decide alone, without the values and types of any others.

use arrow::datatypes::{DataType, Schema};
use datafusion_common::DFSchema;
use datafusion_sql::sqlparser::ast::{BinaryOperator, Expr as SqlExpr, ExprWithAlias};

use super::{
    error::shorten,
    expression::Expression,
    parse::{parse, to_logical},
};

impl Expression {
    /// The conditions of a filter that read columns of this schema and no others. All of them must be true for a row to
    /// pass, among further ones.
    ///
    /// A name with capital letters must be in quotes: without them, it might be that of a column that is not in the
    /// schema. A filter or a condition that does not compile is left out.
    pub fn conditions_on(filter: &str, schema: &Schema) -> Vec<Self> {
        let short = shorten(filter);
        let Ok(parsed) = parse(filter, &short) else { return Vec::new() };
        let mut conditions = Vec::new();
        split(parsed.expr, &mut conditions);
        conditions.into_iter().filter_map(|condition| condition_on(condition, &short, schema)).collect()
    }
}

/// The operands of the outermost ANDs. As deep as the parser allows.
fn split(expr: SqlExpr, conditions: &mut Vec<SqlExpr>) {
    match expr {
        SqlExpr::Nested(inner) => split(*inner, conditions),
        SqlExpr::BinaryOp { left, op: BinaryOperator::And, right } => {
            split(*left, conditions);
            split(*right, conditions);
        }
        other => conditions.push(other),
    }
}

fn condition_on(condition: SqlExpr, short: &str, schema: &Schema) -> Option<Expression> {
    let sql = ExprWithAlias { expr: condition, alias: None };
    let df_schema = DFSchema::try_from(schema.clone()).ok()?;
    // Fails if a column is not in the schema.
    let logical = to_logical(sql.clone(), &df_schema, false).ok()?;
    // Names are converted to lower case if any name of the filter is not found.
    let is_lower_case = to_logical(sql.clone(), &df_schema, true).is_ok_and(|lower| lower == logical);
    if !is_lower_case || logical.column_refs().is_empty() {
        return None;
    }
    let compiled = Expression::of_sql(&sql, short.to_owned(), schema).ok()?;
    let is_boolean = matches!(compiled.field("").data_type(), DataType::Boolean | DataType::Null);
    is_boolean.then_some(compiled)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::{
        array::{Array, Date32Array, Int64Array, RecordBatch, StringArray},
        datatypes::Field,
    };

    use super::*;

    fn schema() -> Schema {
        Schema::new(vec![
            Field::new("day", DataType::Date32, false),
            Field::new("city", DataType::Utf8, true),
            Field::new("Hour", DataType::Int64, true),
        ])
    }

    fn conditions(filter: &str) -> Vec<Vec<String>> {
        let found = Expression::conditions_on(filter, &schema());
        found.iter().map(|condition| condition.columns().to_vec()).collect()
    }

    #[test]
    fn finds_the_conditions_that_the_columns_decide() {
        let names = |names: &[&[&str]]| -> Vec<Vec<String>> {
            names.iter().map(|columns| columns.iter().map(|column| (*column).to_owned()).collect()).collect()
        };
        for (filter, want) in [
            ("city = 'a'", names(&[&["city"]])),
            ("city = 'a' AND x > 1 AND day > DATE '2024-01-01'", names(&[&["city"], &["day"]])),
            (
                "x > 1 AND (city = 'a' AND (day = DATE '2024-01-01' OR city = 'b'))",
                names(&[&["city"], &["city", "day"]]),
            ),
            ("city = 'a' OR x > 1", names(&[])),
            ("NOT (city = 'a' OR x > 1)", names(&[])),
            ("city BETWEEN 'a' AND 'b' AND x BETWEEN 1 AND 2", names(&[&["city"]])),
            ("CASE WHEN city = 'a' THEN day > DATE '2024-01-01' ELSE x END", names(&[])),
            // Names that might be those of other columns.
            ("\"Hour\" = 1 AND \"city\" = 'a'", names(&[&["Hour"], &["city"]])),
            ("Hour = 1", names(&[])),
            ("CITY = 'a'", names(&[])),
            ("hour = 1", names(&[])),
            ("day.city = 1", names(&[])),
            // Conditions that do not compile, that read nothing, and what is not a condition.
            ("nothing(city) AND city > 'a'", names(&[&["city"]])),
            ("city > now() AND city > 'a'", names(&[&["city"]])),
            ("random() < 0.5 AND 1 = 0 AND FALSE", names(&[])),
            ("\"Hour\" + 1", names(&[])),
            ("\"Hour\" AND city = 'a'", names(&[&["city"]])),
            ("city = 'a' AND", names(&[])),
            ("", names(&[])),
        ] {
            assert_eq!(conditions(filter), want, "{filter}");
        }
    }

    #[test]
    fn a_condition_has_the_values_that_it_has_in_the_filter() {
        let columns: Vec<Arc<dyn Array>> = vec![
            Arc::new(Date32Array::from(vec![0, 1, 2, 3])),
            Arc::new(StringArray::from(vec![Some("a"), None, Some("B"), Some("a")])),
            Arc::new(Int64Array::from(vec![Some(1), Some(2), None, Some(4)])),
        ];
        let batch = RecordBatch::try_new(Arc::new(schema()), columns).unwrap();
        for filter in ["city <> 'a'", "\"Hour\" < 2.5 OR city IS NULL", "day + INTERVAL '1 day' >= DATE '1970-01-03'"] {
            let conditions = Expression::conditions_on(filter, &schema());
            let whole = Expression::compile_filter(filter, &schema()).unwrap().passes(&batch).unwrap();
            assert_eq!(conditions.len(), 1, "{filter}");
            assert_eq!(conditions[0].passes(&batch).unwrap(), whole, "{filter}");
        }
    }
}
