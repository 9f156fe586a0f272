//! Checks the batches of a run against those of the same job without faults.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use forebay_client::{Cursor, Remainder};

use crate::{
    run::{self, Outcome},
    schedule::Scenario,
    trainer::{ReceivedBatch, Request, Segment},
};

/// Identifies a job: request, world size and cursor.
type Key = (Request, u64, String);

/// The batches of each rank without faults.
type Expected = Arc<Vec<Vec<ReceivedBatch>>>;

static KNOWN: Mutex<BTreeMap<Key, Expected>> = Mutex::new(BTreeMap::new());

/// Runs a scenario and checks its batches.
pub(crate) fn check(scenario: &Scenario) -> Outcome {
    let mut outcome = run::run(scenario, None);
    if outcome.failure.is_none() {
        let verdict = check_batches(scenario, &outcome.segments);
        outcome.failure = verdict.and_then(|()| check_rows(scenario, &outcome.segments)).err();
    }
    outcome
}

/// The batches of each rank in the maximum number of epochs, from a run without faults. Computed once per job.
fn expected(scenario: &Scenario, world_size: u64, cursor: Option<&Cursor>) -> Result<Expected, String> {
    let saved = cursor.map(Cursor::to_json).unwrap_or_default();
    let key = (scenario.request, world_size, saved);
    if let Some(known) = KNOWN.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
        return Ok(Arc::clone(known));
    }
    let calm = Scenario::calm(scenario.request, scenario.settings, world_size);
    let outcome = run::run(&calm, cursor.cloned());
    if let Some(failure) = outcome.failure {
        return Err(format!("the run without faults: {failure}"));
    }
    if cursor.is_none() {
        check_rows(&calm, &outcome.segments).map_err(|reason| format!("the run without faults: {reason}"))?;
    }
    let expected = Arc::new(outcome.segments.into_iter().flat_map(|segment| segment.batches).collect());
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).insert(key, Arc::clone(&expected));
    Ok(expected)
}

/// Checks that from each start of the job to the next, each rank received the batches of a run without faults.
fn check_batches(scenario: &Scenario, segments: &[Segment]) -> Result<(), String> {
    // The last change of the world size and its cursor: a job that restarts with the same number of ranks continues the
    // same stream.
    let (mut world_size, mut cursor) = (segments[0].world_size, None);
    for (number, segment) in segments.iter().enumerate() {
        if segment.world_size != world_size {
            (world_size, cursor) = (segment.world_size, segment.cursor.as_ref());
        }
        let expected = expected(scenario, world_size, cursor)?;
        let from = position(segment.cursor.as_ref());
        let until = segments.get(number + 1).map(|next| position(next.cursor.as_ref()));
        for (rank, batches) in segment.batches.iter().enumerate() {
            let is_between = |batch: &&ReceivedBatch| {
                let at = (batch.epoch, batch.position);
                at >= from && batch.epoch < scenario.settings.epochs && until.is_none_or(|until| at < until)
            };
            let expected = expected[rank].iter().filter(is_between);
            same(batches, expected).map_err(|reason| format!("start {number} of the job, rank {rank}: {reason}"))?;
        }
    }
    Ok(())
}

fn position(cursor: Option<&Cursor>) -> (u64, u64) {
    cursor.map_or((0, 0), |cursor| (cursor.epoch, cursor.position))
}

fn same<'a>(batches: &[ReceivedBatch], mut expected: impl Iterator<Item = &'a ReceivedBatch>) -> Result<(), String> {
    for found in batches {
        match expected.next() {
            Some(batch) if batch == found => {}
            Some(batch) => return Err(format!("received {found:?}\ninstead of {batch:?}")),
            None => return Err(format!("received {found:?} after the last batch")),
        }
    }
    expected.next().map_or(Ok(()), |batch| Err(format!("did not receive {batch:?}")))
}

/// Checks that the rows of each epoch are those that pass the plan's filter, each as often as the remainder specifies.
fn check_rows(scenario: &Scenario, segments: &[Segment]) -> Result<(), String> {
    let all: Vec<u64> = scenario.request.plan.rows().collect();
    for epoch in 0..scenario.settings.epochs {
        let batches: Vec<&ReceivedBatch> = segments
            .iter()
            .flat_map(|segment| segment.batches.iter().flatten())
            .filter(|batch| batch.epoch == epoch)
            .collect();
        let mut rows: Vec<u64> = batches.iter().flat_map(|batch| &batch.rows).copied().collect();
        let count = rows.len();
        rows.sort_unstable();
        rows.dedup();
        let repeated = (count - rows.len()) as u64;
        let padding = batches.iter().map(|batch| batch.padding_rows).sum::<u64>();
        let is_correct = match scenario.request.remainder() {
            Remainder::Keep => rows == all && repeated == 0,
            Remainder::Drop => repeated == 0 && rows.iter().all(|row| all.binary_search(row).is_ok()),
            Remainder::Pad => rows == all && repeated == padding,
        };
        if !is_correct {
            let missing: Vec<&u64> = all.iter().filter(|row| rows.binary_search(row).is_err()).collect();
            return Err(format!(
                "epoch {epoch}: {repeated} repeated rows, {padding} padding rows, missing {missing:?}"
            ));
        }
    }
    Ok(())
}
