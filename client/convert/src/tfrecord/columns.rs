//! Columns of features: their types, from the first records or set, and their arrays.

use std::{collections::BTreeMap, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, AsArray, BinaryBuilder, Float32Builder, Int64Builder, ListArray},
    buffer::{NullBuffer, OffsetBuffer},
    compute::{CastOptions, cast_with_options},
    datatypes::{DataType, Field},
    error::ArrowError,
};

use crate::{
    error::ConvertError,
    options::Options,
    tfrecord::example::{Feature, ValueKind, Values},
    type_name,
};

/// What the values of a feature are so far.
#[derive(Clone, Copy, Debug)]
struct SeenFeature {
    /// The type, once there is a value.
    kind: Option<ValueKind>,
    /// Whether all bytes are UTF-8.
    is_text: bool,
    /// Whether no record has several values.
    is_single: bool,
}

/// The features of the first records.
#[derive(Debug, Default)]
pub(crate) struct SeenFeatures(BTreeMap<String, SeenFeature>);

/// A column of a feature.
#[derive(Clone, Debug)]
pub(crate) struct FeatureColumn {
    /// The name of the feature.
    pub name: String,
    kind: ValueKind,
    /// The type of each value.
    item: DataType,
    is_list: bool,
}

/// Values of a column.
enum FlatValues {
    Bytes(BinaryBuilder),
    Floats(Float32Builder),
    Integers(Int64Builder),
}

/// The rows of a column.
pub(crate) struct ColumnRows {
    values: FlatValues,
    /// Values of each row; `None` for null.
    lengths: Vec<Option<usize>>,
}

// === impl SeenFeatures ===

impl SeenFeatures {
    /// Adds a record; an error is the name of a feature, and the reason.
    pub(crate) fn add(&mut self, features: &[Feature<'_>]) -> Result<(), (String, String)> {
        for (name, values) in features {
            if !self.0.contains_key(*name) {
                self.0.insert((*name).to_owned(), SeenFeature { kind: None, is_text: true, is_single: true });
            }
            let Some(seen) = self.0.get_mut(*name) else { continue };
            let Some(values) = values.as_ref().filter(|values| values.len() > 0) else { continue };
            let found = values.kind();
            let known = *seen.kind.get_or_insert(found);
            if known != found {
                return Err(((*name).to_owned(), other_kind(found, known)));
            }
            seen.is_single &= values.len() == 1;
            if let Values::Bytes(values) = values {
                seen.is_text = seen.is_text && values.iter().all(|value| std::str::from_utf8(value).is_ok());
            }
        }
        Ok(())
    }

    /// The columns, sorted by name: features have no order.
    pub(crate) fn finish(self, options: &Options) -> Result<Vec<FeatureColumn>, ConvertError> {
        options.check_types(self.0.keys().map(String::as_str))?;
        let column = |(name, seen): (String, SeenFeature)| {
            let kind = seen.kind.unwrap_or(ValueKind::Bytes);
            let item = match (options.type_of(&name), kind) {
                (Some(set), _) if is_allowed(kind, set) => set.clone(),
                (Some(set), _) => {
                    let reason = format!(
                        "--type {name}={}: the feature is {}, which becomes {}",
                        type_name::name(set),
                        kind.name(),
                        allowed(kind)
                    );
                    return Err(ConvertError::Usage(reason));
                }
                (None, ValueKind::Bytes) if seen.is_text && seen.kind.is_some() => DataType::Utf8,
                (None, ValueKind::Bytes) => DataType::Binary,
                (None, ValueKind::Floats) => DataType::Float32,
                (None, ValueKind::Integers) => DataType::Int64,
            };
            Ok(FeatureColumn { name, kind, item, is_list: !seen.is_single })
        };
        self.0.into_iter().map(column).collect()
    }
}

fn is_allowed(kind: ValueKind, set: &DataType) -> bool {
    match kind {
        ValueKind::Bytes => {
            matches!(set, DataType::Binary | DataType::LargeBinary | DataType::Utf8 | DataType::LargeUtf8)
        }
        ValueKind::Floats => matches!(set, DataType::Float32 | DataType::Float64),
        ValueKind::Integers => set.is_integer(),
    }
}

fn allowed(kind: ValueKind) -> &'static str {
    match kind {
        ValueKind::Bytes => "binary or string",
        ValueKind::Floats => "float32 or float64",
        ValueKind::Integers => "an integer type",
    }
}

fn other_kind(found: ValueKind, known: ValueKind) -> String {
    let (found, known) = (found.name(), known.name());
    format!("it is {found} here, and {known} before: convert files of each schema separately")
}

// === impl FeatureColumn ===

impl FeatureColumn {
    /// The column of the result.
    pub(crate) fn field(&self) -> Field {
        let item = self.item.clone();
        let kind = if self.is_list { DataType::List(Arc::new(Field::new_list_field(item, true))) } else { item };
        Field::new(&self.name, kind, true)
    }

    /// An empty array to append to.
    pub(crate) fn rows(&self) -> ColumnRows {
        let values = match self.kind {
            ValueKind::Bytes => FlatValues::Bytes(BinaryBuilder::new()),
            ValueKind::Floats => FlatValues::Floats(Float32Builder::new()),
            ValueKind::Integers => FlatValues::Integers(Int64Builder::new()),
        };
        ColumnRows { values, lengths: Vec::new() }
    }

