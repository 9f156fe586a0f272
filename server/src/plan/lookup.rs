//! Tables that a canonical plan looks up: their identities, and their rows once read.

use std::{collections::HashMap, sync::Arc};

use forebay_kernels::LookupTable;
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
}

/// Tables that have been read.
#[derive(Clone, Debug, Default)]
pub struct Tables(HashMap<Lookup, Arc<LookupTable>>);

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
        Ok(Self { table, snapshot: message.snapshot.clone(), key, column: column.clone() })
    }
}

impl Lookup {
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
        let lookup = |column: &String| {
            let (table, snapshot, key) = (join.table.clone(), join.snapshot.clone(), join.key.clone());
            Self { table, snapshot, key, column: column.clone() }
        };
        Ok(join.columns.iter().map(lookup).collect())
    }
}

impl Tables {
    /// Returns whether there are no tables.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a table that was read.
    pub fn insert(&mut self, lookup: Lookup, table: Arc<LookupTable>) {
        self.0.insert(lookup, table);
    }

    /// The table of each column of a join, in order.
    pub fn of_join(&self, join: &v1::Join, path: &str) -> Result<Vec<Arc<LookupTable>>, PlanError> {
        Lookup::of_join(join, path)?.iter().map(|lookup| self.of_lookup(lookup, path)).collect()
    }

    pub(super) fn get(&self, message: &v1::Lookup, path: &str) -> Result<Arc<LookupTable>, PlanError> {
        self.of_lookup(&Lookup::of(message, path)?, path)
    }

    fn of_lookup(&self, lookup: &Lookup, path: &str) -> Result<Arc<LookupTable>, PlanError> {
        let table = self.0.get(lookup).map(Arc::clone);
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
