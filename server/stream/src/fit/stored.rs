//! Fits under `--state`: which stored plan a fit learned, by everything that determines the result.

use bytes::Bytes;
use forebay_catalog::Snapshot;
use forebay_proto::v1;
use forebay_runtime::state::{Kind, short_digest};

use super::{learning::PinnedFit, result::result_of};
use crate::{counts::store, environment::Environment};

/// Fits to keep; those that were used longest ago are removed.
const KEPT_MAX: usize = 4096;

/// The version of what fits learn: raised whenever a fit of the same plan and rows would learn something else.
const LEARNING_VERSION: u8 = 3;

/// What the result of a fit depends on, as an id of the state directory: the snapshot, the canonical plan, which names
/// the filter and the snapshots of its tables, and the sample.
pub(super) fn key(fit: &PinnedFit) -> String {
    let plan_id = forebay_plan::plan_id(&fit.plan);
    let sample = fit.sample.map(forebay_plan::Sample::key);
    let of_fit =
        short_digest(&[&[LEARNING_VERSION], plan_id.as_bytes(), sample.as_ref().map_or(&[], <[u8; 16]>::as_slice)]);
    format!("{}-{of_fit}", fit.snapshot.state())
}

/// Reads the result of a fit. None if it is not kept, or if anything that belongs to its plan was removed or damaged or
/// cannot be read: a new fit restores it.
pub(super) async fn load(environment: &Environment, snapshot: &Snapshot, key: &str) -> Option<v1::FitResult> {
    let plan_id = store::load(&environment.state, Kind::Fit, key).await?;
    result(environment, snapshot, plan_id).await
}

/// Keeps the plan that a fit learned. If another server with this state has kept a plan for the same fit, returns that
/// result, so that both give the same answer.
pub(super) async fn store(
    environment: &Environment,
    snapshot: &Snapshot,
    key: &str,
    plan_id: &str,
) -> Option<v1::FitResult> {
    let state = &environment.state;
    let first = store::store_first(state, Kind::Fit, key, plan_id.as_bytes(), KEPT_MAX).await?;
    if first == plan_id.as_bytes() {
        return None;
    }
    let other = result(environment, snapshot, first).await;
    if other.is_none() {
        replace(environment, key, plan_id).await;
    }
    other
}

/// Keeps the plan that a forced fit learned.
pub(super) async fn replace(environment: &Environment, key: &str, plan_id: &str) {
    store::store(&environment.state, Kind::Fit, key, plan_id.as_bytes(), KEPT_MAX).await;
}

async fn result(environment: &Environment, snapshot: &Snapshot, plan_id: Bytes) -> Option<v1::FitResult> {
    let plan_id = String::from_utf8(plan_id.into()).ok()?;
    if !environment.plans.is_recorded(&plan_id, snapshot.dataset(), snapshot.digest()).await {
        return None;
    }
    let plan = environment.plans.load(&plan_id).await.ok()?;
    environment.plans.mark_used(&plan_id).await;
    Some(result_of(plan_id, plan.as_ref().clone()))
}
