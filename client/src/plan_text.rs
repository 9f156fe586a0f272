//! A plan as people keep it: a JSON file, fitted or not.

use std::fmt::Write as _;

use forebay_proto::v1::{FitResult, Plan};
use forebay_proto::{DecodeError, decode};
use prost::Message as _;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{Error, Result};

/// The version of a fit's result that this client reads and writes.
pub const FIT_VERSION: u32 = 1;

/// Reads a plan from JSON: a plan itself, or the result of a fit, `{"version": 1, "plan_id": …, "plan": …}`, as
/// `forebay fit --json` and `forebay show --json` print it. A result whose plan is not that of its id, or of a version that
/// is not known, is an error.
pub fn plan_from_json(text: &[u8]) -> Result<Plan> {
    let not_json = |reason: String| Error::Plan(DecodeError::Json { message: "Plan", reason });
    let value: Value = serde_json::from_slice(text).map_err(|source| not_json(source.to_string()))?;
    let Value::Object(fields) = value else {
        return Err(not_json("a plan is a JSON object".to_owned()));
    };
    if !fields.contains_key("plan") {
        return decode::<Plan>(text).map(|(plan, _)| plan).map_err(Error::Plan);
    }
    // Before its fields are looked at: another version may have others.
    match fields.get("version").map_or(Some(FIT_VERSION.into()), Value::as_u64) {
        Some(version) if version == u64::from(FIT_VERSION) => {}
        _ => {
            let version = fields.get("version").map(Value::to_string).unwrap_or_default();
            return Err(Error::FitResult(format!(
                "it is of version {version}, and this program reads version {FIT_VERSION}: use the release of forebay \
                 that wrote it, or fit the plan again"
            )));
        }
    }
    let (result, _) = decode::<FitResult>(text).map_err(Error::Plan)?;
    let plan = result.plan.ok_or_else(|| not_json("its field \"plan\" is null".to_owned()))?;
    let found = plan_id(&plan);
    if !result.plan_id.is_empty() && result.plan_id != found {
        return Err(Error::FitResult(format!(
            "its plan_id is {}, but its plan is that of {found}: somebody has edited it; fit again, or keep \
             what stands under \"plan\" as a file of its own",
            result.plan_id
        )));
    }
    Ok(plan)
}

/// The id of a fitted plan: SHA-256 of a line that names the form and of the plan's protobuf bytes, the first 32
/// hexadecimal digits.
fn plan_id(plan: &Plan) -> String {
    let digest = Sha256::new().chain_update(b"forebay plan 1\n").chain_update(plan.encode_to_vec()).finalize();
    digest[..16].iter().fold(String::with_capacity(32), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_plan_and_a_fit_result_are_the_same_plan() {
        let plan = r#"{"filter": "a > 0", "outputs": [{"name": "x", "parts": [{"columns": ["a"]}]}]}"#;
        let bare = plan_from_json(plan.as_bytes()).unwrap();
        let id = plan_id(&bare);
        for around in
            [format!(r#""version": 1, "plan_id": "{id}", "#), format!(r#""plan_id": "{id}", "#), String::new()]
        {
            let fitted = plan_from_json(format!(r#"{{{around}"plan": {plan}}}"#).as_bytes()).unwrap();
            assert_eq!(bare, fitted);
        }
        assert_eq!(bare.filter, "a > 0");
    }

    #[test]
    fn an_edited_or_a_foreign_result_is_refused_with_the_way_out() {
        let plan = r#"{"outputs": [{"name": "x", "parts": [{"columns": ["a"], "ops": [{"standardize": {"mean": 1, "std": 2}}]}]}]}"#;
        let id = plan_id(&plan_from_json(plan.as_bytes()).unwrap());
        let result = format!(r#"{{"version": 1, "plan_id": "{id}", "plan": {plan}}}"#);
        assert!(plan_from_json(result.as_bytes()).is_ok());
        let cases = [
            (result.replace("\"mean\": 1", "\"mean\": 1.5"), "fit again"),
            (result.replace("\"version\": 1", "\"version\": 2"), "of version 2"),
            (result.replace("\"version\": 1", "\"version\": 0"), "of version 0"),
            (result.replace("\"version\": 1", "\"version\": 2, \"more\": 3"), "of version 2"),
            (result.replace("\"version\": 1", "\"version\": \"x\""), "of version \"x\""),
        ];
        for (text, expected) in cases {
            let Err(Error::FitResult(reason)) = plan_from_json(text.as_bytes()) else { panic!("{text}") };
            assert!(reason.contains(expected), "{text}: {reason}");
        }
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
