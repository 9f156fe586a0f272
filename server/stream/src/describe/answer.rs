//! Profiles → the messages of a description.

use arrow::datatypes::{DataType, Field, Schema};
use forebay_engine::{ColumnProfile, Distribution, Lengths, Profile, ProfileKind, ProfileValue};
use forebay_kernels::ExactDecimal;
use forebay_proto::v1::{self, column_value::Value};

use super::type_name::type_name;
use crate::error::StreamError;

/// Shares of the quantiles.
const SHARES: [f64; 7] = [0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99];

/// Frequent values of a column with many.
const TOP_MAX: usize = 10;

/// Distinct values up to which all are listed, with class weights.
const CLASSES_MAX: usize = 100;

/// Bytes of a text; longer ones are cut.
const TEXT_BYTES_MAX: usize = 128;

/// The type of a column's values, and what it means.
struct ValueForm<'a> {
    kind: ProfileKind,
    data_type: &'a DataType,
}

/// Completes a column's profile.
pub(super) fn of_profile(
    field: &Field,
    schema: &Schema,
    profile: ColumnProfile,
    class_names: Vec<String>,
) -> Result<v1::ColumnDescription, StreamError> {
    let form = ValueForm::of(field.data_type());
    let Profile { nulls, nans, distinct, bounds, moments, distribution, top, lengths } =
        profile.finish(TOP_MAX, CLASSES_MAX)?;
    let (top, top_is_complete) = top.unwrap_or_default();
    let (min, max) = bounds.map(|(min, max)| (form.value(min), form.value(max))).unzip();
    let weight = weights(&top, top_is_complete);
    Ok(v1::ColumnDescription {
        name: field.name().clone(),
        r#type: type_name(field.data_type()),
        nulls,
        nans,
        distinct: distinct.map(|(count, _)| count),
        distinct_is_exact: distinct.is_some_and(|(_, is_exact)| is_exact),
        min,
        max,
        mean: moments.map(|(mean, _)| mean),
        deviation: moments.map(|(_, deviation)| deviation),
        quantiles: distribution.iter().flat_map(|spread| form.quantiles(spread)).collect(),
        quantiles_are_exact: distribution.as_ref().is_some_and(Distribution::is_exact),
        top: top
            .into_iter()
            .map(|(value, count)| v1::ColumnValueCount {
                value: Some(form.value(value)),
                count,
                class_weight: weight.map(|total| total / count as f64),
            })
            .collect(),
        top_is_complete,
        lengths: lengths.map(of_lengths),
        note: note(field, schema, form.kind),
        class_names,
    })
}

/// The class weight of a value that occurs once; none if values are missing.
fn weights(top: &[(ProfileValue, u64)], is_complete: bool) -> Option<f64> {
    let rows: u64 = top.iter().map(|(_, count)| count).sum();
    (is_complete && !top.is_empty()).then(|| rows as f64 / top.len() as f64)
}

fn of_lengths(lengths: Lengths) -> v1::ColumnLengths {
    let mean = lengths.sum as f64 / lengths.count.max(1) as f64;
    v1::ColumnLengths { min: lengths.min, mean, max: lengths.max }
}

/// What a description leaves out.
fn note(field: &Field, schema: &Schema, kind: ProfileKind) -> String {
    let mut notes = Vec::new();
    match (kind, field.data_type()) {
        (ProfileKind::Lengths, DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..)) => {
            notes.push("a list: nulls and lengths only".to_owned());
        }
        (ProfileKind::Lengths, DataType::Map(..)) => notes.push("a map: nulls and lengths only".to_owned()),
        (ProfileKind::Lengths, _) => notes.push("binary: nulls and lengths only".to_owned()),
        (ProfileKind::Opaque, DataType::Struct(_)) => notes.push("a struct: nulls only".to_owned()),
        (ProfileKind::Opaque, DataType::Null) => {}
        (ProfileKind::Opaque, _) => notes.push("of a type that is not compared: nulls only".to_owned()),
        _ => {}
    }
    let named = schema.fields().iter().filter(|other| other.name() == field.name()).count();
    if named > 1 {
        notes.push(format!("the first of {named} columns of this name"));
    }
    notes.join("; ")
}

// === impl ValueForm ===

impl<'a> ValueForm<'a> {
    fn of(data_type: &'a DataType) -> Self {
        match data_type {
            DataType::Dictionary(_, values) => Self::of(values),
            _ => Self { kind: ProfileKind::of(data_type), data_type },
        }
    }

    fn value(&self, value: ProfileValue) -> v1::ColumnValue {
        let whole = |value| v1::ColumnValue { value: Some(value), is_cut: false };
        match value {
            ProfileValue::Integer(value) if self.kind == ProfileKind::Booleans => whole(Value::Boolean(value != 0)),
            ProfileValue::Integer(value) => whole(Value::Integer(value)),
            ProfileValue::Unsigned(value) => whole(Value::Unsigned(value)),
            ProfileValue::Float(value) => whole(Value::Number(value)),
            ProfileValue::Decimal(unscaled) => whole(Value::Decimal(ExactDecimal::new(unscaled, self.scale()).text())),
            ProfileValue::Text(text) => {
                let end = text.floor_char_boundary(TEXT_BYTES_MAX);
                v1::ColumnValue { value: Some(Value::Text(text[..end].to_owned())), is_cut: end < text.len() }
            }
        }
    }

    fn scale(&self) -> i8 {
        match self.data_type {
            DataType::Decimal32(_, scale)
            | DataType::Decimal64(_, scale)
            | DataType::Decimal128(_, scale)
            | DataType::Decimal256(_, scale) => *scale,
            _ => 0,
        }
    }

    fn quantiles(&self, spread: &Distribution) -> Vec<v1::ColumnQuantile> {
        let quantile = |share: f64| {
            let value = match self.kind {
                ProfileKind::Times => Value::Integer(whole_quantile(spread, share)),
                _ => number(spread, share),
            };
            v1::ColumnQuantile { share, value: Some(v1::ColumnValue { value: Some(value), is_cut: false }) }
        };
        SHARES.map(quantile).to_vec()
    }
}

/// A quantile of times, rounded to their unit.
fn whole_quantile(spread: &Distribution, share: f64) -> i64 {
    let whole = spread.whole_quantile(share).unwrap_or_else(|| spread.quantile(share).round() as i128);
    whole.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

/// A quantile of numbers: an integer where a double would round it.
fn number(spread: &Distribution, share: f64) -> Value {
    let exact = spread.whole_quantiles(std::iter::once(share)).and_then(|quantiles| quantiles.first().copied());
    let integer = exact.and_then(|whole| i64::try_from(whole).ok().map(Value::Integer));
    let unsigned = || exact.and_then(|whole| u64::try_from(whole).ok().map(Value::Unsigned));
    integer.or_else(unsigned).unwrap_or_else(|| Value::Number(spread.quantile(share)))
}
