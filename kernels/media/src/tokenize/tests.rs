//! The results of the Python package are compared in `server/tests/text`; these tests are about rows and faults.

use arrow::{
    array::{BinaryArray, DictionaryArray},
    datatypes::Int8Type,
};

use super::*;

const WORDS: &str = r#"{"version": "1.0", "truncation": {"direction": "Right", "max_length": 1, "strategy": "LongestFirst",
  "stride": 0}, "padding": {"strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0,
  "pad_type_id": 0, "pad_token": "?"}, "added_tokens": [], "normalizer": null, "pre_tokenizer": {"type": "Whitespace"},
  "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
  {"Sequence": {"id": "A", "type_id": 0}}], "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [9],
  "tokens": ["<s>"]}}}, "decoder": null, "model": {"type": "WordLevel", "vocab": {"a": 1, "b": 2, "?": 0},
  "unk_token": "?"}}"#;

const PLAIN: Tokenization = Tokenization { max_length: None, truncation: Truncation::Right, add_special_tokens: false };

fn lists(tokenization: Tokenization, texts: &ArrayRef, fill: Option<&str>) -> Vec<Option<Vec<i32>>> {
    let encoder = Tokenizer::parse(WORDS.as_bytes()).unwrap().encoder(tokenization).unwrap();
    let lists = encoder.encode(texts, fill).unwrap();
    assert_eq!(lists.data_type(), &TextEncoder::data_type());
    let values = |list: ArrayRef| list.as_primitive::<arrow::datatypes::Int32Type>().values().to_vec();
    lists.iter().map(|list| list.map(values)).collect()
}

fn texts(values: &[Option<&str>]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

#[test]
fn every_encoding_of_text_has_the_same_tokens_and_nulls_stay() {
    let plain = texts(&[Some("a b"), None, Some(""), Some("b z")]);
    let expected = vec![Some(vec![1, 2]), None, Some(vec![]), Some(vec![2, 0])];
    let encoded: DictionaryArray<Int8Type> = plain.as_string::<i32>().iter().collect();
    let columns: [ArrayRef; 4] = [
        Arc::clone(&plain),
        cast(&plain, &DataType::LargeUtf8).unwrap(),
        cast(&plain, &DataType::Utf8View).unwrap(),
        Arc::new(encoded),
    ];
    for column in &columns {
        assert!(is_text(column.data_type()));
        assert_eq!(lists(PLAIN, column, None), expected, "{}", column.data_type());
    }
    assert_eq!(lists(PLAIN, &plain, Some("a"))[1], Some(vec![1]));
    assert_eq!(lists(PLAIN, &plain.slice(2, 2), None), expected[2..]);
    assert!(!is_text(BinaryArray::from_vec(vec![b"a"]).data_type()));
}

#[test]
fn the_op_decides_about_length_and_special_tokens_instead_of_the_file() {
    let long = texts(&[Some("a b a b")]);
    let with = |max_length, truncation| Tokenization { max_length, truncation, add_special_tokens: true };
    assert_eq!(lists(with(None, Truncation::Right), &long, None), [Some(vec![9, 1, 2, 1, 2])]);
    assert_eq!(lists(with(Some(3), Truncation::Right), &long, None), [Some(vec![9, 1, 2])]);
    assert_eq!(lists(with(Some(2), Truncation::Left), &long, None), [Some(vec![9, 2])]);
    assert_eq!(lists(with(Some(5), Truncation::Error), &long, None), [Some(vec![9, 1, 2, 1, 2])]);
    let tokenizer = Tokenizer::parse(WORDS.as_bytes()).unwrap();
    let encoder = tokenizer.encoder(with(Some(4), Truncation::Error)).unwrap();
    let rows = texts(&[Some("a"), Some("a b a b")]);
    assert_eq!(encoder.encode(&rows, None).unwrap_err(), (1, TokenProblem::TooLong { tokens: 5, max_length: 4 }));
    // Special tokens alone.
    for truncation in [Truncation::Right, Truncation::Left] {
        assert_eq!(lists(with(Some(1), truncation), &long, None), [Some(vec![9])]);
    }
    let special = r#"{"SpecialToken": {"id": "<s>", "type_id": 0}}"#;
    let two = Tokenizer::parse(WORDS.replace(special, &format!("{special}, {special}")).as_bytes()).unwrap();
    let error = two.encoder(with(Some(1), Truncation::Right)).unwrap_err();
    assert!(error.to_string().ends_with("set at least 2"), "{error}");
    assert!(two.encoder(with(Some(2), Truncation::Right)).is_ok());
}

#[test]
fn files_that_cannot_be_used_are_refused_with_the_reason() {
    let with = |from: &str, to: &str| {
        let json = WORDS.replace(from, to);
        assert_ne!(json, WORDS);
        Tokenizer::parse(json.as_bytes()).unwrap_err().to_string()
    };
    let parse = |json: &[u8]| Tokenizer::parse(json).unwrap_err().to_string();
    for (error, words) in [
        (parse(b""), "EOF"),
        (parse(&WORDS.as_bytes()[..WORDS.len() / 2]), "EOF"),
        (parse(b"\xff\xfe"), "not a tokenizer.json"),
        (parse(b"[]"), "not a tokenizer.json"),
        (parse(b"{}"), "not a tokenizer.json"),
        (with("WordLevel", "Telepathy"), "not a tokenizer.json"),
        (with(r#""b": 2"#, r#""b": 2147483648"#), "\"b\" has the id 2147483648"),
        (with(r#""b": 2"#, r#""b": 4294967296"#), "not a tokenizer.json"),
        (with(r#""b": 2"#, r#""b": -1"#), "not a tokenizer.json"),
    ] {
        assert!(error.contains(words), "{error}");
    }
    let bpe = r#"{"version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": null, "post_processor": null,
      "decoder": null, "model": {"type": "BPE", "dropout": 0.1, "vocab": {"a": 0}, "merges": []}}"#;
    assert_eq!(parse(bpe.as_bytes()), TokenizerError::Random("dropout").to_string());
    assert!(Tokenizer::parse(bpe.replace("0.1", "null").as_bytes()).is_ok());
}

#[test]
fn an_id_of_the_template_beyond_int32_is_an_error_of_the_row() {
    let json = WORDS.replace("\"ids\": [9]", "\"ids\": [4294967295]");
    let tokenization = Tokenization { add_special_tokens: true, ..PLAIN };
    let encoder = Tokenizer::parse(json.as_bytes()).unwrap().encoder(tokenization).unwrap();
    let error = encoder.encode(&texts(&[None, Some("a")]), None).unwrap_err();
    assert_eq!(error, (1, TokenProblem::TokenId(u32::MAX)));
}

#[test]
fn rows_are_divided_by_their_bytes() {
    let column = texts(&[Some("aaaa"), Some("aa"), None, Some("aaaaaaaaa"), Some(""), Some("a")]);
    assert_eq!(text_runs(&column, 6), [(0..3, 6), (3..4, 9), (4..6, 1)]);
    assert_eq!(text_runs(&column, 100), [(0..6, 16)]);
    assert_eq!(text_runs(&column.slice(0, 0), 6), []);
}
