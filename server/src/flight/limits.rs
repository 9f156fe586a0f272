//! What a request may be at most: each limit has a flag, and an error that names it.

use forebay_proto::v1;
use tonic::Status;

use crate::{expr, plan::RequestLimits};

/// Checks the length of a message before it is read.
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
    // What no server takes is refused where expressions are read.
    if limits.expression_operators_max < expr::OPERATORS_MAX {
        let derived = plan.derive.iter().map(|derive| ("plan.derive", derive.expr.as_str()));
        for (path, text) in derived.chain([("plan.filter", plan.filter.as_str())]) {
            let operators = expr::operator_count(text);
            within(path, operators, "operators", limits.expression_operators_max, "--expression-operators-max")?;
        }
    }
    Ok(())
}

fn within(path: &str, count: usize, what: &str, limit: usize, flag: &str) -> Result<(), Status> {
    if count <= limit {
        return Ok(());
    }
    Err(Status::resource_exhausted(format!("{path}: {count} {what}, the limit is {limit} ({flag})")))
}
