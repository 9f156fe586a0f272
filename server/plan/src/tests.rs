use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use forebay_kernels::DType;
use forebay_proto::v1;

use super::{
    Answer, Request, Tables, canonical, compile, decode_image_calls, first_unlearned, learn, output_specs, pass_count,
    plan_id, questions,
};

fn plan(json: &str) -> v1::Plan {
    forebay_proto::decode(json.as_bytes()).unwrap().0
}

fn schema() -> Schema {
    Schema::new(vec![Field::new("a", DataType::Float64, true), Field::new("b", DataType::Utf8, true)])
}

const UNFITTED: &str = r#"{"outputs": [
    {"name": "x", "parts": [{"columns": ["a", "a"], "ops": [{"fill_null": {"stat": "MEAN"}}, {"standardize": {}}]}]},
    {"name": "y", "dtype": "INT32", "parts": [{"columns": ["b"], "ops": [{"vocab": {}}]}]}]}"#;

#[test]
fn a_chain_has_one_question_per_pass() {
    let mut plan = canonical(&plan(UNFITTED));
    assert_eq!(pass_count(&plan).unwrap(), 2);
    let first = questions(&plan, &Tables::default()).unwrap();
    assert_eq!(first.len(), 3);
    for (question, answer) in first.iter().zip(
        [1.0, 2.0]
            .map(Answer::Number)
            .into_iter()
            .chain([Answer::Values(v1::VocabValues { strings: vec!["v".into()], ..Default::default() })]),
    ) {
        learn(&mut plan, question, answer);
    }
    let second = questions(&plan, &Tables::default()).unwrap();
    assert_eq!(second.iter().map(|question| question.prefix.len()).collect::<Vec<_>>(), [1, 1]);
    for question in &second {
        learn(&mut plan, question, Answer::Pair(0.0, 1.0));
    }
    assert!(first_unlearned(&plan).unwrap().is_none());
    let program = compile(&plan, &schema(), true, &Tables::default()).unwrap();
    assert_eq!(program.schema().fields().len(), 3);
}

#[test]
fn ops_of_a_shared_vocabulary_ask_in_one_pass() {
    let mut plan = canonical(&plan(
        r#"{"outputs": [{"name": "x", "parts": [
            {"columns": ["a"], "ops": [{"standardize": {}}]},
            {"columns": ["b"], "ops": [{"fill_null": {"stat": "MODE"}}, {"vocab": {"shared": "z"}}]},
            {"columns": ["c"], "ops": [{"vocab": {"shared": "z"}}]},
            {"columns": ["d", "e"], "ops": [{"vocab": {"shared": "y"}}]}]}]}"#,
    ));
    let open = |plan: &v1::Plan| questions(plan, &Tables::default()).unwrap();
    let columns = |plan: &v1::Plan| open(plan).into_iter().map(|question| question.column).collect::<Vec<_>>();
    assert_eq!(columns(&plan), ["d", "e", "a", "b"]);
    for question in &open(&plan) {
        let answer = match question.op_name() {
            "vocab" => Answer::Values(v1::VocabValues::default()),
            "standardize" => Answer::Pair(0.0, 1.0),
            _ => Answer::Text("t".to_owned()),
        };
        learn(&mut plan, question, answer);
    }
    assert_eq!(columns(&plan), ["b", "c"]);
}

#[test]
fn equivalent_plans_have_the_same_id() {
    let together = plan(r#"{"outputs": [{"name": "x", "parts": [{"columns": ["a", "c"], "ops": [{"log1p": {}}]}]}]}"#);
    let apart = plan(
        r#"{"filter": " ", "outputs": [{"name": "x", "dtype": "FLOAT32", "parts": [
            {"columns": ["a"], "ops": [{"log1p": {}}]}, {"columns": ["c"], "ops": [{"log1p": {}}]}]}]}"#,
    );
    assert_eq!(plan_id(&canonical(&together)), plan_id(&canonical(&apart)));
    assert_ne!(plan_id(&canonical(&together)), plan_id(&canonical(&plan(UNFITTED))));
}

