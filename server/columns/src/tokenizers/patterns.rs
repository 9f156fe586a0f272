//! Bounds the regular expressions of a `tokenizer.json` that a client sends: the engine compiles an alternation in time that
//! is quadratic in its length.

use forebay_media::TokenizerError;
use serde::Deserialize;
use serde_json::Value;

/// The most bytes of a regular expression. Those of tokenizers in use have some hundreds.
const PATTERN_BYTES_MAX: usize = 16 << 10;

/// The parts of a file that hold patterns, without its vocabulary.
#[derive(Deserialize)]
struct PatternParts {
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    post_processor: Value,
    #[serde(default)]
    decoder: Value,
}

/// Checks the patterns of a file before it is parsed. A text that is not such a file passes: its parser says what is wrong.
pub fn check_patterns(json: &[u8]) -> Result<(), TokenizerError> {
    let Ok(parts) = serde_json::from_slice::<PatternParts>(json) else { return Ok(()) };
    let PatternParts { normalizer, pre_tokenizer, post_processor, decoder } = &parts;
    let longest = [normalizer, pre_tokenizer, post_processor, decoder].map(longest_text).into_iter().max();
    match longest {
        Some(bytes) if bytes > PATTERN_BYTES_MAX => {
            Err(TokenizerError::Damaged(format!("a pattern has {bytes} bytes, the limit is {PATTERN_BYTES_MAX}")))
        }
        _ => Ok(()),
    }
}

/// The bytes of the longest string under "Regex". JSON is parsed to a depth of 128.
fn longest_text(part: &Value) -> usize {
    match part {
        Value::Object(fields) => {
            let of_field = |(name, value): (&String, &Value)| match value {
                Value::String(text) if name == "Regex" => text.len(),
                other => longest_text(other),
            };
            fields.iter().map(of_field).max().unwrap_or(0)
        }
        Value::Array(items) => items.iter().map(longest_text).max().unwrap_or(0),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(pattern: &str) -> String {
        format!(
            r#"{{"model": {{"vocab": {{"Regex": 1}}}}, "pre_tokenizer": {{"type": "Sequence", "pretokenizers": [
                {{"type": "Split", "pattern": {{"Regex": "{pattern}"}}}}]}}}}"#
        )
    }

    #[test]
    fn long_patterns_are_refused_wherever_they_are() {
        assert!(check_patterns(file(&"a|".repeat(8 << 10)).as_bytes()).is_ok());
        let error = check_patterns(file(&"a|".repeat((8 << 10) + 1)).as_bytes()).unwrap_err().to_string();
        assert!(error.contains("a pattern has 16386 bytes, the limit is 16384"), "{error}");
        for other in ["", "[]", "{\"normalizer\": null}", "{\"normalizer\": \"x\"}"] {
            assert!(check_patterns(other.as_bytes()).is_ok());
        }
    }
}
