//! Tables that a canonical plan looks up: their identities, and their rows once read.

use std::{collections::HashMap, sync::Arc};

use forebay_kernels::{LookupTable, TableTimes};
use forebay_proto::v1::{self, op::Op as OpMessage};

use super::{
    error::PlanError,
    path::{chain_path, join_path},
};

/// A column of a table, looked up by a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lookup {
    /// Name of the dataset.
    pub table: String,
    /// Digest of its snapshot; empty: not pinned yet.
    pub snapshot: String,
    /// Name of the key column.
    pub key: String,
    /// Name of the column to return.
    pub column: String,
    /// Name of the column of times, of which the latest that is not after a row's decides; empty: keys are unique.
    pub time: String,
}

/// Tables that have been read.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    columns: HashMap<Lookup, Arc<LookupTable>>,
    /// The rows of tables by key and time; the lookups name no column.
    times: HashMap<Lookup, Arc<TableTimes>>,
}

impl Lookup {
    fn of(message: &v1::Lookup, path: &str) -> Result<Self, PlanError> {
        let [column] = message.columns.as_slice() else {
            return Err(PlanError::field(format!("{path}.columns"), "missing: the columns of the table to return"));
        };
        for (field, value) in [("table", &message.table), ("key", &message.key)] {
            if value.is_empty() {
                return Err(PlanError::field(format!("{path}.{field}"), "missing"));
            }
        }
        let (table, key) = (message.table.clone(), message.key.clone());
        Ok(Self { table, snapshot: message.snapshot.clone(), key, column: column.clone(), time: String::new() })
    }

    /// The lookups of a join's columns.
    fn of_join(join: &v1::Join, path: &str) -> Result<Vec<Self>, PlanError> {
        for (field, value) in [("table", &join.table), ("on", &join.on)] {
            if value.is_empty() {
                return Err(PlanError::field(format!("{path}.{field}"), "missing"));
            }
        }
        if join.columns.is_empty() {
            return Err(PlanError::field(format!("{path}.columns"), "missing: the columns of the table to join"));
        }
        let time = match &join.as_of {
            Some(as_of) if as_of.left.is_empty() => {
                let reason = "missing: the column with the time of a row";
                return Err(PlanError::field(format!("{path}.as_of.left"), reason));
            }
            Some(as_of) => as_of.right.clone(),
            None => String::new(),
        };
        let lookup = |column: &String| {
            let (table, snapshot, key) = (join.table.clone(), join.snapshot.clone(), join.key.clone());
            Self { table, snapshot, key, column: column.clone(), time: time.clone() }
        };
        Ok(join.columns.iter().map(lookup).collect())
    }

    /// The keys and times that all columns of a table share.
    fn without_column(&self) -> Self {
        Self { column: String::new(), ..self.clone() }
    }
}

impl Tables {
    /// Returns whether there are no tables.
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// Adds a table that was read.
    pub fn insert(&mut self, lookup: Lookup, table: Arc<LookupTable>) {
        self.columns.insert(lookup, table);
    }

    /// Adds the times of a table's rows.
    pub fn insert_times(&mut self, lookup: &Lookup, times: Arc<TableTimes>) {
        self.times.insert(lookup.without_column(), times);
    }

    /// The table of each column of a join, in order.
    pub fn of_join(&self, join: &v1::Join, path: &str) -> Result<Vec<Arc<LookupTable>>, PlanError> {
        Lookup::of_join(join, path)?.iter().map(|lookup| self.of_lookup(lookup, path)).collect()
    }

    /// The times of the table's rows, if a join is as of a time.
    pub fn times_of(&self, join: &v1::Join, path: &str) -> Result<Option<Arc<TableTimes>>, PlanError> {
        let lookups = Lookup::of_join(join, path)?;
        Ok(lookups.first().and_then(|lookup| self.times.get(&lookup.without_column())).map(Arc::clone))
    }

    pub(super) fn get(&self, message: &v1::Lookup, path: &str) -> Result<Arc<LookupTable>, PlanError> {
        self.of_lookup(&Lookup::of(message, path)?, path)
    }

    fn of_lookup(&self, lookup: &Lookup, path: &str) -> Result<Arc<LookupTable>, PlanError> {
        let table = self.columns.get(lookup).map(Arc::clone);
        table.ok_or_else(|| {
            PlanError::field(format!("{path}.table"), format!("dataset \"{}\" was not read", lookup.table))
        })
    }
}

/// Returns the lookups of a canonical plan's joins and ops, with their paths.
pub fn lookups(plan: &v1::Plan) -> Result<Vec<(String, Lookup)>, PlanError> {
    let mut found = Vec::new();
    for (index, join) in plan.join.iter().enumerate() {
        let path = join_path(index);
        found.extend(Lookup::of_join(join, &path)?.into_iter().map(|lookup| (path.clone(), lookup)));
    }
    for (output_index, output) in plan.outputs.iter().enumerate() {
        for (part_index, part) in output.parts.iter().enumerate() {
            for (number, op) in part.ops.iter().enumerate() {
                if let Some(OpMessage::Lookup(message)) = &op.op {
                    let path = format!("{}.ops[{number}].lookup", chain_path(output_index, part_index));
                    found.push((path.clone(), Lookup::of(message, &path)?));
                }
            }
        }
    }
    Ok(found)
}

/// Returns the datasets that a plan names as tables. The plan need not be canonical or valid.
pub fn table_names(plan: &v1::Plan) -> impl Iterator<Item = &str> {
    let ops = plan.outputs.iter().flat_map(|output| &output.parts).flat_map(|part| &part.ops);
    let looked_up = ops.filter_map(|op| match &op.op {
        Some(OpMessage::Lookup(lookup)) => Some(lookup.table.as_str()),
        _ => None,
    });
    plan.join.iter().map(|join| join.table.as_str()).chain(looked_up)
}

/// Pins the joins and lookups that have no snapshot to the given snapshots of their tables.
pub fn pin<'a>(plan: &mut v1::Plan, snapshot_of: impl Fn(&str) -> Option<&'a String>) {
    let pin = |table: &str, snapshot: &mut String| {
        if snapshot.is_empty()
            && let Some(digest) = snapshot_of(table)
        {
            snapshot.clone_from(digest);
        }
    };
    for join in &mut plan.join {
        pin(&join.table, &mut join.snapshot);
    }
    let ops = plan.outputs.iter_mut().flat_map(|output| &mut output.parts).flat_map(|part| &mut part.ops);
    for op in ops {
        if let Some(OpMessage::Lookup(lookup)) = &mut op.op {
            pin(&lookup.table, &mut lookup.snapshot);
        }
    }
}
