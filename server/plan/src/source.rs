//! The plan of a request, or of a source of a mixture.

use std::sync::Arc;

use forebay_proto::v1;

use super::{ROW_ID, error::PlanError, outputs::check_shape};

/// The plan of a request.
#[derive(Clone, Debug)]
pub enum Source {
    /// The plan is in the request.
    Inline(Arc<v1::Plan>),
    /// The plan was fitted and is stored under this id.
    Id(String),
}

// === impl Source ===

impl Source {
    /// The plan of a request for one dataset.
    pub(super) fn of_request(message: &v1::StreamRequest) -> Result<Self, PlanError> {
        let missing = || PlanError::field("plan", "missing: expected a plan, or the plan_id of a fitted one");
        let source = Self::check(message.plan.as_ref(), &message.plan_id, "")?.ok_or_else(missing)?;
        if let Self::Inline(plan) = &source {
            check_plan(plan)?;
        }
        Ok(source)
    }

    /// The plan of two fields, whose paths begin with `path`; none if neither is set.
    pub(super) fn check(plan: Option<&v1::Plan>, plan_id: &str, path: &str) -> Result<Option<Self>, PlanError> {
        match (plan, plan_id) {
            (Some(plan), "") => Ok(Some(Self::Inline(Arc::new(plan.clone())))),
            (None, "") => Ok(None),
            (None, id) => Ok(Some(Self::Id(id.to_owned()))),
            (Some(_), _) => Err(PlanError::field(format!("{path}plan_id"), "send either plan or plan_id, not both")),
        }
    }
}

/// Checks an inline plan by itself.
pub(super) fn check_plan(plan: &v1::Plan) -> Result<(), PlanError> {
    check_shape(plan)?;
    refuse_row_id_output(plan)
}

fn refuse_row_id_output(plan: &v1::Plan) -> Result<(), PlanError> {
    match plan.outputs.iter().position(|output| output.name == ROW_ID) {
        Some(index) => Err(PlanError::field(
            format!("plan.outputs[{index}].name"),
            format!("\"{ROW_ID}\" is the name of the column that with_row_ids adds"),
        )),
        None => Ok(()),
    }
}
