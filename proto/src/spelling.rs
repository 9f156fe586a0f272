//! Lower-case spellings of enum values in JSON, which plans of images may have as their authors write them:
//! `"crop": "center"`.
//!
//! Only the values of these fields are changed, byte by byte, so that places in errors stay.

use std::borrow::Cow;

/// Fields of `DecodeImage`, and their values in lower case.
const VALUES: [(&str, &[&str]); 4] = [
    ("resize", &["bilinear", "nearest", "bicubic", "lanczos", "box", "hamming"]),
    ("crop", &["none", "center", "random"]),
    ("on_error", &["fail", "null", "skip"]),
    ("onError", &["fail", "null", "skip"]),
];

/// The names of the op.
const OPS: [&[u8]; 2] = [b"\"decode_image\"", b"\"decodeImage\""];

/// The text with these values in upper case.
pub(crate) fn upper_case(text: Cow<[u8]>) -> Cow<[u8]> {
    if !OPS.iter().any(|op| text.windows(op.len()).any(|found| found == *op)) {
        return text;
    }
    let (mut text, mut at) = (text.into_owned(), 0);
    while let Some((start, end)) = next_string(&text, at) {
        at = end + 1;
        let Some((_, values)) = VALUES.iter().find(|(field, _)| field.as_bytes() == &text[start..end]) else {
            continue;
        };
        let Some((start, end)) = value_after(&text, at) else { continue };
        if values.iter().any(|value| value.as_bytes() == &text[start..end]) {
            text[start..end].make_ascii_uppercase();
            at = end + 1;
        }
    }
    Cow::Owned(text)
}

/// The place of the next string's content, from a place outside of strings.
fn next_string(text: &[u8], at: usize) -> Option<(usize, usize)> {
    let start = at + text.get(at..)?.iter().position(|byte| *byte == b'"')? + 1;
    let mut end = start;
    loop {
        match text.get(end)? {
            b'"' => return Some((start, end)),
            b'\\' => end += 2,
            _ => end += 1,
        }
    }
}

/// The content of the string that follows a colon.
fn value_after(text: &[u8], at: usize) -> Option<(usize, usize)> {
    let skip = |at: usize| Some(at + text.get(at..)?.iter().position(|byte| !byte.is_ascii_whitespace())?);
    let colon = skip(at)?;
    let quote = skip(colon + 1)?;
    (text[colon] == b':' && text[quote] == b'"').then(|| next_string(text, quote)).flatten()
}

#[cfg(test)]
mod tests {
    use crate::v1::{Plan, decode_image::Crop, op::Op as OpMessage};

    fn plan(op: &str) -> String {
        format!(r#"{{"outputs": [{{"name": "crop", "parts": [{{"columns": ["crop"], "ops": [{op}]}}]}}]}}"#)
    }

    #[test]
    fn both_spellings_are_the_same_plan() {
        let decode = |op: &str| crate::decode::<Plan>(plan(op).as_bytes()).unwrap().0;
        let upper = decode(r#"{"decode_image": {"resize": "BOX", "crop": "CENTER", "on_error": "NULL"}}"#);
        for lower in [
            r#"{"decode_image": {"resize": "box", "crop" : "center", "on_error":"null"}}"#,
            r#"{"decodeImage": {"resize": "BOX", "crop": "center", "onError": "null"}}"#,
        ] {
            assert_eq!(decode(lower), upper);
        }
        let op = upper.outputs[0].parts[0].ops[0].op.as_ref();
        assert!(matches!(op, Some(OpMessage::DecodeImage(op)) if op.crop() == Crop::Center));
        assert_eq!(upper.outputs[0].name, "crop");
        let error = crate::decode::<Plan>(plan(r#"{"decode_image": {"crop": "centre"}}"#).as_bytes()).unwrap_err();
        assert!(error.to_string().contains("expected one of NONE, CENTER, RANDOM"), "{error}");
    }

    #[test]
    fn other_strings_stay() {
        let text = plan(r#"{"decode_image": {}}, {"fill_null": {"text": "\"crop\": \"random\" \\"}}"#);
        assert_eq!(super::upper_case(text.as_bytes().into()), text.as_bytes());
    }
}
