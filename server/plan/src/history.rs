//! `lag`, `diff` and `rolling` of a canonical plan: their result is a column that the ops after them read.
//!
//! In a program there is no such op: its chain begins at the column of the last one's result.

use arrow::datatypes::Schema;
use forebay_kernels::{CompileError, HistoryOp, Op};
use forebay_proto::{
    ops,
    v1::{self, op::Op as OpMessage},
};

use super::{
    by::check_by,
    chain_start::skip_op,
    error::PlanError,
    history_ops::{history_op, name_of},
    lookup::Tables,
    ops::{check_parameters, kernel_op},
    path::chain_path,
};

/// An op that reads earlier rows, and what it takes.
#[derive(Clone, Debug, PartialEq)]
pub struct HistoryCall {
    /// The column that the ops before it read: stored, joined or derived, or that of an earlier call.
    pub column: String,
    /// The ops before it, after an earlier call.
    pub ops: Vec<Op>,
    /// The number of the first of them in the plan.
    pub first: usize,
    /// The op.
    pub op: HistoryOp,
    /// The column of the result, such as `lag(price, 1)`.
    pub name: String,
    /// The path of the op.
    pub path: String,
}

impl HistoryCall {
    /// The error of its ops on a column, with the path and numbers of the plan.
    pub fn of_chain(&self, mut error: CompileError, schema: &Schema) -> PlanError {
        (0..self.first).for_each(|_| skip_op(&mut error));
        PlanError::of_chain(self.path.split(".ops[").next().unwrap_or_default(), error, schema)
    }
}

/// The calls of a canonical plan, those of one result once, each after those that it reads.
pub fn history_calls(plan: &v1::Plan, tables: &Tables) -> Result<Vec<HistoryCall>, PlanError> {
    let mut calls: Vec<HistoryCall> = Vec::new();
    for (output_index, output) in plan.outputs.iter().enumerate() {
        for (part_index, part) in output.parts.iter().enumerate() {
            let chain = chain_path(output_index, part_index);
            let (mut column, mut first) = (part.columns.first().cloned().unwrap_or_default(), 0);
            for (number, message) in part.ops.iter().enumerate() {
                let Some(message) = &message.op else { continue };
                let Some(op) = history_op(message) else { continue };
                let path = format!("{chain}.ops[{number}].{}", ops::name(message));
                check_parameters(message, &path)?;
                if plan.history.is_none() {
                    let reason = "reads earlier rows of a series: set the plan's history to the columns that tell series apart (by) \
                                  and to the one that orders their rows (order)";
                    return Err(PlanError::field(path, reason));
                }
                let before = &part.ops[first..number];
                check_before(before, (&chain, first))?;
                let name = name_of(&column, &part.ops[first..=number]);
                let kernel_ops = before.iter().zip(first..).map(|(op, number)| kernel_op(op, &chain, number, tables));
                let ops = kernel_ops.collect::<Result<Vec<Op>, _>>()?;
                match calls.iter().find(|known| known.name == name) {
                    // Names of columns may look like those of results.
                    Some(known) if (&known.column, &known.ops, known.op) != (&column, &ops, op) => {
                        let reason = format!("its result is named \"{name}\", as another one is: rename the column");
                        return Err(PlanError::field(path, reason));
                    }
                    Some(_) => {}
                    None => calls.push(HistoryCall { column, ops, first, op, name: name.clone(), path }),
                }
                (column, first) = (name, number + 1);
            }
        }
    }
    Ok(calls)
}

/// Checks the history of a plan or a request.
pub fn check_history(history: &v1::History, path: &str) -> Result<(), PlanError> {
    if history.order.is_empty() {
        let reason = "missing: expected the column that orders the rows of a series, such as a time";
        return Err(PlanError::field(format!("{path}.order"), reason));
    }
    check_by(&history.by, Some(&history.order), path)
}

/// Checks the ops before one that reads earlier rows.
fn check_before(before: &[v1::Op], (chain, first): (&str, usize)) -> Result<(), PlanError> {
    for (op, number) in before.iter().zip(first..) {
        let Some(op) = &op.op else { continue };
        let reason = match op {
            OpMessage::Udf(_) | OpMessage::Tokenize(_) | OpMessage::DecodeImage(_) => {
                "lag, diff and rolling read stored, joined and derived columns, not the results of functions"
            }
            op if ops::learns(op) || is_learned(op) => {
                "learns from rows, and must follow lag, diff and rolling: put it after them"
            }
            _ => continue,
        };
        return Err(PlanError::field(format!("{chain}.ops[{number}].{}", ops::name(op)), reason));
    }
    Ok(())
}

