//! Fits in the state directory: which stored plan a fit learned, by everything that determines the result.

use forebay_proto::v1;

use super::{learning::PinnedFit, result::result_of};
use crate::{
    catalog::Snapshot,
    plan,
    state::{Kind, short_digest},
    stream::{environment::Environment, error::StreamError, kept},
};

/// Fits to keep; those that were used longest ago are removed.
const KEPT_MAX: usize = 4096;

/// The version of what fits learn: raised when the same plan and rows teach something else.
const LEARNING_VERSION: u8 = 1;

/// What the result of a fit depends on, as an id of the state directory: the snapshot, the canonical plan, which names
/// the filter and the snapshots of its tables, and the sample.
pub(super) fn key(fit: &PinnedFit) -> String {
    let plan_id = plan::plan_id(&fit.plan);
    let sample = fit.sample.map(plan::Sample::key);
    let of_fit =
        short_digest(&[&[LEARNING_VERSION], plan_id.as_bytes(), sample.as_ref().map_or(&[], <[u8; 16]>::as_slice)]);
    format!("{}-{of_fit}", fit.snapshot.digest())
}

/// Reads the result of a fit. None if it is not kept, or if anything that belongs to its plan was removed or damaged: a
/// new fit restores it.
pub(super) async fn load(
    environment: &Environment,
    snapshot: &Snapshot,
    key: &str,
) -> Result<Option<v1::FitResult>, StreamError> {
    let (state, plans, key) = (environment.state.clone(), environment.plans.clone(), key.to_owned());
    let (dataset, digest) = (snapshot.dataset().to_owned(), snapshot.digest().to_owned());
    let load = move || {
        let plan_id = String::from_utf8(kept::load(&state, Kind::Fit, &key)?).ok()?;
        if !plans.is_recorded(&plan_id, &dataset, &digest) {
            return None;
        }
        let plan = plans.load(&plan_id).ok()?;
        plans.mark_used(&plan_id);
        Some(result_of(plan_id, plan.as_ref().clone()))
    };
    Ok(environment.cpu.run(load).await?)
}

/// Keeps the plan that a fit learned.
pub(super) async fn store(environment: &Environment, key: &str, plan_id: &str) -> Result<(), StreamError> {
    let (state, key, plan_id) = (environment.state.clone(), key.to_owned(), plan_id.to_owned());
    let store = move || kept::store(&state, Kind::Fit, &key, plan_id.as_bytes(), KEPT_MAX);
    Ok(environment.cpu.run(store).await?)
}