    /// Appends a row; an error is the reason.
    pub(crate) fn append(
        &self,
        rows: &mut ColumnRows,
        values: Option<&Values<'_>>,
        infer_rows: usize,
    ) -> Result<(), String> {
        let count = values.map(Values::len).filter(|count| self.is_list || *count > 0);
        if let (false, Some(count @ 2..)) = (self.is_list, count) {
            return Err(format!(
                "it has {count} values, and at most one in the first {infer_rows} records: raise --infer-rows"
            ));
        }
        rows.lengths.push(count);
        match (&mut rows.values, values) {
            (_, None) => {}
            (_, Some(values)) if values.len() == 0 => {}
            (FlatValues::Bytes(flat), Some(Values::Bytes(values))) => {
                for value in values {
                    flat.append_value(value);
                }
            }
            (FlatValues::Floats(flat), Some(Values::Floats(values))) => flat.append_slice(values),
            (FlatValues::Integers(flat), Some(Values::Integers(values))) => flat.append_slice(values),
            (_, Some(values)) => return Err(other_kind(values.kind(), self.kind)),
        }
        if !self.is_list && count.is_none() {
            rows.values.append_null();
        }
        Ok(())
    }

    /// The array; an error is the place of its row in the array, and the reason.
    pub(crate) fn finish(&self, rows: ColumnRows) -> Result<ArrayRef, (usize, String)> {
        let ColumnRows { values, lengths } = rows;
        let values = values.finish();
        let values = exact_cast(&values, &self.item).map_err(|error| {
            let is_bad = |place: &usize| match values.as_binary_opt::<i32>() {
                // A cast checks all bytes of an array, also of a slice.
                Some(values) => std::str::from_utf8(values.value(*place)).is_err(),
                None => exact_cast(&values.slice(*place, 1), &self.item).is_err(),
            };
            let bad = (0..values.len()).find(is_bad).unwrap_or_default();
            let row = row_of(bad, &lengths, self.is_list);
            (row, self.misfit(&error))
        })?;
        if !self.is_list {
            return Ok(values);
        }
        let nulls: NullBuffer = lengths.iter().map(Option::is_some).collect();
        let offsets = OffsetBuffer::from_lengths(lengths.iter().map(|length| length.unwrap_or_default()));
        let item = Arc::new(Field::new_list_field(self.item.clone(), true));
        let lists = ListArray::try_new(item, offsets, values, Some(nulls).filter(|nulls| nulls.null_count() > 0));
        lists.map(|lists| -> ArrayRef { Arc::new(lists) }).map_err(|error| (0, error.to_string()))
    }

    fn misfit(&self, error: &ArrowError) -> String {
        match self.kind {
            ValueKind::Bytes => format!("it is not UTF-8: set --type {}=binary", self.name),
            _ => format!("the type of --type does not hold it: {error}"),
        }
    }
}

fn exact_cast(values: &ArrayRef, kind: &DataType) -> Result<ArrayRef, ArrowError> {
    cast_with_options(values, kind, &CastOptions { safe: false, ..CastOptions::default() })
}

/// The row of a value.
fn row_of(place: usize, lengths: &[Option<usize>], is_list: bool) -> usize {
    if !is_list {
        return place;
    }
    let ends = lengths.iter().scan(0, |end, length| {
        *end += length.unwrap_or_default();
        Some(*end)
    });
    ends.take_while(|end| *end <= place).count()
}

// === impl FlatValues ===

impl FlatValues {
    fn append_null(&mut self) {
        match self {
            Self::Bytes(values) => values.append_null(),
            Self::Floats(values) => values.append_null(),
            Self::Integers(values) => values.append_null(),
        }
    }

    fn finish(self) -> ArrayRef {
        match self {
            Self::Bytes(mut values) => Arc::new(values.finish()),
            Self::Floats(mut values) => Arc::new(values.finish()),
            Self::Integers(mut values) => Arc::new(values.finish()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_values_are_found() {
        let lengths = [None, Some(2), Some(0), Some(1)];
        let rows: Vec<usize> = (0..3).map(|place| row_of(place, &lengths, true)).collect();
        assert_eq!(rows, [1, 1, 3]);
        assert_eq!(row_of(2, &lengths, false), 2);
    }

    #[test]
    fn types_follow_from_the_values() {
        let mut seen = SeenFeatures::default();
        let first: [Feature<'_>; 4] = [
            ("z", Some(Values::Integers(vec![1]))),
            ("text", Some(Values::Bytes(vec![b"a"]))),
            ("image", Some(Values::Bytes(vec![b"a"]))),
            ("never", None),
        ];
        seen.add(&first).unwrap();
        seen.add(&[("z", Some(Values::Integers(vec![1, 2]))), ("image", Some(Values::Bytes(vec![b"\xff"])))]).unwrap();
        seen.add(&[("z", Some(Values::Floats(Vec::new())))]).unwrap();
        let (name, reason) = seen.add(&[("z", Some(Values::Floats(vec![1.0])))]).unwrap_err();
        assert_eq!(name, "z");
        assert!(reason.contains("a float_list here, and an int64_list before"), "{reason}");
        let columns = seen.finish(&Options::new(Vec::new(), "out".into())).unwrap();
        let kinds: Vec<_> =
            columns.iter().map(|column| (column.name.as_str(), column.field().data_type().clone())).collect();
        let list = DataType::List(Arc::new(Field::new_list_field(DataType::Int64, true)));
        assert_eq!(
            kinds,
            [("image", DataType::Binary), ("never", DataType::Binary), ("text", DataType::Utf8), ("z", list)]
        );
    }
}
