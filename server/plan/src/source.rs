//! The plan of a request, or of a source of a mixture.

use std::sync::Arc;

use forebay_proto::v1;

use super::{ROW_ID, error::PlanError, history::check_history, outputs::check_shape};

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
        let source = Self::check((message.plan.as_ref(), &message.plan_id), message.history.as_ref(), "")?;
        let source = source.ok_or_else(missing)?;
        if let Self::Inline(plan) = &source {
            check_plan(plan)?;
        }
        Ok(source)
    }

    /// The plan of two fields, whose paths begin with `path`, with the history of the request; none if neither is set.
    pub(super) fn check(
        of_fields: (Option<&v1::Plan>, &str),
        history: Option<&v1::History>,
        path: &str,
    ) -> Result<Option<Self>, PlanError> {
        match (of_fields, history) {
            ((Some(plan), ""), None) => Ok(Some(Self::Inline(Arc::new(plan.clone())))),
            ((Some(plan), ""), Some(history)) => Ok(Some(Self::Inline(Arc::new(with_history(plan, history)?)))),
            ((None, ""), _) => Ok(None),
            ((None, _), Some(_)) => {
                let reason =
                    "a plan that is named by its id has the history that it was fitted with: leave it out here";
                Err(PlanError::field("history", reason))
            }
            ((None, id), None) => Ok(Some(Self::Id(id.to_owned()))),
            ((Some(_), _), _) => {
                Err(PlanError::field(format!("{path}plan_id"), "send either plan or plan_id, not both"))
            }
        }
    }
}

/// The plan with the history of a request.
fn with_history(plan: &v1::Plan, history: &v1::History) -> Result<v1::Plan, PlanError> {
    check_history(history, "history")?;
    if plan.history.as_ref().is_some_and(|own| own != history) {
        return Err(PlanError::field("history", "the plan has another one: set one of both"));
    }
    Ok(v1::Plan { history: Some(history.clone()), ..plan.clone() })
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
