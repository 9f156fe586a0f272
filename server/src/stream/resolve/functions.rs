//! The Python functions of a plan: pinned to digests, which become part of the plan, and the columns that they compute.
//!
//! A function's column is added to the passing rows of a chunk after the derived ones. Unlike them it is awaited, since
//! other processes compute it, and holds no thread of the CPU pool meanwhile.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use arrow::{
    array::RecordBatch,
    datatypes::{Field, FieldRef, Schema},
};
use forebay_proto::v1;

use super::passing::Passing;
use crate::{
    budget::Budget,
    catalog::{RowGroup, Snapshot},
    error::near_names,
    metrics::{Stage, StageTimes},
    plan::{self, PlanError, UdfCall},
    stream::{environment::Environment, error::StreamError},
    udf::{Function, UdfError},
};

/// The functions of a plan, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlanFunctions(BTreeMap<String, Arc<Function>>);

/// A column that a function computes. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct FunctionColumn {
    pub field: FieldRef,
    /// The columns that are its arguments.
    pub arguments: Vec<String>,
    function: Arc<Function>,
}

/// Pins the functions of a plan to their digests, and returns them.
pub(crate) async fn with_functions(
    environment: &Environment,
    mut plan: v1::Plan,
) -> Result<(v1::Plan, PlanFunctions), StreamError> {
    let functions = pin_functions(environment, &mut plan).await?;
    Ok((plan, functions))
}

/// Pins every function that the plan leaves open to its current digest.
pub(crate) async fn pin_functions(
    environment: &Environment,
    plan: &mut v1::Plan,
) -> Result<PlanFunctions, StreamError> {
    let mut functions = PlanFunctions::default();
    for (call, path) in plan::udf_calls(plan)? {
        let function = if let Some(known) = functions.0.get(&call.name) {
            Arc::clone(known)
        } else {
            let described = environment.udfs.describe(&call.name).await;
            Arc::new(described.map_err(|error| of_description(error, &path))?)
        };
        if !call.digest.is_empty() && call.digest != function.digest() {
            let found = format!("its digest is {}", function.digest());
            let source = UdfError::Changed { name: call.name, expected: call.digest, found };
            return Err(StreamError::Udf { place: path, source });
        }
        functions.0.insert(call.name, function);
    }
    if !functions.is_empty() {
        plan::pin_udfs(plan, |name| functions.0.get(name).map(|function| function.digest()));
    }
    Ok(functions)
}

/// The error of a function that cannot be described. A client may correct its name.
fn of_description(error: UdfError, path: &str) -> StreamError {
    match error {
        UdfError::Unknown { .. } => PlanError::field(format!("{path}.name"), error.to_string()).into(),
        source => StreamError::Udf { place: path.to_owned(), source },
    }
}

/// The place of rows in errors of functions.
pub(crate) fn place_of(snapshot: &Snapshot, row_group: &RowGroup) -> String {
    format!("file \"{}\", row group {}", snapshot.file_of(row_group).display(), row_group.index_in_file)
}

// === impl PlanFunctions ===

impl PlanFunctions {
    /// Returns whether the plan has no functions.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Checks the calls of a plan against the columns that they may read.
    pub(super) fn columns(&self, plan: &v1::Plan, schema: &Schema) -> Result<Vec<FunctionColumn>, StreamError> {
        let mut columns: Vec<FunctionColumn> = Vec::new();
        for (call, path) in plan::udf_calls(plan)? {
            let name = call.column();
            // The same call with and without a digest is one call.
            if columns.iter().any(|known| *known.field.name() == name) {
                continue;
            }
            if schema.index_of(&name).is_ok() {
                let reason =
                    format!("its result is named \"{name}\", as a column of the dataset is: rename the column");
                return Err(PlanError::field(path, reason).into());
            }
            let function =
                self.0.get(&call.name).ok_or_else(|| PlanError::field(&path, "the function was not described"))?;
            check_arguments(function, &call, schema, &path)?;
            let field = Arc::new(Field::new(name, function.data_type().clone(), true));
            columns.push(FunctionColumn { field, arguments: call.arguments, function: Arc::clone(function) });
        }
        Ok(columns)
    }
}

fn check_arguments(function: &Function, call: &UdfCall, schema: &Schema, path: &str) -> Result<(), PlanError> {
    let declared = function.arguments().fields();
    if declared.len() != call.arguments.len() {
        let listed: Vec<String> =
            declared.iter().map(|field| format!("{}: {}", field.name(), field.data_type())).collect();
        let reason = format!(
            "function \"{}\" has {} argument(s) ({}), and the op has {}: the column of its part, then its columns",
            call.name,
            declared.len(),
            listed.join(", "),
            call.arguments.len()
        );
        return Err(PlanError::field(format!("{path}.columns"), reason));
    }
    for (column, argument) in call.arguments.iter().zip(declared) {
        let Ok(field) = schema.field_with_name(column) else {
            let near = near_names(column, schema.fields().iter().map(|field| field.name().as_str()));
            return Err(PlanError::UnknownColumn { path: path.to_owned(), column: column.clone(), near });
        };
        if !Function::accepts(field.data_type(), argument.data_type()) {
            let reason = format!(
                "argument \"{}\" of function \"{}\" is {}, and column \"{column}\" is {}: derive a column with CAST, or \
                 declare another type",
                argument.name(),
                call.name,
                argument.data_type(),
                field.data_type()
            );
            return Err(PlanError::field(path, reason));
        }
    }
    Ok(())
}

// === impl FunctionColumn ===

impl FunctionColumn {
    /// Adds the columns of functions to passing rows, whose place is for errors.
    pub(crate) async fn add_all(
        columns: &[Self],
        mut passing: Passing,
        budget: &Budget,
        times: &mut StageTimes,
        place: &str,
    ) -> Result<Passing, StreamError> {
        let start = Instant::now();
        for column in columns {
            let named = column.arguments.iter().map(|name| passing.rows.column_by_name(name).cloned());
            // The derivation reads every argument.
            let Some(arguments) = named.collect::<Option<Vec<_>>>() else { continue };
            let values = column.function.values(arguments, budget).await;
            let values = values.map_err(|source| StreamError::Udf { place: place.to_owned(), source })?;
            let (mut fields, mut arrays) = (passing.rows.schema().fields().to_vec(), passing.rows.columns().to_vec());
            fields.push(Arc::clone(&column.field));
            arrays.push(values.array);
            passing = passing.with_rows(RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?, values.held);
        }
        times.add_since(Stage::Udf, start);
        Ok(passing)
    }
}
