//! Bytes → a request: each byte selects among the valid options of a part, so that most plans run.

use arbitrary::{Result, Unstructured};
use forebay_proto::v1::{self, op::Op};

use crate::tables::COLUMNS;

type Bytes<'a, 'b> = &'a mut Unstructured<'b>;

/// Filters; none in half of the choices.
const FILTERS: [&str; 8] = ["", "", "", "", "flag", "id % 3 = 1", "amount IS NOT NULL AND name > 'k'", "false"];

/// Derived columns.
const DERIVED: [&str; 6] =
    ["amount / 2", "id - 100", "upper(name)", "flag AND ratio > 0.2", "CAST(price AS DOUBLE)", "ids"];

/// The name of the derived column.
const DERIVED_NAME: &str = "derived";

/// Edge cases of arithmetic.
const NUMBERS: [f64; 16] = [
    0.0,
    1.0,
    -1.0,
    0.5,
    -0.0,
    2.0,
    100.0,
    -3.5,
    f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::MAX,
    f64::MIN_POSITIVE,
    5e-324,
    9_007_199_254_740_993.0,
    3.5e38,
];

const INTEGERS: [i64; 12] = [1, 2, 3, 0, -1, 10, 255, 65_536, i32::MAX as i64, u32::MAX as i64 + 1, i64::MAX, i64::MIN];

/// A tokenizer that knows two words and adds a token before each text.
const TOKENIZER: &str = r#"{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
  "pre_tokenizer": {"type": "Whitespace"}, "post_processor": {"type": "TemplateProcessing",
  "single": [{"SpecialToken": {"id": "s", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}], "pair": [],
  "special_tokens": {"s": {"id": "s", "ids": [3], "tokens": ["s"]}}}, "decoder": null,
  "model": {"type": "WordLevel", "vocab": {"a": 1, "b": 2, "?": 0}, "unk_token": "?"}}"#;

const SIZES: [u32; 10] = [1, 2, 4, 0, 7, 64, 256, 65_536, 65_537, u32::MAX];

/// A request over the table `t`.
pub(super) fn request(bytes: Bytes<'_, '_>) -> Result<v1::StreamRequest> {
    let shuffle = bytes.ratio(1_u8, 2)?;
    Ok(v1::StreamRequest {
        dataset: "t".to_owned(),
        batch_size: Some(*bytes.choose(&[32, 1, 7, 100, 1024, 1 << 20])?),
        world_size: Some(*bytes.choose(&[1, 2, 3, 16])?),
        shuffle,
        seed: bytes.arbitrary::<u8>()?.into(),
        window_rows: Some(*bytes.choose(&[16, 1, 64, 16_384])?),
        remainder: bytes.int_in_range(0..=2)?,
        with_row_ids: bytes.ratio(1_u8, 4)?,
        plan: Some(plan(bytes)?),
        sample: *bytes.choose(&[None, Some(0.5), Some(1e-3), Some(2.0)])?,
        sample_seed: bytes.arbitrary::<u8>()?.into(),
        ..v1::StreamRequest::default()
    })
}

fn plan(bytes: Bytes<'_, '_>) -> Result<v1::Plan> {
    let filter = (*bytes.choose(&FILTERS)?).to_owned();
    let derive = v1::Derive { name: DERIVED_NAME.to_owned(), expr: (*bytes.choose(&DERIVED)?).to_owned() };
    let outputs = (0..bytes.int_in_range(1..=3)?).map(|number| output(bytes, number)).collect::<Result<_>>()?;
    let join = maybe(bytes, join)?.into_iter().collect();
    Ok(v1::Plan { filter, derive: vec![derive], outputs, join, ..v1::Plan::default() })
}

fn output(bytes: Bytes<'_, '_>, number: u8) -> Result<v1::Output> {
    // One more than the last dtype: none.
    let dtype = Some(bytes.int_in_range(0..=9)?).filter(|dtype| *dtype < 9);
    let parts = (0..bytes.int_in_range(1..=2)?).map(|_| part(bytes)).collect::<Result<_>>()?;
    Ok(v1::Output { name: format!("o{number}"), dtype, parts, ..v1::Output::default() })
}

fn part(bytes: Bytes<'_, '_>) -> Result<v1::Part> {
    let columns = (0..bytes.int_in_range(1..=2)?).map(|_| column(bytes)).collect::<Result<_>>()?;
    let ops = (0..bytes.int_in_range(0..=4)?).map(|_| Ok(v1::Op { op: Some(op(bytes)?) })).collect::<Result<_>>()?;
    Ok(v1::Part { columns, ops })
}

fn column(bytes: Bytes<'_, '_>) -> Result<String> {
    let index = bytes.int_in_range(0..=COLUMNS.len())?;
    Ok(COLUMNS.get(index).copied().unwrap_or(DERIVED_NAME).to_owned())
}

