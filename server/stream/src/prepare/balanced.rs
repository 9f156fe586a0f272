//! The classes of a balanced epoch: how often it draws each row of each row group.

use std::sync::Arc;

use forebay_kernels::KernelError;
use forebay_order::balance::{ClassDraws, RunDraws, shares};
use forebay_plan::{Balance, PlanError};
use forebay_runtime::budget::{Budget, Reservation};

use crate::{
    counts::groups::table::GroupTable,
    error::StreamError,
    rows::{group::GroupColumn, passing::Passing},
};

/// The classes of an epoch.
#[derive(Debug)]
pub(crate) struct Balanced {
    column: Arc<GroupColumn>,
    table: Arc<GroupTable>,
    /// The draws of each class, in the order of the keys.
    classes: Vec<ClassDraws>,
    /// The runs of row groups, one after another.
    runs: Vec<ClassRun>,
    /// The end of each row group's runs.
    ends: Vec<usize>,
    _memory: Reservation,
}

/// The rows of a class in a row group.
#[derive(Clone, Copy, Debug)]
struct ClassRun {
    class: usize,
    /// The rows of the class in earlier row groups.
    start: u64,
    rows: u64,
}

/// The draws of the rows of a row group, which are read in order.
pub(crate) struct ClassRowDraws {
    balanced: Arc<Balanced>,
    /// The draws of each class, and the number of its rows that were read; none for those without rows.
    runs: Vec<Option<(RunDraws, u64)>>,
}

// === impl Balanced ===

impl Balanced {
    /// The classes of a table of the rows that pass, drawn as the request says: as many rows as there are.
    pub(super) fn new(
        balance: &Balance,
        (column, table): (Arc<GroupColumn>, Arc<GroupTable>),
        row_groups: usize,
        (seed, epoch): (u64, u64),
        budget: &Budget,
    ) -> Result<Self, StreamError> {
        let rows: Vec<u64> = table.row_counts().collect();
        let weights = weights(balance, &column, &table)?;
        let total = rows.iter().sum();
        let draws = shares(total, &rows, &weights);
        if draws.is_none() && total > 0 {
            return Err(PlanError::field("balance.weights", "no row has a value with a weight above 0").into());
        }
        let draws = draws.unwrap_or_else(|| vec![0; rows.len()]);
        let count: usize = (0..rows.len()).map(|class| table.runs_of(class).len()).sum();
        // Sorted with the numbers of their row groups, and then without.
        let run_bytes = size_of::<ClassRun>() + size_of::<(u32, ClassRun)>();
        let memory = budget.reserve((count * run_bytes + row_groups * size_of::<usize>()) as u64)?;
        let mut by_row_group: Vec<(u32, ClassRun)> = Vec::with_capacity(count);
        for class in 0..rows.len() {
            let mut start = 0;
            for run in table.runs_of(class) {
                by_row_group.push((run.row_group, ClassRun { class, start, rows: run.rows }));
                start += run.rows;
            }
        }
        // Stable: the classes of a row group stay in order.
        by_row_group.sort_by_key(|(row_group, _)| *row_group);
        let end = |row_group| by_row_group.partition_point(|(of_run, _)| *of_run as usize <= row_group);
        let ends = (0..row_groups).map(end).collect();
        let classes = (0_u64..).zip(rows.iter().zip(draws));
        let classes = classes.map(|(class, (rows, draws))| ClassDraws::new(*rows, draws, (seed, epoch, class)));
        let (classes, runs) = (classes.collect(), by_row_group.into_iter().map(|(_, run)| run).collect());
        Ok(Self { column, table, classes, runs, ends, _memory: memory })
    }

    /// The rows that each row group gives to the epoch.
    pub(super) fn row_counts(&self) -> Vec<u64> {
        let total = |run: &ClassRun| self.classes[run.class].total(run.start, run.rows);
        (0..self.ends.len()).map(|row_group| self.runs_of(row_group).iter().map(total).sum()).collect()
    }

    fn runs_of(&self, row_group: usize) -> &[ClassRun] {
        let start = row_group.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.runs[start..self.ends[row_group]]
    }
}

/// The weight of each class of a table.
fn weights(balance: &Balance, column: &GroupColumn, table: &GroupTable) -> Result<Vec<f64>, PlanError> {
    let mut weights = vec![1.0; table.keys().len()];
    for (index, (key, weight)) in balance.weights.iter().enumerate() {
        let path = format!("balance.weights[{index}].key");
        let key = column.key(key, &path)?;
        let place = table.keys().binary_search(&key).map_err(|_| {
            let reason = format!("no row that passes has this value of column \"{}\"", column.name);
            PlanError::field(path, reason)
        })?;
        weights[place] = *weight;
    }
    Ok(weights)
}

// === impl ClassRowDraws ===

impl ClassRowDraws {
    /// Those of a row group, from its first row on.
    pub(super) fn new(balanced: &Arc<Balanced>, row_group: usize) -> Self {
        let mut runs = vec![None; balanced.classes.len()];
        for run in balanced.runs_of(row_group) {
            runs[run.class] = Some((balanced.classes[run.class].run(run.start, run.rows), 0));
        }
        Self { balanced: Arc::clone(balanced), runs }
    }

    /// The draws of each of the next passing rows.
    pub(super) fn next(&mut self, passing: &Passing) -> Result<Vec<u64>, StreamError> {
        let Balanced { column, table, .. } = self.balanced.as_ref();
        let values = passing.rows.column_by_name(&column.name);
        let values = values.ok_or_else(|| KernelError::MissingColumn { column: column.name.clone() })?;
        let classes = column.places(values, table.keys())?;
        // A value that was not counted is that of a changed file, whose rows do not add up either.
        let draws = classes.into_iter().map(|class| match class.and_then(|class| self.runs[class].as_mut()) {
            Some((run, row)) => {
                *row += 1;
                run.of(*row - 1)
            }
            None => 0,
        });
        Ok(draws.collect())
    }
}
