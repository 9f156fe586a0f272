//! Plans as JSON files, fitted or not.

use std::fmt::Write as _;

use arrow::datatypes::{FieldRef, Schema};
use forebay_proto::{
    DecodeError, decode, plan_to_bytes,
    v1::{DType, FitResult, Output, Part, Plan},
};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{Error, Result};

/// Version of a fit's result that this client reads and writes.
pub const FIT_VERSION: u32 = 1;

/// Reads JSON of a plan or of a fit's result, `{"version": 1, "plan_id": …, "plan": …}`, as printed by `forebay fit
/// --json` and `forebay show --json`. Rejects a result of an unknown version, or whose plan does not match its id.
pub fn plan_from_json(text: &[u8]) -> Result<Plan> {
    let not_json = |reason: String| Error::Plan(DecodeError::Json { message: "Plan", path: String::new(), reason });
    let value: Value = serde_json::from_slice(text).map_err(|source| not_json(source.to_string()))?;
    let Value::Object(fields) = value else {
        return Err(not_json("a plan is a JSON object".to_owned()));
    };
    if !fields.contains_key("plan") {
        return decode::<Plan>(text).map(|(plan, _)| plan).map_err(Error::Plan);
    }
    // Checked before the fields, which another version may change.
    match fields.get("version").map_or(Some(FIT_VERSION.into()), Value::as_u64) {
        Some(version) if version == u64::from(FIT_VERSION) => {}
        _ => {
            let version = fields.get("version").map(Value::to_string).unwrap_or_default();
            return Err(Error::FitResult(format!(
                "it has version {version}, and this program reads version {FIT_VERSION}: use the release of forebay that \
                 wrote it, or fit the plan again"
            )));
        }
    }
    let (result, _) = decode::<FitResult>(text).map_err(Error::Plan)?;
    let plan = result.plan.ok_or_else(|| not_json("its field \"plan\" is null".to_owned()))?;
    let found = plan_id(&plan);
    if !result.plan_id.is_empty() && result.plan_id != found {
        return Err(Error::FitResult(format!(
            "its plan_id is {}, but the id of its plan is {found}: it was edited; fit again, or save the value of \
             \"plan\" as a file",
            result.plan_id
        )));
    }
    Ok(plan)
}

/// Returns the plan of every column of a dataset as stored, without a filter.
pub fn plan_as_stored(schema: &Schema) -> Plan {
    let output = |field: &FieldRef| {
        let part = Part { columns: vec![field.name().clone()], ..Part::default() };
        Output {
            name: field.name().clone(),
            dtype: Some(DType::AsStored.into()),
            parts: vec![part],
            ..Output::default()
        }
    };
    Plan { outputs: schema.fields().iter().map(output).collect(), ..Plan::default() }
}

/// Returns the id of a fitted plan: the first 32 hexadecimal digits of the SHA-256 of a line that names the format and
/// the plan's canonical bytes.
fn plan_id(plan: &Plan) -> String {
    let digest = Sha256::new().chain_update(b"forebay plan 1\n").chain_update(plan_to_bytes(plan)).finalize();
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
    fn reads_a_bare_plan_and_a_fit_result() {
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
    fn rejects_edited_results_and_unknown_versions() {
        let plan = r#"{"outputs": [{"name": "x", "parts": [{"columns": ["a"], "ops": [{"standardize": {"mean": 1, "std": 2}}]}]}]}"#;
        let id = plan_id(&plan_from_json(plan.as_bytes()).unwrap());
        let result = format!(r#"{{"version": 1, "plan_id": "{id}", "plan": {plan}}}"#);
        assert!(plan_from_json(result.as_bytes()).is_ok());
        let cases = [
            (result.replace("\"mean\": 1", "\"mean\": 1.5"), "fit again"),
            (result.replace("\"version\": 1", "\"version\": 2"), "has version 2"),
            (result.replace("\"version\": 1", "\"version\": 0"), "has version 0"),
            (result.replace("\"version\": 1", "\"version\": 2, \"more\": 3"), "has version 2"),
            (result.replace("\"version\": 1", "\"version\": \"x\""), "has version \"x\""),
        ];
        for (text, expected) in cases {
            let Err(Error::FitResult(reason)) = plan_from_json(text.as_bytes()) else { panic!("{text}") };
            assert!(reason.contains(expected), "{text}: {reason}");
        }
    }

    #[test]
    fn rejects_other_text_with_the_reason() {
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
