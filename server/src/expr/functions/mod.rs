//! Functions available to expressions: DataFusion's scalar functions, but no tables, aggregates or variables.

mod date_bin;
mod date_trunc;
pub(super) mod hash64;
mod instant;

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
};

use arrow::datatypes::DataType;
use datafusion_common::{DataFusionError, TableReference, config::ConfigOptions, plan_err};
use datafusion_expr::{
    AggregateUDF, HigherOrderUDF, ScalarUDF, TableSource, WindowUDF,
    planner::{ContextProvider, ExprPlanner},
};
use datafusion_functions::{
    core::planner::CoreFunctionPlanner, datetime::planner::DatetimeFunctionPlanner,
    unicode::planner::UnicodeFunctionPlanner,
};

/// The functions that the SQL planner resolves.
pub(super) struct Functions {
    options: ConfigOptions,
    planners: Vec<Arc<dyn ExprPlanner>>,
}

/// Excluded functions whose result size is an argument: one call could use all memory.
const UNBOUNDED: [&str; 3] = ["lpad", "repeat", "rpad"];

static SCALARS: LazyLock<HashMap<String, Arc<ScalarUDF>>> = LazyLock::new(|| {
    let mut by_name = HashMap::new();
    let functions = datafusion_functions::all_default_functions().into_iter();
    for function in functions.filter(|function| !UNBOUNDED.contains(&function.name())) {
        for alias in function.aliases() {
            by_name.insert(alias.clone(), Arc::clone(&function));
        }
        by_name.insert(function.name().to_owned(), function);
    }
    for function in [date_bin::function(), date_trunc::function(), hash64::function()] {
        for alias in function.aliases() {
            by_name.insert(alias.clone(), Arc::clone(&function));
        }
        by_name.insert(function.name().to_owned(), function);
    }
    by_name
});

impl Default for Functions {
    fn default() -> Self {
        Self {
            options: ConfigOptions::default(),
            planners: vec![
                Arc::new(CoreFunctionPlanner::default()),
                Arc::new(DatetimeFunctionPlanner),
                Arc::new(UnicodeFunctionPlanner),
            ],
        }
    }
}

impl ContextProvider for Functions {
    fn get_table_source(&self, name: TableReference) -> Result<Arc<dyn TableSource>, DataFusionError> {
        plan_err!("an expression reads columns of its dataset, not the table {name}")
    }

    fn get_expr_planners(&self) -> &[Arc<dyn ExprPlanner>] {
        &self.planners
    }

    fn get_function_meta(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        SCALARS.get(name).or_else(|| SCALARS.get(&name.to_lowercase())).cloned()
    }

    fn get_higher_order_meta(&self, _name: &str) -> Option<Arc<HigherOrderUDF>> {
        None
    }

    fn get_aggregate_meta(&self, _name: &str) -> Option<Arc<AggregateUDF>> {
        None
    }

    fn get_window_meta(&self, _name: &str) -> Option<Arc<WindowUDF>> {
        None
    }

    fn get_variable_type(&self, _names: &[String]) -> Option<DataType> {
        None
    }

    fn options(&self) -> &ConfigOptions {
        &self.options
    }

    fn udf_names(&self) -> Vec<String> {
        SCALARS.keys().cloned().collect()
    }

    fn higher_order_function_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn udaf_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn udwf_names(&self) -> Vec<String> {
        Vec::new()
    }
}
