//! `tokenize` ops of a canonical plan: the first op of a chain, or the second after `fill_null` with a text. The result is a
//! column that the other ops read.
//!
//! In a program there is no such op: its chain begins at the column of its result.

use forebay_media::{Tokenization, Truncation};
use forebay_proto::v1::{self, fill_null::Fill, op::Op as OpMessage};
use forebay_runtime::state::short_digest;

use super::{error::PlanError, ops::check_parameters, path::chain_path};

/// Characters of a fill in the name of a column.
const FILL_CHARACTERS_MAX: usize = 20;

/// The tokens of a column.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenizeCall {
    /// The column of text.
    pub column: String,
    /// The text in place of null.
    pub fill: Option<String>,
    /// The op.
    pub op: v1::Tokenize,
}

// === impl TokenizeCall ===

impl TokenizeCall {
    /// The call that the chain of a canonical part begins with, and the number of its ops.
    pub(super) fn starting(part: &v1::Part) -> Option<(Self, usize)> {
        let column = part.columns.first()?.clone();
        let op = |number: usize| part.ops.get(number).and_then(|op| op.op.as_ref());
        match (op(0), op(1)) {
            (Some(OpMessage::Tokenize(op)), _) => Some((Self { column, fill: None, op: op.clone() }, 1)),
            (
                Some(OpMessage::FillNull(v1::FillNull { fill: Some(Fill::Text(text)) })),
                Some(OpMessage::Tokenize(op)),
            ) => Some((Self { column, fill: Some(text.clone()), op: op.clone() }, 2)),
            _ => None,
        }
    }

    /// The name of the column of the tokens, such as `tokenize(text, gpt2, max_length=128)`. Calls of other results have
    /// other names.
    pub fn column(&self) -> String {
        let inline = || short_digest(&[self.op.json.as_bytes()]);
        let tokenizer = if self.op.json.is_empty() { self.op.tokenizer.clone() } else { inline() };
        let mut parts = vec![self.column.clone(), tokenizer];
        if self.op.max_length > 0 {
            parts.push(format!("max_length={}", self.op.max_length));
        }
        if self.op.truncation != 0 {
            parts.push(format!("truncation={}", self.op.truncation().as_str_name()));
        }
        if self.op.add_special_tokens == Some(false) {
            parts.push("add_special_tokens=false".to_owned());
        }
        if let Some(fill) = &self.fill {
            let shown: String = fill.chars().take(FILL_CHARACTERS_MAX).collect();
            let rest = if shown == *fill { String::new() } else { format!("… {}", short_digest(&[fill.as_bytes()])) };
            parts.push(format!("fill_null={shown:?}{rest}"));
        }
        format!("tokenize({})", parts.join(", "))
    }

    /// How the texts become tokens.
    pub fn tokenization(&self) -> Tokenization {
        Tokenization {
            max_length: (self.op.max_length > 0).then_some(self.op.max_length),
            truncation: match self.op.truncation() {
                v1::Truncation::Right => Truncation::Right,
                v1::Truncation::Left => Truncation::Left,
                v1::Truncation::Error => Truncation::Error,
            },
            add_special_tokens: self.op.add_special_tokens.unwrap_or(true),
        }
    }
}

/// The `tokenize` ops of a canonical plan, those of one column once, with the path of the first op that has it.
pub fn tokenize_calls(plan: &v1::Plan) -> Result<Vec<(TokenizeCall, String)>, PlanError> {
    let mut calls: Vec<(TokenizeCall, String)> = Vec::new();
    for (output_index, output) in plan.outputs.iter().enumerate() {
        for (part_index, part) in output.parts.iter().enumerate() {
            let (chain, start) = (chain_path(output_index, part_index), TokenizeCall::starting(part));
            let first = start.as_ref().map(|(_, ops)| ops - 1);
            for (number, op) in part.ops.iter().enumerate() {
                let Some(op @ OpMessage::Tokenize(message)) = &op.op else { continue };
                let path = format!("{chain}.ops[{number}].tokenize");
                check_parameters(op, &path)?;
                check(message, first == Some(number), &path)?;
                if let Some((call, _)) = &start
                    && !calls.iter().any(|(known, _)| known == call)
                {
                    calls.push((call.clone(), path));
                }
            }
        }
    }
    Ok(calls)
}

/// Pins the named tokenizers without a digest to these digests.
pub fn pin_tokenizers<'a>(plan: &mut v1::Plan, digest_of: impl Fn(&str) -> Option<&'a str>) {
    let ops = plan.outputs.iter_mut().flat_map(|output| &mut output.parts).flat_map(|part| &mut part.ops);
    for op in ops {
        if let Some(OpMessage::Tokenize(message)) = &mut op.op
            && message.json.is_empty()
            && message.digest.is_empty()
            && let Some(digest) = digest_of(&message.tokenizer)
        {
            digest.clone_into(&mut message.digest);
        }
    }
}