/// Whether an op has learned, or would learn.
fn is_learned(op: &OpMessage) -> bool {
    matches!(
        op,
        OpMessage::Standardize(_)
            | OpMessage::MinMax(_)
            | OpMessage::MaxAbs(_)
            | OpMessage::Robust(_)
            | OpMessage::Vocab(_)
            | OpMessage::CountEncode(_)
            | OpMessage::TargetMean(_)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        canonical,
        history_ops::{history_path, last_result},
    };

    fn plan(ops: &str) -> v1::Plan {
        let part = format!(r#"{{"columns": ["a", "b"], "ops": {ops}}}"#);
        let text = format!(
            r#"{{"outputs": [{{"name": "o", "parts": [{part}]}}], "history": {{"by": ["k"], "order": "ts"}}}}"#
        );
        canonical(&forebay_proto::decode(text.as_bytes()).unwrap().0)
    }

    #[test]
    fn calls_follow_those_that_they_read_and_chains_begin_at_the_last() {
        let plan = plan(
            r#"[{"log1p": {}}, {"diff": {"n": 1}}, {"clip": {"min": 0}}, {"rolling": {"stat": "MAX", "length": 3}}, {"abs": {}}]"#,
        );
        let calls = history_calls(&plan, &Tables::default()).unwrap();
        let names: Vec<&str> = calls.iter().map(|call| call.name.as_str()).collect();
        assert_eq!(names.len(), 4);
        assert_eq!(names[0], "diff(a.log1p(), 1)");
        assert!(names[1].starts_with("rolling(diff(a.log1p(), 1).clip("), "{}", names[1]);
        assert!(names[1].ends_with("), MAX, 3)"), "{}", names[1]);
        assert_eq!((calls[1].column.as_str(), calls[1].first, calls[1].ops.len()), ("diff(a.log1p(), 1)", 2, 1));
        let part = &plan.outputs[0].parts[0];
        assert_eq!(last_result(part, "a"), Some((names[1].to_owned(), 4)));
        assert_eq!(history_path(&plan).unwrap(), "plan.outputs[0].parts[0].ops[1].diff");
    }

    #[test]
    fn calls_of_one_result_are_one() {
        let same = plan(r#"[{"lag": {"n": 2}}]"#);
        let twice = v1::Plan { outputs: [same.outputs.clone(), same.outputs.clone()].concat(), ..same };
        assert_eq!(history_calls(&twice, &Tables::default()).unwrap().len(), 2);
    }

    #[test]
    fn results_of_one_name_are_of_one_column() {
        let mut alike = plan(r#"[{"log1p": {}}, {"lag": {"n": 1}}]"#);
        let parts = &mut alike.outputs[0].parts;
        parts[1].columns = vec!["a.log1p()".to_owned()];
        parts[1].ops.remove(0);
        let error = history_calls(&alike, &Tables::default()).unwrap_err().to_string();
        assert!(error.contains("parts[1].ops[0].lag: its result is named \"lag(a.log1p(), 1)\""), "{error}");
    }

    #[test]
    fn invalid_calls_are_rejected_with_the_field() {
        for (ops, words) in [
            (
                r#"[{"standardize": {}}, {"lag": {"n": 1}}]"#,
                "ops[0].standardize: learns from rows, and must follow lag",
            ),
            (r#"[{"standardize": {"mean": 0, "std": 1}}, {"lag": {"n": 1}}]"#, "ops[0].standardize: learns"),
            (r#"[{"fill_null": {"stat": "MEAN"}}, {"lag": {"n": 1}}]"#, "ops[0].fill_null: learns"),
            (r#"[{"udf": {"name": "f"}}, {"lag": {"n": 1}}]"#, "ops[0].udf: lag, diff and rolling read"),
            (r#"[{"lag": {}}]"#, "ops[0].lag.n: "),
            (r#"[{"rolling": {"stat": "MEAN"}}]"#, "ops[0].rolling.length: "),
            (r#"[{"rolling": {"stat": 9, "length": 1}}]"#, "ops[0].rolling.stat: expected one of MEAN"),
        ] {
            let error = history_calls(&plan(ops), &Tables::default()).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        let without = v1::Plan { history: None, ..plan(r#"[{"lag": {"n": 1}}]"#) };
        let error = history_calls(&without, &Tables::default()).unwrap_err().to_string();
        assert!(error.contains("ops[0].lag: reads earlier rows of a series: set the plan's history"), "{error}");
        let history = |by: &[&str], order: &str| v1::History {
            by: by.iter().map(|name| (*name).to_owned()).collect(),
            order: order.to_owned(),
        };
        for (history, words) in [
            (history(&["k"], ""), "plan.history.order: missing"),
            (history(&["k", "k"], "ts"), "plan.history.by[1]: \"k\" is named twice"),
            (history(&["ts"], "ts"), "plan.history.by[0]"),
        ] {
            let error = check_history(&history, "plan.history").unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
