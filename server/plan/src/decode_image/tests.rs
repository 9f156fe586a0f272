use super::*;
use crate::{canonical, output_specs, plan_id};

fn plan(ops: &str) -> v1::Plan {
    let json = format!(r#"{{"outputs": [{{"name": "o", "parts": [{{"columns": ["a"], "ops": {ops}}}]}}]}}"#);
    canonical(&forebay_proto::decode(json.as_bytes()).unwrap().0)
}

fn op(more: &str) -> String {
    format!(r#"[{{"decode_image": {{"height": 4, "width": 6{more}}}}}]"#)
}

fn dtype(plan: &v1::Plan) -> v1::DType {
    plan.outputs[0].dtype()
}

#[test]
fn calls_of_other_results_have_other_columns() {
    let mut names = std::collections::BTreeSet::new();
    let ops = ["", r#", "channels": 1"#, r#", "crop": "center""#, r#", "crop": "random""#, r#", "flip": true"#];
    let ops = ops.into_iter().chain([r#", "seed": 3"#, r#", "encoded": true"#]).map(op);
    let filled = [1, 2].map(|fill| {
        format!(r#"[{{"decode_image": {{"height": 4, "width": 6}}}}, {{"fill_null": {{"value": {fill}}}}}]"#)
    });
    for ops in ops.chain(filled) {
        let calls = decode_image_calls(&plan(&ops)).unwrap();
        assert_eq!(calls.len(), 1, "{ops}");
        assert!(names.insert(calls[0].0.tensors()), "{ops}");
    }
    assert!(names.iter().all(|name| name.starts_with("decode_image(a, 4 × 6 × ")), "{names:?}");
}

#[test]
fn defaults_are_part_of_the_canonical_plan() {
    let explicit = op(r#", "channels": 3, "crop": "RANDOM", "scale_min": 0.08, "scale_max": 1, "resize": "BILINEAR""#);
    assert_eq!(plan(&op(r#", "crop": "random""#)), plan(&explicit));
    assert_ne!(plan_id(&plan(&op(""))), plan_id(&plan(&op(r#", "seed": 1"#))));
}

#[test]
fn the_dtype_is_that_of_the_values() {
    let followed = |next: &str| format!(r#"[{{"decode_image": {{"height": 4, "width": 6}}}}, {next}]"#);
    for (ops, expected) in [
        (op(""), v1::DType::Uint8),
        (op(r#", "normalize": {"mean": [0, 0, 0], "std": [1, 1, 1]}"#), v1::DType::Float32),
        (op(r#", "encoded": true"#), v1::DType::AsStored),
        (followed(r#"{"fill_null": {"value": 0}}"#), v1::DType::Uint8),
        (followed(r#"{"clip": {"max": 9}}"#), v1::DType::Uint8),
        (followed(r#"{"fill_null": {"value": 0.5}}"#), v1::DType::Float32),
        (followed(r#"{"min_max": {"min": 0, "max": 255}}"#), v1::DType::Float32),
    ] {
        assert_eq!(dtype(&plan(&ops)), expected, "{ops}");
    }
}

#[test]
fn encoded_images_have_three_outputs() {
    let plan = plan(&op(r#", "encoded": true, "crop": "random""#));
    let specs = more_outputs(&plan);
    let names: Vec<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
    assert_eq!(names, ["o_box", "o_flip"]);
    let schema = arrow::datatypes::Schema::empty();
    // The columns are added by the stream.
    assert!(output_specs(&plan, &schema, &crate::Tables::default()).is_err());
}

#[test]
fn invalid_ops_are_rejected_with_the_field() {
    for (ops, words) in [
        (r#"[{"log1p": {}}, {"decode_image": {"height": 1, "width": 1}}]"#.to_owned(), "ops[1].decode_image: must be"),
        (r#"[{"decode_image": {"width": 1}}]"#.to_owned(), "decode_image.height: must be from 1 to 16384"),
        (op(r#", "channels": 4"#), "decode_image.channels: expected 1 (greyscale) or 3"),
        (r#"[{"decode_image": {"height": 4000, "width": 4000}}]"#.to_owned(), "height: a tensor of 48000000 values"),
        (op(r#", "resize": 9"#), "resize: expected one of BILINEAR"),
        (op(r#", "crop": 9"#), "crop: expected one of NONE"),
        (op(r#", "on_error": 9"#), "on_error: expected one of FAIL"),
        (op(r#", "scale_min": 0.5"#), "scale_min: belongs to the crop RANDOM"),
        (op(r#", "crop": "random", "scale_max": 2"#), "scale_max: expected 0.001 to 1"),
        (op(r#", "crop": "random", "ratio_min": 2, "ratio_max": 1"#), "ratio_min: 2 is above ratio_max, 1"),
        (op(r#", "normalize": {"mean": [0], "std": [1, 1, 1]}"#), "normalize.mean: expected 3 number(s)"),
        (op(r#", "normalize": {"mean": [0, 0, 0], "std": [1, 0, 1]}"#), "normalize.std: expected numbers other than 0"),
        (op(r#", "encoded": true, "on_error": "null""#), "on_error: an encoded image is as stored"),
        (
            r#"[{"decode_image": {"height": 1, "width": 1}}, {"standardize": {}}]"#.to_owned(),
            "ops[1]: after decode_image, expected",
        ),
        (r#"[{"decode_image": {"height": 1, "width": 1}}, {"vocab": {}}]"#.to_owned(), "ops[1]: after decode_image"),
    ] {
        let error = decode_image_calls(&plan(&ops)).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    let json =
        r#"{"outputs": [{"name": "o", "parts": [{"columns": ["a", "b"], "ops": OPS}]}]}"#.replace("OPS", &op(""));
    let both = canonical(&forebay_proto::decode(json.as_bytes()).unwrap().0);
    let error = decode_image_calls(&both).unwrap_err().to_string();
    assert!(error.contains("plan.outputs[0].parts: an image is the only column"), "{error}");
}
