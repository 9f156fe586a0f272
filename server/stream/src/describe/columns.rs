//! A checked request: the columns to describe, and the filter of their rows.

use std::{collections::HashSet, sync::Arc};

use forebay_catalog::Snapshot;
use forebay_plan::{PlanError, Tables};
use forebay_proto::v1;
use forebay_runtime::state::short_digest;

use crate::{
    environment::Environment,
    error::StreamError,
    rows::{
        expressions::{Expressions, RowsOf},
        functions::PlanFunctions,
    },
};

/// Columns of a description: bounds the size of the result.
const COLUMNS_MAX: usize = 1024;

/// The version of kept descriptions: another one is computed again.
const DESCRIPTION_VERSION: u8 = 2;

/// The columns of a snapshot to describe.
pub(super) struct DescribedColumns {
    pub snapshot: Arc<Snapshot>,
    /// Indices in the stored schema.
    pub indices: Vec<usize>,
    pub filter: String,
    pub expressions: Arc<Expressions>,
}

impl DescribedColumns {
    /// Checks a request. Expressions are compiled on the CPU pool, whose stacks are deep enough for them.
    pub(super) async fn check(
        environment: &Environment,
        snapshot: Arc<Snapshot>,
        request: v1::DescribeRequest,
    ) -> Result<Self, StreamError> {
        let checked = environment.cpu.run(move || {
            let schema = snapshot.wide_schema();
            let indices = if request.columns.is_empty() {
                first_of_each_name(schema)
            } else {
                forebay_plan::indices(&request.columns, schema, "columns")?
            };
            if indices.len() > COLUMNS_MAX {
                let reason = format!("{} columns, the limit is {COLUMNS_MAX}: name those to describe", indices.len());
                return Err(PlanError::field("columns", reason).into());
            }
            let plan = v1::Plan { filter: request.filter.clone(), ..v1::Plan::default() };
            let (tables, functions) = (Tables::default(), PlanFunctions::default());
            let source = RowsOf::sample(None);
            let expressions = Expressions::compile(&plan, schema, (&tables, &functions), source)?;
            Ok(Self { snapshot, indices, filter: request.filter, expressions: Arc::new(expressions) })
        });
        checked.await?
    }

    /// What the description depends on, as an id of the state directory.
    pub(super) fn key(&self) -> String {
        let indices: Vec<u8> = self.indices.iter().flat_map(|index| (*index as u64).to_le_bytes()).collect();
        let of_rows = short_digest(&[&[DESCRIPTION_VERSION], &indices, self.filter.as_bytes()]);
        format!("{}-{of_rows}", self.snapshot.state())
    }
}

/// The first column of each name.
fn first_of_each_name(schema: &arrow::datatypes::Schema) -> Vec<usize> {
    let mut seen = HashSet::new();
    let fields = schema.fields().iter().enumerate();
    fields.filter(|(_, field)| seen.insert(field.name())).map(|(index, _)| index).collect()
}
