//! A plan as people keep it: a JSON file, fitted or not.

use forebay_proto::v1::{FitResult, Plan};
use forebay_proto::{DecodeError, decode};
use serde_json::Value;

use crate::{Error, Result};

/// Reads a plan from JSON: a plan itself, or the result of a fit, `{"plan_id": …, "plan": …}`, as `forebay fit --json`
/// prints it. The id in a file is not trusted: the server computes it from the plan.
pub fn plan_from_json(text: &[u8]) -> Result<Plan> {
    let not_json = |reason: String| Error::Plan(DecodeError::Json { message: "Plan", reason });
    let value: Value = serde_json::from_slice(text).map_err(|source| not_json(source.to_string()))?;
    let Value::Object(fields) = value else {
        return Err(not_json("a plan is a JSON object".to_owned()));
    };
    if !fields.contains_key("plan") {
        return decode::<Plan>(text).map(|(plan, _)| plan).map_err(Error::Plan);
    }
    let (result, _) = decode::<FitResult>(text).map_err(Error::Plan)?;
    result.plan.ok_or_else(|| not_json("its field \"plan\" is null".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_plan_and_a_fit_result_are_the_same_plan() {
        let plan = r#"{"filter": "a > 0", "outputs": [{"name": "x", "parts": [{"columns": ["a"]}]}]}"#;
        let bare = plan_from_json(plan.as_bytes()).unwrap();
        let fitted = plan_from_json(format!(r#"{{"plan_id": "abc", "plan": {plan}}}"#).as_bytes()).unwrap();
        assert_eq!(bare, fitted);
        assert_eq!(bare.filter, "a > 0");
    }

    #[test]
    fn anything_else_is_an_error_that_says_why() {
        let cases = [
            ("", "EOF"),
            ("[]", "JSON object"),
            ("{\"outputs\": 3}", "expected a list"),
            ("{\"fliter\": \"a\"}", "fliter"),
            ("{\"plan\": null}", "null"),
        ];
        for (text, expected) in cases {
            let Err(Error::Plan(source)) = plan_from_json(text.as_bytes()) else { panic!("{text}") };
            assert!(source.to_string().contains(expected), "{text}: {source}");
        }
    }
}
