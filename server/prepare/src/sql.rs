//! SQL → a logical plan that only reads the given tables.

use datafusion::{
    common::tree_node::{TreeNode, TreeNodeRecursion},
    error::DataFusionError,
    execution::{SessionState, context::SQLOptions},
    logical_expr::{Expr, LogicalPlan, Volatility},
};
use forebay_expr::{QueryError, parse_query, refused_in_query};

use crate::{error::PrepareError, sql_position};

/// A query that may run.
#[derive(Debug)]
pub(crate) struct Query {
    /// Its plan.
    pub plan: LogicalPlan,
    /// Whether its result depends on more than its inputs, such as the time or a random number.
    pub is_volatile: bool,
}

/// Plans the only statement of a text. Names are matched in the case as written; if that fails, in lower case.
pub(crate) async fn plan(state: &SessionState, sql: &str, tables: &[&str]) -> Result<Query, PrepareError> {
    let statement = parse_query(sql)?;
    let as_written = with_lower_case(state, false).statement_to_plan(statement.clone()).await;
    let planned = match as_written {
        Ok(plan) => Ok(plan),
        Err(error) => with_lower_case(state, true).statement_to_plan(statement).await.map_err(|_| error),
    };
    let failed = |error: &DataFusionError| sql_position::describe(error, sql, tables);
    let plan = planned.map_err(|error| failed(&error))?;
    let options = SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
    if options.verify_plan(&plan).is_err() {
        let reason = "a query must not write: expected SELECT, WITH or VALUES without INTO";
        return Err(QueryError::of_query(reason).into());
    }
    check_names(&plan)?;
    if let Some(reason) = refused(&plan).map_err(|error| failed(&error))? {
        return Err(QueryError::of_query(reason).into());
    }
    let is_volatile = is_volatile(&plan).map_err(|error| failed(&error))?;
    Ok(Query { plan, is_volatile })
}

fn with_lower_case(state: &SessionState, lower_case: bool) -> SessionState {
    let mut state = state.clone();
    state.config_mut().options_mut().sql_parser.enable_ident_normalization = lower_case;
    state
}

/// Checks that the columns of the result have different names.
fn check_names(plan: &LogicalPlan) -> Result<(), PrepareError> {
    let mut seen = std::collections::HashSet::new();
    match plan.schema().fields().iter().find(|field| !seen.insert(field.name())) {
        None => Ok(()),
        Some(field) => {
            let name = field.name();
            let reason =
                format!("the result has several columns \"{name}\": rename them with AS, or join with USING ({name})");
            Err(QueryError::of_query(reason).into())
        }
    }
}

/// What is wrong with an expression.
fn refused(plan: &LogicalPlan) -> Result<Option<&'static str>, DataFusionError> {
    let mut found = None;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expression| {
            found = found.or(refused_in_query(expression)?);
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(found)
}

fn is_volatile(plan: &LogicalPlan) -> Result<bool, DataFusionError> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expression| {
            expression.apply(|part| {
                found |= matches!(part, Expr::ScalarFunction(call)
                    if call.func.signature().volatility != Volatility::Immutable);
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(found)
}
