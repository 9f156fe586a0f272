//! Limits of requests: each has a flag, which its error names.

use std::time::Duration;

use forebay_plan::RequestLimits;
use forebay_proto::v1::{self, Reason};
use tonic::Status;

use super::status;

/// The flag of [`RequestLimits::plan_operators_max`].
const PLAN_OPERATORS_FLAG: &str = "--plan-operators-max";

/// The lowest average rate at which a long message must arrive, and an answer must be read, in bytes per second.
pub(super) const RATE_MIN: f64 = (1 << 20) as f64;

/// Limits of gRPC messages.
#[derive(Clone, Copy, Debug)]
pub struct MessageLimits {
    /// Bytes of a received message.
    pub bytes_max: usize,
    /// Time within which a whole request must arrive, and the longest pause of a client that reads an answer.
    pub arrival: Duration,
    /// The same for the messages of a call that answers with several.
    pub idle: Duration,
}

impl Default for MessageLimits {
    /// The largest limits of any server.
    fn default() -> Self {
        Self {
            bytes_max: 2 * forebay_proto::JSON_BYTES_MAX,
            arrival: Duration::from_secs(10),
            idle: Duration::from_hours(6),
        }
    }
}

/// Checks the length of a request before it is decoded.
pub(super) fn check_bytes(limits: &RequestLimits, bytes: usize) -> Result<(), Status> {
    within("the request", bytes, "bytes", limits.plan_bytes_max, "--plan-bytes-max")
}

/// Checks the counts of a plan.
pub(super) fn check_plan(limits: &RequestLimits, plan: &v1::Plan) -> Result<(), Status> {
    let parts = || plan.outputs.iter().flat_map(|output| &output.parts);
    let columns = parts().map(|part| part.columns.len()).sum();
    within("plan.outputs", columns, "columns", limits.plan_columns_max, "--plan-columns-max")?;
    let ops = parts().map(|part| part.ops.len()).max().unwrap_or(0);
    within("plan.outputs", ops, "ops of a part", limits.plan_ops_max, "--plan-ops-max")?;
    Ok(())
}

/// The expressions of plans, and of the weights of rows, each with its place.
pub(super) fn expressions<'a>(plans: impl Iterator<Item = &'a v1::Plan>, weight: &str) -> Vec<(&'static str, String)> {
    let of_plan = |plan: &'a v1::Plan| {
        let derived = plan.derive.iter().map(|derive| ("plan.derive", &derive.expr));
        derived.chain([("plan.filter", &plan.filter)]).filter(|(_, text)| !text.is_empty())
    };
    let weight = Some(weight).filter(|text| !text.is_empty()).map(|text| ("sample_weight", text.to_owned()));
    plans.flat_map(of_plan).map(|(path, text)| (path, text.clone())).chain(weight).collect()
}

/// Checks the operators of the expressions of a request. Each expression counts as one more: an empty one has a cost too.
pub(super) fn check_expressions(limits: &RequestLimits, expressions: &[(&'static str, String)]) -> Result<(), Status> {
    let mut all = expressions.len();
    within("the expressions", all, "expressions", limits.plan_operators_max, PLAN_OPERATORS_FLAG)?;
    for (path, text) in expressions {
        let operators = forebay_expr::operator_count(text);
        // The parser of expressions enforces the limit of all servers.
        if limits.expression_operators_max < forebay_expr::OPERATORS_MAX {
            within(path, operators, "operators", limits.expression_operators_max, "--expression-operators-max")?;
        }
        // The parser refuses a longer one.
        all += operators.min(forebay_expr::OPERATORS_MAX);
        within("the expressions", all, "operators or more", limits.plan_operators_max, PLAN_OPERATORS_FLAG)?;
    }
    Ok(())
}

fn within(path: &str, count: usize, unit: &str, limit: usize, flag: &str) -> Result<(), Status> {
    if count <= limit {
        return Ok(());
    }
    Err(status::refusal(Reason::Limit, &format!("{path}: {count} {unit}, the limit is {limit} ({flag})")))
}
