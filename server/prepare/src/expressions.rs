//! The expressions of a query: computed as those of plans are, and not as DataFusion's simplifier rewrites them.
//!
//! Some of its rewrites change results, depending on whether a column may be null: see `forebay_expr`. So the
//! sessions of this program type expressions before DataFusion does, and have no simplifier. What is left of it is the time of
//! the query.

use std::sync::Arc;

use datafusion::{
    common::{DFSchema, tree_node::Transformed},
    config::ConfigOptions,
    error::DataFusionError,
    execution::{context::SessionContext, session_state::SessionStateBuilder},
    logical_expr::{
        LogicalPlan, LogicalPlanBuilder, RecursiveQuery, Union, Values,
        expr_rewriter::{NamePreserver, coerce_plan_expr_for_schema},
        simplify::SimplifyContext,
        utils::merge_schema,
    },
    optimizer::{
        AnalyzerRule, ApplyOrder, OptimizerConfig, OptimizerRule,
        analyzer::{resolve_grouping_function::ResolveGroupingFunction, type_coercion::TypeCoercion},
    },
};
use forebay_expr::{at_time_of_query, own_functions, typed_in_query};

/// The name of DataFusion's simplifier.
const SIMPLIFIER: &str = "simplify_expressions";

/// Types the expressions of a plan.
#[derive(Debug)]
struct TypeExpressions;

/// Writes the time of the query into a plan.
#[derive(Debug)]
struct WriteTime;

/// A session with these rules of the optimizer, whose expressions are computed as those of plans.
pub(crate) fn session(
    builder: SessionStateBuilder,
    rules: Vec<Arc<dyn OptimizerRule + Send + Sync>>,
) -> SessionContext {
    let rules = rules.into_iter().map(|rule| match rule.name() {
        SIMPLIFIER => Arc::new(WriteTime),
        _ => rule,
    });
    let analyzers: Vec<Arc<dyn AnalyzerRule + Send + Sync>> =
        vec![Arc::new(ResolveGroupingFunction::new()), Arc::new(TypeExpressions), Arc::new(TypeCoercion::new())];
    let state = builder.with_analyzer_rules(analyzers).with_optimizer_rules(rules.collect()).build();
    let context = SessionContext::new_with_state(state);
    own_functions().for_each(|function| context.register_udf(function.as_ref().clone()));
    context
}

// === impl TypeExpressions ===

impl AnalyzerRule for TypeExpressions {
    fn name(&self) -> &'static str {
        "type_expressions"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan, DataFusionError> {
        Ok(plan.transform_up_with_subqueries(typed)?.data)
    }
}

/// A node of a plan with typed expressions.
fn typed(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>, DataFusionError> {
    let schema = Arc::new(columns(&plan)?);
    let names = NamePreserver::new(&plan);
    let typed = plan.map_expressions(|expr| {
        let name = names.save(&expr);
        Ok(Transformed::yes(name.restore(typed_in_query(expr, &schema)?)))
    })?;
    typed.map_data(|plan| match plan {
        // The schema of literals is made of their types.
        LogicalPlan::Values(Values { values, .. }) => LogicalPlanBuilder::values(values)?.build(),
        // The types of its inputs may have changed.
        LogicalPlan::Union(Union { inputs, .. }) => Union::try_new_with_loose_types(inputs).map(LogicalPlan::Union),
        LogicalPlan::RecursiveQuery(query) => recursive(query),
        plan => plan.recompute_schema(),
    })
}

/// A recursive query whose terms have the types that were planned: its scans of itself have them.
fn recursive(query: RecursiveQuery) -> Result<LogicalPlan, DataFusionError> {
    let RecursiveQuery { name, static_term, recursive_term, is_distinct, schema } = query;
    let planned =
        |term: Arc<LogicalPlan>| coerce_plan_expr_for_schema(Arc::unwrap_or_clone(term), &schema).map(Arc::new);
    let query = RecursiveQuery::try_new(name, planned(static_term)?, planned(recursive_term)?, is_distinct)?;
    Ok(LogicalPlan::RecursiveQuery(query))
}

/// The columns that the expressions of a node may read.
fn columns(plan: &LogicalPlan) -> Result<DFSchema, DataFusionError> {
    match plan {
        LogicalPlan::TableScan(scan) => {
            DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema())
        }
        plan => Ok(merge_schema(&plan.inputs())),
    }
}

// === impl WriteTime ===

impl OptimizerRule for WriteTime {
    fn name(&self) -> &'static str {
        "write_time"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>, DataFusionError> {
        let context = SimplifyContext::builder()
            .with_schema(Arc::new(columns(&plan)?))
            .with_config_options(config.options())
            .with_query_execution_start_time(config.query_execution_start_time())
            .build();
        let names = NamePreserver::new(&plan);
        plan.map_expressions(|expr| {
            let name = names.save(&expr);
            Ok(at_time_of_query(expr, &context)?.update_data(|expr| name.restore(expr)))
        })
    }
}
