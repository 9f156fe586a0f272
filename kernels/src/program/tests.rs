//! Programs that compile, their schemas, and plans that are rejected.

use std::{collections::HashMap, sync::Arc};

use arrow::datatypes::{DataType, Field, Schema};

use crate::{Chain, CompileError, DType, KernelError, Op, OutputSpec, Program, testing::output};

fn schema() -> Schema {
    let tags = DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true)));
    Schema::new(vec![
        Field::new("x", DataType::Float32, true),
        Field::new("n", DataType::Int64, true),
        Field::new("carrier", DataType::Utf8, true),
        Field::new("raw", DataType::Binary, true),
        Field::new("tags", tags, true),
    ])
}

fn spec(name: &str, dtype: DType, columns: &[&str]) -> OutputSpec {
    let chain = |column: &&str| Chain { column: (*column).to_owned(), ops: vec![] };
    OutputSpec { name: name.to_owned(), dtype, chains: columns.iter().map(chain).collect() }
}

#[track_caller]
fn compile_error(outputs: &[OutputSpec]) -> String {
    Program::compile(outputs, &schema()).unwrap_err().to_string()
}

#[test]
fn types_can_cross_threads() {
    fn shared<T: Send + Sync>() {}
    fn sent<T: Send>() {}
    shared::<Program>();
    shared::<crate::Prefix>();
    sent::<crate::BatchBuilder>();
    shared::<CompileError>();
    shared::<KernelError>();
}

#[test]
fn one_column_is_primitive_and_several_are_a_tensor() {
    let outputs = [
        spec("one", DType::Float32, &["x"]),
        spec("two", DType::Int64, &["n", "x"]),
        spec("brain", DType::BFloat16, &["x"]),
        spec("brains", DType::BFloat16, &["x", "n", "x"]),
        spec("tags", DType::AsStored, &["tags"]),
    ];
    let program = Program::compile(&outputs, &schema()).unwrap();
    assert_eq!(program.input_columns(), ["x", "n", "tags"]);
    assert_eq!(program.row_bytes(), Some(4 + 16 + 2 + 6));
    let tensor = |dtype, width| DataType::FixedSizeList(Arc::new(Field::new("item", dtype, false)), width);
    let metadata = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect::<HashMap<_, _>>()
    };
    let extension = ("ARROW:extension:name", "arrow.fixed_shape_tensor");
    let brain = ("forebay.dtype", "BFLOAT16");
    let expected = Schema::new(vec![
        Field::new("one", DataType::Float32, false),
        Field::new("two", tensor(DataType::Int64, 2), false)
            .with_metadata(metadata(&[extension, ("ARROW:extension:metadata", r#"{"shape":[2]}"#)])),
        Field::new("brain", DataType::UInt16, false).with_metadata(metadata(&[brain])),
        Field::new("brains", tensor(DataType::UInt16, 3), false).with_metadata(metadata(&[
            brain,
            extension,
            ("ARROW:extension:metadata", r#"{"shape":[3]}"#),
        ])),
        schema().field(4).clone(),
    ]);
    assert_eq!(program.schema().as_ref(), &expected);
}

#[test]
fn names_must_be_present_and_unique() {
    assert_eq!(compile_error(&[]), "the plan has no outputs");
    let one = || spec("a", DType::Float32, &["x"]);
    assert_eq!(compile_error(&[one(), spec("", DType::Float32, &["x"])]), "output number 2 has an empty name");
    assert_eq!(compile_error(&[one(), one()]), "there are two outputs named \"a\"; names must be unique");
    assert_eq!(compile_error(&[spec("a", DType::Float32, &[])]), "output \"a\" has no columns");
    assert_eq!(compile_error(&[spec("a", DType::AsStored, &[])]), "output \"a\" has no columns");
}

#[test]
fn an_unknown_column_is_named_with_its_position() {
    let error = Program::compile(&[spec("a", DType::Float32, &["x", "y"])], &schema()).unwrap_err();
    assert_eq!(error.to_string(), "output \"a\", column \"y\": there is no such column");
    let CompileError::Chain { output: 0, chain, error } = error else { panic!("{error}") };
    assert!(chain == 1 && matches!(*error, CompileError::UnknownColumn { column, .. } if column == "y"));
}

#[test]
fn as_stored_accepts_one_column_and_no_ops() {
    let message = compile_error(&[spec("a", DType::AsStored, &["x", "n"])]);
    assert!(message.ends_with("it takes exactly one column and no ops, but has 2 column(s) and 0 op(s)"), "{message}");
    assert!(compile_error(&[output(DType::AsStored, &[&[Op::Log1p]])]).contains("1 column(s) and 1 op(s)"));
}

#[test]
fn text_needs_an_encoding_op() {
    let message = compile_error(&[spec("a", DType::Float32, &["carrier"])]);
    let expected = "output \"a\", column \"carrier\": a column of type Utf8 is not numeric; end its chain in vocab \
                    or hash_bucket, or pass it through with dtype AS_STORED";
    assert_eq!(message, expected);
    assert!(compile_error(&[spec("a", DType::Float32, &["raw"])]).contains("end its chain in hash_bucket, or"));
}

#[test]
fn limits_the_total_width_of_all_outputs() {
    let wide = vec![Op::OneHot { size: 65_536 }];
    let chain = || Chain { column: "n".to_owned(), ops: wide.clone() };
    let spec = |name: &str, chains| OutputSpec { name: name.to_owned(), dtype: DType::UInt8, chains };
    let half = || (0..8).map(|_| chain()).collect::<Vec<_>>();
    assert!(Program::compile(&[spec("a", half()), spec("b", half())], &schema()).is_ok());
    let message = compile_error(&[spec("a", half()), spec("b", half()), spec("c", vec![chain()])]);
    assert_eq!(message, "output \"c\" brings the plan to 1114112 columns in all; the limit is 1048576");
}
