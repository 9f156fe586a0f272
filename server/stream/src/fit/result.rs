//! The result of a fit, as it is returned and written to files.

use forebay_proto::v1;

/// The version of a fit's result in its file form.
const FIT_VERSION: u32 = 1;

/// The result of a fit that learned this plan.
pub(super) fn result_of(plan_id: String, plan: v1::Plan) -> v1::FitResult {
    let warnings = forebay_plan::warnings(&plan);
    v1::FitResult { version: FIT_VERSION, plan_id, plan: Some(plan), warnings, cached: None }
}
