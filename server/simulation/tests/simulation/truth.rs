//! The one true stream, and whether what a run took is that stream and nothing else.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use forebay_client::{Cursor, Remainder};

use crate::{
    run::{self, Outcome},
    schedule::Scenario,
    trainer::{Request, Segment, Taken},
};

/// What a job is: the same always gives the same.
type Key = (Request, u64, String);

/// What each rank takes.
type Truth = Arc<Vec<Vec<Taken>>>;

static KNOWN: Mutex<BTreeMap<Key, Truth>> = Mutex::new(BTreeMap::new());

/// Runs a scenario and holds what it took against the truth.
pub(crate) fn check(scenario: &Scenario) -> Outcome {
    let mut outcome = run::run(scenario, None);
    if outcome.failure.is_none() {
        let verdict = is_true(scenario, &outcome.segments);
        outcome.failure = verdict.and_then(|()| rows_are_there(scenario, &outcome.segments)).err();
    }
    outcome
}

/// Every batch of each rank in as many epochs as there may be, computed without faults; once for all runs that ask for
/// the same.
fn truth(scenario: &Scenario, world_size: u64, cursor: Option<&Cursor>) -> Result<Truth, String> {
    let place = cursor.map(Cursor::to_json).unwrap_or_default();
    let key = (scenario.request, world_size, place);
    if let Some(known) = KNOWN.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
        return Ok(Arc::clone(known));
    }
    let calm = Scenario::calm(scenario.request, scenario.habits, world_size);
    let outcome = run::run(&calm, cursor.cloned());
    if let Some(failure) = outcome.failure {
        return Err(format!("the run without faults: {failure}"));
    }
    if cursor.is_none() {
        rows_are_there(&calm, &outcome.segments).map_err(|reason| format!("the run without faults: {reason}"))?;
    }
    let truth = Arc::new(outcome.segments.into_iter().flat_map(|segment| segment.taken).collect());
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).insert(key, Arc::clone(&truth));
    Ok(truth)
}

/// Whether each rank took, from each start of the job to the next, what it takes without faults.
fn is_true(scenario: &Scenario, segments: &[Segment]) -> Result<(), String> {
    // The world size and the cursor that the present one began with: a job that is started again with as many ranks
    // goes on with the same stream.
    let (mut world_size, mut cursor) = (segments[0].world_size, None);
    for (number, segment) in segments.iter().enumerate() {
        if segment.world_size != world_size {
            (world_size, cursor) = (segment.world_size, segment.cursor.as_ref());
        }
        let truth = truth(scenario, world_size, cursor)?;
        let from = place(segment.cursor.as_ref());
        let until = segments.get(number + 1).map(|next| place(next.cursor.as_ref()));
        for (rank, taken) in segment.taken.iter().enumerate() {
            let is_between = |batch: &&Taken| {
                let at = (batch.epoch, batch.position);
                at >= from && batch.epoch < scenario.habits.epochs && until.is_none_or(|until| at < until)
            };
            let expected = truth[rank].iter().filter(is_between);
            same(taken, expected).map_err(|reason| format!("start {number} of the job, rank {rank}: {reason}"))?;
        }
    }
    Ok(())
}

fn place(cursor: Option<&Cursor>) -> (u64, u64) {
    cursor.map_or((0, 0), |cursor| (cursor.epoch, cursor.position))
}

fn same<'a>(taken: &[Taken], mut expected: impl Iterator<Item = &'a Taken>) -> Result<(), String> {
    for found in taken {
        match expected.next() {
            Some(batch) if batch == found => {}
            Some(batch) => return Err(format!("took {found:?}\nwhere {batch:?} is true")),
            None => return Err(format!("took {found:?}, which is one too many")),
        }
    }
    expected.next().map_or(Ok(()), |batch| Err(format!("did not take {batch:?}")))
}

/// Whether the rows of each epoch are those that pass the plan's filter, each as often as the remainder allows.
fn rows_are_there(scenario: &Scenario, segments: &[Segment]) -> Result<(), String> {
    let all: Vec<u64> = scenario.request.plan.rows().collect();
    for epoch in 0..scenario.habits.epochs {
        let batches: Vec<&Taken> = segments
            .iter()
            .flat_map(|segment| segment.taken.iter().flatten())
            .filter(|batch| batch.epoch == epoch)
            .collect();
        let mut rows: Vec<u64> = batches.iter().flat_map(|batch| &batch.rows).copied().collect();
        let count = rows.len();
        rows.sort_unstable();
        rows.dedup();
        let twice = (count - rows.len()) as u64;
        let padding = batches.iter().map(|batch| batch.padding_rows).sum::<u64>();
        let is_right = match scenario.request.remainder() {
            Remainder::Keep => rows == all && twice == 0,
            Remainder::Drop => twice == 0 && rows.iter().all(|row| all.binary_search(row).is_ok()),
            Remainder::Pad => rows == all && twice == padding,
        };
        if !is_right {
            let missing: Vec<&u64> = all.iter().filter(|row| rows.binary_search(row).is_err()).collect();
            return Err(format!(
                "epoch {epoch}: {twice} rows came twice, {padding} of them to pad, without {missing:?}"
            ));
        }
    }
    Ok(())
}