#[test]
fn invalid_plans_are_rejected_with_the_path() {
    for (json, words) in [
        (r#"{"outputs": []}"#, "at least one output"),
        (r#"{"outputs": [{"name": "x"}]}"#, "plan.outputs[0].parts: an output needs"),
        (r#"{"outputs": [{"name": "x", "parts": [{"columns": ["A"]}]}]}"#, "did you mean \"a\""),
        (r#"{"outputs": [{"name": "x", "parts": [{"columns": ["a"], "ops": [{}]}]}]}"#, "parts[0].ops[0]: empty"),
        (
            r#"{"outputs": [{"name": "x", "parts": [{"columns": ["a"], "ops": [{"standardize": {"mean": 1}}]}]}]}"#,
            "both mean and std",
        ),
        (
            r#"{"outputs": [{"name": "x", "parts": [{"columns": ["a"], "ops": [{"bucketize": {}}]}]}]}"#,
            "quantiles between",
        ),
        (r#"{"outputs": [{"name": "x", "parts": [{"columns": ["a"], "ops": [{"fill_null": {}}]}]}]}"#, "one of value"),
        (r#"{"outputs": [{"name": "x", "dtype": 9, "parts": [{"columns": ["a"]}]}]}"#, "FLOAT16"),
        (UNFITTED, "run the action \"fit\""),
    ] {
        let error =
            compile(&canonical(&plan(json)), &schema(), false, &Tables::default()).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(words), "{json}: {error}");
    }
}

#[test]
fn requests_beyond_limits_are_rejected_with_the_field() {
    let good = format!(r#""dataset": "t", "plan": {UNFITTED}"#);
    for (json, words) in [
        (String::from(r#""plan_id": "ab""#), "dataset: missing"),
        (String::from(r#""dataset": "t""#), "plan: missing"),
        (format!(r#"{good}, "plan_id": "ab""#), "not both"),
        (format!(r#"{good}, "batch_size": 0"#), "batch_size: 0 is not between 1 and 16777216"),
        (format!(r#"{good}, "batch_size": 1099511627776"#), "batch_size"),
        (format!(r#"{good}, "world_size": 0"#), "world_size"),
        (format!(r#"{good}, "start_position": 1000"#), "multiple"),
        (format!(r#"{good}, "remainder": 7"#), "KEEP, DROP, PAD"),
    ] {
        let (message, _) = forebay_proto::decode::<v1::StreamRequest>(format!("{{{json}}}").as_bytes()).unwrap();
        let error = Request::check(&message).unwrap_err().to_string();
        assert!(error.contains(words), "{json}: {error}");
    }
}

#[test]
fn a_canonical_plan_names_every_dtype() {
    let dtype = |ops: &str, more: &str| {
        let json =
            format!(r#"{{"outputs": [{{"name": "x", "parts": [{{"columns": ["a"], "ops": [{ops}]}}{more}]}}]}}"#);
        canonical(&plan(&json)).outputs[0].dtype()
    };
    for (ops, expected) in [
        ("", v1::DType::Float32),
        (r#"{"vocab": {}}"#, v1::DType::Int32),
        (r#"{"vocab": {}}, {"one_hot": {}}"#, v1::DType::Float32),
        (r#"{"vocab": {}}, {"multi_hot": {}}"#, v1::DType::Float32),
        (r#"{"vocab": {}}, {"pad": {"n": 4}}"#, v1::DType::Int32),
        (r#"{"vocab": {}}, {"pad": {"n": 4, "value": 0.5}}"#, v1::DType::Float32),
        (r#"{"vocab": {}}, {"pad": {"n": 4, "value": "NaN"}}"#, v1::DType::Float32),
        (r#"{"hash_bucket": {"buckets": 1099511627776}}, {"first_n": {"n": 4, "value": 0}}"#, v1::DType::Int64),
        (r#"{"first_n": {"n": 4}}, {"vocab": {}}"#, v1::DType::Int32),
        (r#"{"first_n": {"n": 4}}"#, v1::DType::Float32),
        (r#"{"first_n": {"n": 4, "value": 0}}"#, v1::DType::Element),
        (r#"{"fill_null": {"integer": 0}}, {"pad": {"n": 4}}"#, v1::DType::Element),
        (r#"{"pad": {"n": 4, "value": 0.5}}"#, v1::DType::Float32),
        (r#"{"last_n": {"n": 4}}, {"clip": {"max": 9}}"#, v1::DType::Float32),
        (r#"{"fill_null": {"integer": 0}}"#, v1::DType::Float32),
        (r#"{"lookup": {"table": "t", "key": "k", "columns": ["x"]}}, {"pad": {"n": 4}}"#, v1::DType::Float32),
        (r#"{"ngram": {"n": 2, "buckets": 2147483647}}"#, v1::DType::Int32),
        (r#"{"ngram": {"n": 2, "buckets": 2147483648}}"#, v1::DType::Int64),
        (r#"{"vocab": {"oov_buckets": 2147483648}}"#, v1::DType::Int64),
        (r#"{"hash_bucket": {"buckets": 9}}, {"fill_null": {"stat": "MEAN"}}"#, v1::DType::Float32),
        (r#"{"hash_bucket": {"buckets": 9}}, {"fill_null": {"integer": -2147483649}}"#, v1::DType::Int64),
        (r#"{"lookup": {"table": "t", "key": "k", "columns": ["x"]}}"#, v1::DType::Float32),
        (r#"{"lookup": {"table": "t", "key": "k", "columns": ["x"]}}, {"vocab": {}}"#, v1::DType::Int32),
    ] {
        assert_eq!(dtype(ops, ""), expected, "{ops}");
        assert_eq!(dtype(ops, r#", {"columns": ["b"]}"#), v1::DType::Float32, "{ops}");
    }
    let named = plan(
        r#"{"outputs": [{"name": "x", "dtype": "FLOAT32", "parts": [{"columns": ["a"], "ops": [{"vocab": {}}]}]}]}"#,
    );
    assert_eq!(canonical(&named).outputs[0].dtype(), v1::DType::Float32);
    assert_eq!(canonical(&canonical(&named)), canonical(&named));
}

#[test]
fn an_output_of_stored_lists_has_the_type_of_their_integers() {
    let list = |item: DataType| DataType::List(Arc::new(Field::new("item", item, true)));
    let fields = [
        ("small", list(DataType::Int16)),
        ("int", list(DataType::Int32)),
        ("long", list(DataType::Int64)),
        ("float", list(DataType::Float64)),
        ("one", DataType::Int32),
    ];
    let schema = Schema::new(fields.map(|(name, kind)| Field::new(name, kind, true)).to_vec());
    let dtype = |parts: &str| {
        let plan = canonical(&plan(&format!(r#"{{"outputs": [{{"name": "x", "parts": [{parts}]}}]}}"#)));
        output_specs(&plan, &schema, &Tables::default()).unwrap()[0].dtype
    };
    let part = |columns: &str, ops: &str| format!(r#"{{"columns": [{columns}], "ops": [{ops}]}}"#);
    let (pad, hashed) = (r#"{"pad": {"n": 2}}"#, r#"{"hash_bucket": {"buckets": 9}}"#);
    for (parts, expected) in [
        (part(r#""small", "int""#, pad), DType::Int32),
        (part(r#""int", "long""#, pad), DType::Int64),
        (part(r#""int", "float""#, pad), DType::Float32),
        (part(r#""int""#, r#"{"pad": {"n": 2, "value": 2147483648}}"#), DType::Int64),
        (part(r#""int""#, r#"{"last_n": {"n": 2, "value": -1}}"#), DType::Int32),
        (part(r#""int""#, r#"{"last_n": {"n": 2}}"#), DType::Float32),
        ([part(r#""int""#, pad), part(r#""one""#, hashed)].join(", "), DType::Int32),
        ([part(r#""int""#, pad), part(r#""one""#, "")].join(", "), DType::Float32),
    ] {
        assert_eq!(dtype(&parts), expected, "{parts}");
    }
}

#[test]
fn images_of_the_same_seed_are_turned_alike() {
    let output = |name: &str, more: &str| {
        let op = format!(r#"{{"decode_image": {{"height": 4, "width": 4{more}}}}}"#);
        format!(r#"{{"name": "{name}{}", "parts": [{{"columns": ["{name}"], "ops": [{op}]}}]}}"#, more.len())
    };
    let turned_like = |outputs: &[String]| {
        let plan = canonical(&plan(&format!(r#"{{"outputs": [{}]}}"#, outputs.join(", "))));
        assert_eq!(canonical(&plan), plan);
        let calls = decode_image_calls(&plan).unwrap();
        calls.into_iter().map(|(call, _)| call.op.turned_like).collect::<Vec<_>>()
    };
    let none: [&str; 0] = [];
    assert_eq!(turned_like(&[output("a", ""), output("b", "")]), [["b"], ["a"]]);
    assert_eq!(turned_like(&[output("a", ""), output("a", r#", "channels": 1"#)]), [none, none]);
    assert_eq!(turned_like(&[output("a", ""), output("b", r#", "seed": 1"#)]), [none, none]);
    assert_eq!(turned_like(&[output("a", ""), output("b", r#", "orientation": "IGNORE""#)]), [none, none]);
    assert_eq!(turned_like(&[output("a", ""), output("b", r#", "turned_like": ["c"]"#)])[1], ["c"]);
}