fn op(bytes: Bytes<'_, '_>) -> Result<Op> {
    Ok(match bytes.int_in_range(0..=30)? {
        0 => Op::FillNull(fill_null(bytes)?),
        1 => Op::Clip(v1::Clip {
            min: maybe(bytes, number)?,
            max: maybe(bytes, number)?,
            min_integer: maybe(bytes, integer)?,
            max_unsigned: maybe(bytes, integer)?.map(i64::cast_unsigned),
            ..v1::Clip::default()
        }),
        2 => Op::Log1p(v1::Log1p {}),
        3 => Op::Standardize(v1::Standardize { mean: maybe(bytes, number)?, std: maybe(bytes, number)? }),
        4 => Op::MinMax(v1::MinMax { min: maybe(bytes, number)?, max: maybe(bytes, number)? }),
        5 => Op::Bucketize(v1::Bucketize {
            boundaries: list(bytes, number)?,
            quantiles: size(bytes)?,
            integers: list(bytes, integer)?,
            ..v1::Bucketize::default()
        }),
        6 => Op::Vocab(vocab(bytes)?),
        7 => Op::HashBucket(v1::HashBucket { buckets: integer(bytes)?.cast_unsigned(), seed: 1 }),
        8 => Op::OneHot(v1::OneHot { size: size(bytes)? }),
        9 => Op::Sqrt(v1::Sqrt {}),
        10 => Op::Abs(v1::Abs {}),
        11 => Op::Logit(v1::Logit { eps: maybe(bytes, number)? }),
        12 => Op::BoxCox(v1::BoxCox { lambda: number(bytes)? }),
        13 => Op::MaxAbs(v1::MaxAbs { max_abs: maybe(bytes, number)? }),
        14 => Op::Robust(v1::Robust { center: maybe(bytes, number)?, scale: maybe(bytes, number)? }),
        15 => Op::Cross(v1::Cross { columns: list(bytes, column)?, buckets: integer(bytes)?.cast_unsigned(), seed: 2 }),
        16 => Op::MultiHot(v1::MultiHot { size: size(bytes)? }),
        17 => Op::FirstN(v1::FirstN { n: size(bytes)?, value: maybe(bytes, number)? }),
        18 => Op::Pad(v1::Pad { n: size(bytes)?, value: number(bytes)?, side: bytes.int_in_range(0..=2)? }),
        19 => Op::Lookup(lookup(bytes)?),
        20 => Op::Ngram(v1::Ngram { n: size(bytes)?, buckets: integer(bytes)?.cast_unsigned(), seed: 3 }),
        21 => Op::SigridHash(v1::SigridHash { salt: integer(bytes)?, max_value: integer(bytes)? }),
        22 => Op::MapId(v1::MapId {
            ids: list(bytes, integer)?,
            values: list(bytes, integer)?,
            default: maybe(bytes, integer)?,
            ..Default::default()
        }),
        23 => Op::PositiveMod(v1::PositiveMod { modulus: integer(bytes)? }),
        24 => {
            let counts = list(bytes, |bytes| Ok(integer(bytes)?.cast_unsigned()))?;
            Op::CountEncode(v1::CountEncode { values: vocab(bytes)?.values, counts })
        }
        25 => Op::Bytes(v1::Bytes { n: size(bytes)? }),
        26 => Op::AttentionMask(v1::AttentionMask { n: size(bytes)?, side: bytes.int_in_range(0..=2)? }),
        27 => Op::Tokenize(v1::Tokenize {
            json: TOKENIZER.to_owned(),
            max_length: *bytes.choose(&[0, 1, 2, 3, u32::MAX])?,
            truncation: bytes.int_in_range(0..=3)?,
            add_special_tokens: *bytes.choose(&[None, Some(false), Some(true)])?,
            ..v1::Tokenize::default()
        }),
        28 => Op::DecodeImage(v1::DecodeImage {
            height: *bytes.choose(&[1, 2, 0, 16_385])?,
            width: *bytes.choose(&[1, 3, 16_384])?,
            channels: maybe(bytes, size)?,
            crop: bytes.int_in_range(0..=3)?,
            flip: bytes.arbitrary()?,
            on_error: bytes.int_in_range(0..=3)?,
            encoded: bytes.arbitrary()?,
            orientation: bytes.int_in_range(0..=2)?,
            turned_like: list(bytes, column)?,
            ..v1::DecodeImage::default()
        }),
        29 => Op::LastN(v1::LastN { n: size(bytes)?, value: maybe(bytes, number)? }),
        _ => Op::TargetMean(target_mean(bytes)?),
    })
}

