//! `DoAction`: the commands that are not reads, one module each.

mod check_plan;
mod describe;
mod explain;
mod fit;
mod plans;
mod replay;
mod results;
mod show;
mod take;

use arrow_flight::{Action, ActionType};
use forebay_proto::v1::Reason;
use tonic::Status;

use results::ActionResults;

use crate::flight::{context::CallContext, status};

/// Names of the actions.
const NAMES: [&str; 9] = ["fit", "explain", "replay", "show", "plans", "remove_plan", "describe", "take", "check_plan"];

/// The actions of this server.
pub(crate) fn types() -> Vec<ActionType> {
    let fit = "Body: FitRequest {dataset, plan, sample, sample_seed, refit}. Results: FitUpdate, any number of {\"progress\": …}, then one \
               {\"result\": {\"plan_id\": …, \"plan\": …, \"cached\": …}}";
    let explain = "Body: StreamRequest. Result: Explain, the cost of an epoch: steps, rows and bytes of each rank, \
                   read amplification, memory, mixing, and with \"assume\" its duration";
    let replay = "Body: ReplayRequest {stream, rank, step}. Results: Replay, file, row group and row of every row of \
                  that batch, and a ticket for the batch itself";
    let show =
        "Body: ShowRequest {plan_id}. Result: FitResult {version, plan_id, plan, warnings}, as the fit returned it";
    let plans = "Body: PlansRequest {}. Results: Plans, the stored plans that the caller may see: id, datasets, bytes, \
                 times";
    let remove = "Body: RemovePlanRequest {plan_id}. Result: StoredPlan, as it was before its removal";
    let describe = "Body: DescribeRequest {dataset, columns, filter}. Results: DescribeUpdate, any number of \
                    {\"progress\": …}, then one {\"result\": …}: counts, bounds, quantiles and frequent values of each column";
    let take = "Body: TakeRequest {dataset, plan or plan_id, row_ids or positions}. Results: Arrow IPC streams of one \
                batch each: these rows in this order";
    let check = "Body: CheckPlanRequest {dataset, plan}. Result: PlanCheck, the type and width of every output, \
                 columns whose nulls would end a stream, and what a fit would learn";
    let described = NAMES.into_iter().zip([fit, explain, replay, show, plans, remove, describe, take, check]);
    described
        .map(|(name, description)| ActionType { r#type: name.to_owned(), description: description.to_owned() })
        .collect()
}

/// Runs an action and returns its results.
pub(crate) async fn results(context: &CallContext, action: &Action) -> Result<ActionResults, Status> {
    let name = action.r#type.as_str();
    context.call.note(|facts| facts.action = NAMES.into_iter().find(|known| *known == name));
    match name {
        "fit" => fit::results(context, &action.body).await,
        "explain" => explain::results(context, &action.body).await,
        "replay" => Box::pin(replay::results(context, &action.body)).await,
        "show" => show::results(context, &action.body).await,
        "plans" => plans::list(context, &action.body).await,
        "describe" => describe::results(context, &action.body).await,
        "remove_plan" => plans::remove(context, &action.body).await,
        "check_plan" => check_plan::results(context, &action.body).await,
        "take" => take::results(context, &action.body).await,
        other => {
            let message = format!("unknown action \"{other}\": this version has {}", NAMES.join(", "));
            Err(status::refusal(Reason::Unimplemented, &message))
        }
    }
}
