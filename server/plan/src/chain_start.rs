//! Where the chains of a program begin: at a column, or at that of the result of `udf`, `tokenize` or `decode_image`, or of the last
//! op that reads earlier rows.

use forebay_kernels::CompileError;
use forebay_proto::v1;

use super::{decode_image::DecodeImageCall, history_ops::last_result, tokenize::TokenizeCall, udf::UdfCall};

/// The column that the chain of a canonical part reads in a program, and the number of its first op there.
pub(super) fn chain_start(part: &v1::Part, column: &str) -> (String, usize) {
    if let Some(start) = last_result(part, column) {
        return start;
    }
    if let Some(call) = UdfCall::starting(part) {
        return (call.column(), 1);
    }
    if let Some((call, ops)) = DecodeImageCall::starting(part) {
        return (call.result(), ops);
    }
    match TokenizeCall::starting(part) {
        Some((call, ops)) => (call.column(), ops),
        None => (column.to_owned(), 0),
    }
}

/// Numbers the op of an error of a program as in the plan.
pub(super) fn renumbered(mut error: CompileError, plan: &v1::Plan) -> CompileError {
    if let CompileError::Chain { output, chain, error: inner } = &mut error
        && let Some(part) = plan.outputs.get(*output).and_then(|output| output.parts.get(*chain))
    {
        let (_, first) = chain_start(part, "");
        (0..first).for_each(|_| skip_op(inner));
    }
    error
}

/// Numbers the op of an error of a chain that begins after an op.
pub(super) fn skip_op(error: &mut CompileError) {
    if let CompileError::Op { number, .. } = error {
        *number += 1;
    }
}