fn fill_null(bytes: Bytes<'_, '_>) -> Result<v1::FillNull> {
    use v1::fill_null::Fill;
    let fill = match bytes.int_in_range(0..=6)? {
        0 => Some(Fill::Value(number(bytes)?)),
        1 => Some(Fill::Stat(bytes.int_in_range(0..=2)?)),
        2 => Some(Fill::Integer(integer(bytes)?)),
        3 => Some(Fill::Text("käse 4".to_owned())),
        4 => Some(Fill::Unsigned(integer(bytes)?.cast_unsigned())),
        5 => Some(Fill::Decimal((*bytes.choose(&["1.50", "-0", "9007199254740993", "1e5"])?).to_owned())),
        _ => None,
    };
    Ok(v1::FillNull { fill })
}

fn vocab(bytes: Bytes<'_, '_>) -> Result<v1::Vocab> {
    let values = maybe(bytes, |bytes| {
        let strings = list(bytes, |bytes| Ok((*bytes.choose(&["käse 4", "a", "b", "w0", ""])?).to_owned()))?;
        let (integers, floats) = (list(bytes, integer)?, list(bytes, number)?);
        let decimals =
            list(bytes, |bytes| Ok((*bytes.choose(&["1.50", "1.5", "-0", "9007199254740993", "1e5"])?).to_owned()))?;
        Ok(v1::VocabValues { strings, integers, unsigned: Vec::new(), floats, decimals })
    })?;
    let (min_count, max_size) = (size(bytes)?.into(), size(bytes)?.into());
    Ok(v1::Vocab { min_count, max_size, oov_buckets: size(bytes)?, values })
}

fn join(bytes: Bytes<'_, '_>) -> Result<v1::Join> {
    let v1::Lookup { table, key, columns, .. } = lookup(bytes)?;
    let prefix = (*bytes.choose(&["", "j_"])?).to_owned();
    let as_of = if bytes.ratio(1_u8, 2)? { Some(as_of(bytes)?) } else { None };
    Ok(v1::Join { table, on: column(bytes)?, key, columns, prefix, snapshot: String::new(), as_of })
}

fn as_of(bytes: Bytes<'_, '_>) -> Result<v1::AsOf> {
    let tolerance_seconds = if bytes.ratio(1_u8, 3)? { Some(number(bytes)?) } else { None };
    Ok(v1::AsOf { left: column(bytes)?, right: column(bytes)?, allow_exact: bytes.arbitrary()?, tolerance_seconds })
}

fn target_mean(bytes: Bytes<'_, '_>) -> Result<v1::TargetMean> {
    Ok(v1::TargetMean {
        label: column(bytes)?,
        smoothing: maybe(bytes, number)?,
        folds: maybe(bytes, size)?,
        seed: 4,
        values: vocab(bytes)?.values,
        means: list(bytes, number)?,
        rows: maybe(bytes, fitted_rows)?,
    })
}

fn fitted_rows(bytes: Bytes<'_, '_>) -> Result<v1::FittedRows> {
    let snapshot = (*bytes.choose(&["", "0"])?).to_owned();
    let filter = (*bytes.choose(&["", "id > 3", "amount", "missing = 1", "id > 3 -- x"])?).to_owned();
    Ok(v1::FittedRows { snapshot, filter, sample_seed: 4, sample_end: size(bytes)?.into() })
}

fn lookup(bytes: Bytes<'_, '_>) -> Result<v1::Lookup> {
    let mut name = |names: &[&str]| Ok((*bytes.choose(names)?).to_owned());
    let (table, key) = (name(&["u", "t", "missing"])?, name(&["key", "word", "weight", "id"])?);
    let columns = vec![name(&["weight", "word", "key", "amount"])?];
    Ok(v1::Lookup { table, key, columns, snapshot: String::new() })
}

fn number(bytes: Bytes<'_, '_>) -> Result<f64> {
    // The index after the last selects an arbitrary number.
    let index = bytes.int_in_range(0..=NUMBERS.len())?;
    NUMBERS.get(index).map_or_else(|| bytes.arbitrary(), |number| Ok(*number))
}

fn integer(bytes: Bytes<'_, '_>) -> Result<i64> {
    let index = bytes.int_in_range(0..=INTEGERS.len())?;
    INTEGERS.get(index).map_or_else(|| bytes.arbitrary(), |number| Ok(*number))
}

fn size(bytes: Bytes<'_, '_>) -> Result<u32> {
    bytes.choose(&SIZES).copied()
}

fn maybe<T>(bytes: Bytes<'_, '_>, value: impl FnOnce(Bytes<'_, '_>) -> Result<T>) -> Result<Option<T>> {
    if bytes.ratio(1_u8, 2)? { value(bytes).map(Some) } else { Ok(None) }
}

fn list<T>(bytes: Bytes<'_, '_>, item: impl Fn(Bytes<'_, '_>) -> Result<T>) -> Result<Vec<T>> {
    (0..bytes.int_in_range(0..=3)?).map(|_| item(bytes)).collect()
}