fn check(message: &v1::Tokenize, is_start: bool, path: &str) -> Result<(), PlanError> {
    let wrong = |field: &str, reason: &str| Err(PlanError::field(format!("{path}{field}"), reason));
    if !is_start {
        let reason = "must be the first op of its part, or the second after fill_null with a text: a tokenizer reads \
                      columns, stored, joined or derived ones";
        return wrong("", reason);
    }
    if message.tokenizer.is_empty() == message.json.is_empty() {
        return wrong(
            "",
            "set one of tokenizer, the name of one on the server, and json, the content of a tokenizer.json",
        );
    }
    if !message.json.is_empty() && !message.digest.is_empty() {
        return wrong(".digest", "belongs to a named tokenizer; json is identified by its content");
    }
    if message.max_length == 0 && message.truncation != 0 {
        return wrong(".max_length", "missing: truncation applies to texts of more than max_length tokens");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{canonical, plan_id};

    fn plan(ops: &str) -> v1::Plan {
        let json = format!(r#"{{"outputs": [{{"name": "o", "parts": [{{"columns": ["a", "b"], "ops": {ops}}}]}}]}}"#);
        canonical(&forebay_proto::decode(json.as_bytes()).unwrap().0)
    }

    #[test]
    fn calls_of_other_results_have_other_columns() {
        let mut names = std::collections::BTreeSet::new();
        let mut ops =
            vec![r#"[{"tokenize": {"json": "{}"}}]"#.to_owned(), r#"[{"tokenize": {"json": "[]"}}]"#.to_owned()];
        for more in [
            "",
            r#", "max_length": 2"#,
            r#", "max_length": 2, "truncation": "LEFT""#,
            r#", "add_special_tokens": false"#,
        ] {
            ops.push(format!(r#"[{{"tokenize": {{"tokenizer": "t"{more}}}}}, {{"pad": {{"n": 2}}}}]"#));
        }
        for text in ["", "x", &"long ".repeat(9), &"long ".repeat(8)] {
            ops.push(format!(r#"[{{"fill_null": {{"text": "{text}"}}}}, {{"tokenize": {{"tokenizer": "t"}}}}]"#));
        }
        for ops in &ops {
            let calls = tokenize_calls(&plan(ops)).unwrap();
            assert_eq!(calls.len(), 2, "{ops}");
            for (call, path) in calls {
                assert!(path.ends_with(".tokenize"));
                assert!(names.insert(call.column()), "{}", call.column());
            }
        }
        assert!(names.contains("tokenize(a, t, max_length=2, truncation=LEFT)"), "{names:?}");
        let both = r#"[{"tokenize": {"tokenizer": "t", "add_special_tokens": true}}]"#;
        assert_eq!(plan(both), plan(r#"[{"tokenize": {"tokenizer": "t"}}]"#));
    }

    #[test]
    fn a_digest_is_part_of_the_id_and_pinned_once() {
        let mut found = plan(r#"[{"tokenize": {"tokenizer": "t"}}]"#);
        let open = plan_id(&found);
        pin_tokenizers(&mut found, |name| (name == "t").then_some("first"));
        let pinned = plan_id(&found);
        assert_ne!(open, pinned);
        pin_tokenizers(&mut found, |_| Some("second"));
        assert_eq!(plan_id(&found), pinned);
    }

    #[test]
    fn invalid_ops_are_rejected_with_the_field() {
        for (ops, words) in [
            (r#"[{"log1p": {}}, {"tokenize": {"tokenizer": "t"}}]"#, "ops[1].tokenize: must be the first op"),
            (
                r#"[{"fill_null": {"value": 1}}, {"tokenize": {"tokenizer": "t"}}]"#,
                "ops[1].tokenize: must be the first",
            ),
            (r#"[{"tokenize": {"tokenizer": "t"}}, {"tokenize": {"tokenizer": "t"}}]"#, "ops[1].tokenize: must be the"),
            (r#"[{"tokenize": {}}]"#, "tokenize: set one of tokenizer"),
            (r#"[{"tokenize": {"tokenizer": "t", "json": "{}"}}]"#, "tokenize: set one of tokenizer"),
            (r#"[{"tokenize": {"json": "{}", "digest": "1"}}]"#, "digest: belongs to a named"),
            (r#"[{"tokenize": {"tokenizer": "t", "truncation": "LEFT"}}]"#, "max_length: missing"),
            (r#"[{"tokenize": {"tokenizer": "t", "max_length": 1, "truncation": 7}}]"#, "truncation: expected one of"),
        ] {
            let error = tokenize_calls(&plan(ops)).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
