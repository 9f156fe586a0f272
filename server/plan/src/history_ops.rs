//! Which ops read earlier rows, and the columns of their results.

use forebay_kernels::{HistoryOp, RollingStat};
use forebay_proto::{
    ops,
    v1::{self, op::Op as OpMessage, rolling::Statistic},
};
use forebay_runtime::state::short_digest;
use prost::Message as _;

use super::path::chain_path;

/// The path of the first op of a plan that reads earlier rows.
pub fn history_path(plan: &v1::Plan) -> Option<String> {
    plan.outputs.iter().enumerate().find_map(|(output_index, output)| {
        output.parts.iter().enumerate().find_map(|(part_index, part)| {
            let mut ops = part.ops.iter().enumerate().filter_map(|(number, op)| Some((number, op.op.as_ref()?)));
            let (number, op) = ops.find(|(_, op)| history_op(op).is_some())?;
            Some(format!("{}.ops[{number}].{}", chain_path(output_index, part_index), ops::name(op)))
        })
    })
}

/// The column of the last result of a part's chain on a column, and the number of ops up to it; none without such an op.
pub(super) fn last_result(part: &v1::Part, column: &str) -> Option<(String, usize)> {
    let mut found: Option<(String, usize)> = None;
    for (number, op) in part.ops.iter().enumerate() {
        if op.op.as_ref().is_some_and(|op| history_op(op).is_some()) {
            let (column, first) = found.as_ref().map_or((column, 0), |(column, first)| (column, *first));
            found = Some((name_of(column, &part.ops[first..=number]), number + 1));
        }
    }
    found
}

pub(super) fn history_op(op: &OpMessage) -> Option<HistoryOp> {
    Some(match op {
        OpMessage::Lag(message) => HistoryOp::Lag { n: message.n },
        OpMessage::Diff(message) => HistoryOp::Diff { n: message.n },
        OpMessage::Rolling(message) => {
            let stat = match message.stat() {
                Statistic::Mean => RollingStat::Mean,
                Statistic::Std => RollingStat::Std,
                Statistic::Min => RollingStat::Min,
                Statistic::Max => RollingStat::Max,
                Statistic::Sum => RollingStat::Sum,
                Statistic::Count => RollingStat::Count,
            };
            HistoryOp::Rolling { stat, length: message.length }
        }
        _ => return None,
    })
}

/// The column of the last op of these on a column. Other results have other names.
pub(super) fn name_of(column: &str, ops: &[v1::Op]) -> String {
    let Some((last, before)) = ops.split_last() else { return column.to_owned() };
    let values = before.iter().fold(column.to_owned(), |values, op| {
        let name = op.op.as_ref().map_or("", ops::name);
        let has_parameters = op.op.as_ref() != default_of(op).as_ref();
        let digest = if has_parameters { short_digest(&[&op.encode_to_vec()]) } else { String::new() };
        format!("{values}.{name}({digest})")
    });
    match &last.op {
        Some(OpMessage::Lag(v1::Lag { n })) => format!("lag({values}, {n})"),
        Some(OpMessage::Diff(v1::Diff { n })) => format!("diff({values}, {n})"),
        Some(OpMessage::Rolling(message)) => {
            format!("rolling({values}, {}, {})", message.stat().as_str_name(), message.length)
        }
        _ => values,
    }
}

/// An op without parameters; none: it has some.
fn default_of(op: &v1::Op) -> Option<OpMessage> {
    match op.op {
        Some(OpMessage::Log1p(_)) => Some(OpMessage::Log1p(v1::Log1p {})),
        Some(OpMessage::Sqrt(_)) => Some(OpMessage::Sqrt(v1::Sqrt {})),
        Some(OpMessage::Abs(_)) => Some(OpMessage::Abs(v1::Abs {})),
        _ => None,
    }
}
