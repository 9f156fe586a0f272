//! `udf` ops of a canonical plan: the first op of a chain, whose result is a column that the other ops read.
//!
//! In a program there is no such op: its chain begins at the column of its result.

use std::collections::BTreeMap;

use forebay_proto::v1::{self, op::Op as OpMessage};

use super::{error::PlanError, path::chain_path};

/// The most columns of arguments.
const ARGUMENTS_MAX: usize = 64;

/// A Python function of columns.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UdfCall {
    /// The function's name on the server.
    pub name: String,
    /// Its digest; empty: not pinned yet.
    pub digest: String,
    /// The columns that are its arguments.
    pub arguments: Vec<String>,
}

// === impl UdfCall ===

impl UdfCall {
    /// The name of the column of its result, such as `words(text)`.
    pub fn column(&self) -> String {
        format!("{}({})", self.name, self.arguments.join(", "))
    }

    /// The call that the chain of a canonical part begins with.
    pub(super) fn starting(part: &v1::Part) -> Option<Self> {
        udf_of(part).map(|message| Self::of(message, part))
    }

    fn of(message: &v1::Udf, part: &v1::Part) -> Self {
        let arguments = part.columns.iter().chain(&message.columns).cloned().collect();
        Self { name: message.name.clone(), digest: message.digest.clone(), arguments }
    }
}

/// The function calls of a canonical plan, each once, with the path of the first op that has it.
pub fn udf_calls(plan: &v1::Plan) -> Result<BTreeMap<UdfCall, String>, PlanError> {
    let mut calls = BTreeMap::new();
    for (output_index, output) in plan.outputs.iter().enumerate() {
        for (part_index, part) in output.parts.iter().enumerate() {
            let chain = chain_path(output_index, part_index);
            for (number, op) in part.ops.iter().enumerate() {
                let Some(OpMessage::Udf(message)) = &op.op else { continue };
                let path = format!("{chain}.ops[{number}].udf");
                check(message, number, &path)?;
                calls.entry(UdfCall::of(message, part)).or_insert(path);
            }
        }
    }
    Ok(calls)
}

/// Pins the functions without a digest to these digests.
pub fn pin_udfs<'a>(plan: &mut v1::Plan, digest_of: impl Fn(&str) -> Option<&'a str>) {
    let ops = plan.outputs.iter_mut().flat_map(|output| &mut output.parts).flat_map(|part| &mut part.ops);
    for op in ops {
        if let Some(OpMessage::Udf(message)) = &mut op.op
            && message.digest.is_empty()
            && let Some(digest) = digest_of(&message.name)
        {
            digest.clone_into(&mut message.digest);
        }
    }
}

fn udf_of(part: &v1::Part) -> Option<&v1::Udf> {
    match part.ops.first().and_then(|op| op.op.as_ref()) {
        Some(OpMessage::Udf(message)) => Some(message),
        _ => None,
    }
}

fn check(message: &v1::Udf, number: usize, path: &str) -> Result<(), PlanError> {
    if number > 0 {
        let reason = "must be the first op of its part: a function reads columns, stored, joined or derived ones";
        return Err(PlanError::field(path, reason));
    }
    if message.name.is_empty() {
        return Err(PlanError::field(format!("{path}.name"), "missing: the name of a function on the server"));
    }
    if message.columns.len() >= ARGUMENTS_MAX {
        let reason = format!("{} columns, the limit is {}", message.columns.len(), ARGUMENTS_MAX - 1);
        return Err(PlanError::field(format!("{path}.columns"), reason));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{canonical, plan_id};

    fn plan(json: &str) -> v1::Plan {
        canonical(&forebay_proto::decode(json.as_bytes()).unwrap().0)
    }

    fn calling(ops: &str) -> v1::Plan {
        plan(&format!(r#"{{"outputs": [{{"name": "o", "parts": [{{"columns": ["a", "b"], "ops": {ops}}}]}}]}}"#))
    }

    #[test]
    fn calls_have_the_column_of_their_part_and_the_further_ones() {
        let calls = udf_calls(&calling(r#"[{"udf": {"name": "f", "columns": ["c"]}}, {"log1p": {}}]"#)).unwrap();
        let named: Vec<(String, &str)> = calls.iter().map(|(call, path)| (call.column(), path.as_str())).collect();
        let path = |part: usize| format!("plan.outputs[0].parts[{part}].ops[0].udf");
        assert_eq!(named, [("f(a, c)".to_owned(), path(0).as_str()), ("f(b, c)".to_owned(), path(1).as_str())]);
    }

    #[test]
    fn a_digest_is_part_of_the_id_and_pinned_once() {
        let mut found = calling(r#"[{"udf": {"name": "f"}}]"#);
        let open = plan_id(&found);
        pin_udfs(&mut found, |name| (name == "f").then_some("first"));
        let pinned = plan_id(&found);
        assert_ne!(open, pinned);
        pin_udfs(&mut found, |_| Some("second"));
        assert_eq!(plan_id(&found), pinned);
    }

    #[test]
    fn invalid_calls_are_rejected_with_the_field() {
        let columns = vec!["c"; ARGUMENTS_MAX].join("\", \"");
        for (ops, words) in [
            (r#"[{"log1p": {}}, {"udf": {"name": "f"}}]"#.to_owned(), "ops[1].udf: must be the first op"),
            (r#"[{"udf": {}}]"#.to_owned(), "udf.name: missing"),
            (format!(r#"[{{"udf": {{"name": "f", "columns": ["{columns}"]}}}}]"#), "udf.columns: 64 columns"),
        ] {
            let error = udf_calls(&calling(&ops)).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
