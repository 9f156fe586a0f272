//! Functions available to expressions: DataFusion's scalar functions, but no tables, aggregates or variables.

mod array_length;
mod date_bin;
mod date_part;
mod date_trunc;
pub(super) mod extreme;
mod formatted;
mod hash64;
mod instant;
pub(super) mod local;
mod regexp_extract;
mod rounding;
pub(super) mod shift;
pub(super) mod span;
mod to_char;
mod to_timestamp;
mod to_unixtime;
pub(super) mod zoned;

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
};

use arrow::datatypes::DataType;
use datafusion_common::{DataFusionError, TableReference, config::ConfigOptions, plan_datafusion_err, plan_err};
use datafusion_expr::{
    AggregateUDF, HigherOrderUDF, ScalarUDF, TableSource, Volatility, WindowUDF,
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

/// Excluded functions that are of no use to one dataset's columns: DataFusion replaces them in scans and casts, or they
/// read metadata and unions.
const INTERNAL: [&str; 10] = [
    "arrow_field",
    "arrow_metadata",
    "cast_to_type",
    "file_row_index",
    "input_file_name",
    "try_cast_to_type",
    "union_extract",
    "union_tag",
    "version",
    "with_metadata",
];

static SCALARS: LazyLock<HashMap<String, Arc<ScalarUDF>>> = LazyLock::new(|| {
    let mut by_name = HashMap::new();
    let functions = datafusion_functions::all_default_functions().into_iter();
    let is_offered = |name: &str| !UNBOUNDED.contains(&name) && !INTERNAL.contains(&name);
    for function in functions.filter(|function| is_offered(function.name())) {
        for alias in function.aliases() {
            by_name.insert(alias.clone(), Arc::clone(&function));
        }
        by_name.insert(function.name().to_owned(), function);
    }
    for function in own_functions() {
        for alias in function.aliases() {
            by_name.insert(alias.clone(), Arc::clone(&function));
        }
        by_name.insert(function.name().to_owned(), function);
    }
    by_name
});

/// The functions in place of DataFusion's of the same names, and those that it does not have.
pub fn own_functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    let own = [
        array_length::function(),
        date_bin::function(),
        date_part::function(),
        date_trunc::function(),
        hash64::function(),
        regexp_extract::function(),
        to_char::function(),
        to_unixtime::function(),
        rounding::round(),
        rounding::trunc(),
    ];
    own.into_iter().chain(to_timestamp::functions())
}

/// Whether the SQL planner resolves a lower-case name.
pub(super) fn is_known(name: &str) -> bool {
    SCALARS.contains_key(name)
}

/// The function of a lower-case name.
pub(super) fn named(name: &str) -> Result<Arc<ScalarUDF>, DataFusionError> {
    SCALARS.get(name).cloned().ok_or_else(|| plan_datafusion_err!("there is no function {name}"))
}

/// The names, sorted, of the functions whose value depends on their arguments alone.
pub(super) fn offered_names() -> Vec<&'static str> {
    let stable = SCALARS.iter().filter(|(_, function)| function.signature().volatility == Volatility::Immutable);
    let mut names: Vec<&str> = stable.map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    names
}

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
