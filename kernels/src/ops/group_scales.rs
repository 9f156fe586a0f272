//! `standardize`, `min_max` and `robust` with `by`: (x − shift) / divisor, with what was learned of the group of the row.
//! `PyTorch Forecasting`'s `GroupNormalizer`; `GluonTS`'s scalers, of all rows of a series.
//!
//! - A group is the rows that have the same values in the columns `by`. Values compare as in [`super::vocab`].
//! - A row of no group, such as that of a series that the fit did not see, and a row without a key become null.
//! - For arithmetic, NaN, infinities and nulls, see [`super::scale`].

use std::{
    collections::{HashMap, hash_map::Entry},
    hash::Hash,
    sync::Arc,
};

use super::{hash::float_bits, parameter::finite, vocab::VocabValues};
use crate::{
    error::OpProblem,
    vector::tile::{Tile, ValuesMut},
};

/// What a scaler has learned of each group.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupScales {
    /// The op's name in a plan.
    pub op: &'static str,
    /// The columns that tell groups apart.
    pub by: Vec<String>,
    /// For each of these columns, its value in each group.
    pub keys: Vec<Arc<VocabValues>>,
    /// For each group, the value that becomes 0.
    pub shifts: Vec<f64>,
    /// For each group, what the difference is divided by.
    pub divisors: Vec<f64>,
}

/// The scale of each group, by the positions of the group's keys among the values of their columns.
#[derive(Debug)]
pub(crate) struct ScaleIndex {
    /// For each column after the first, the position of a tuple by those of its beginning and of the column's value.
    tuples: Vec<HashMap<(i64, i64), i64>>,
    /// By the position of a group, from 1.
    scales: Vec<(f64, f64)>,
}

impl GroupScales {
    /// The distinct values of each column, and the index of the groups by their positions.
    pub(crate) fn compile(&self) -> Result<(Vec<Arc<VocabValues>>, ScaleIndex), OpProblem> {
        let invalid = |reason: String| OpProblem::Parameter(reason);
        let groups = self.shifts.len();
        let counts = self.keys.iter().map(|keys| keys.len()).chain([self.divisors.len()]);
        if self.keys.len() != self.by.len() || self.by.is_empty() || counts.into_iter().any(|count| count != groups) {
            let reason = "scales must have a list of keys for each column of by, and a key, a shift and a divisor for \
                          each group";
            return Err(invalid(reason.to_owned()));
        }
        for (shift, divisor) in self.shifts.iter().zip(&self.divisors) {
            finite("a shift", *shift)?;
            if finite("a divisor", *divisor)? <= 0.0 {
                return Err(invalid(format!("a divisor must be greater than 0, not {divisor}")));
            }
        }
        let scales = self.shifts.iter().copied().zip(self.divisors.iter().copied()).collect();
        if let [keys] = &self.keys[..] {
            // An index of the values rejects a group that occurs twice.
            return Ok((vec![Arc::clone(keys)], ScaleIndex { tuples: Vec::new(), scales }));
        }
        let (values, positions): (Vec<_>, Vec<_>) = self.keys.iter().map(|keys| distinct(keys)).unzip();
        let mut tuples = Vec::with_capacity(positions.len() - 1);
        let mut places = positions[0].clone();
        for of_column in &positions[1..] {
            let mut index = HashMap::new();
            for (place, position) in places.iter_mut().zip(of_column) {
                let next = index.len() as i64 + 1;
                *place = *index.entry((*place, *position)).or_insert(next);
            }
            tuples.push(index);
        }
        match places.iter().zip(1..).find(|(place, group)| **place != *group) {
            Some((place, group)) => Err(invalid(format!("group {group} has the keys of group {place}"))),
            None => Ok((values.into_iter().map(Arc::new).collect(), ScaleIndex { tuples, scales })),
        }
    }
}

/// The distinct values of a list, and the position of each value among them, from 1.
fn distinct(values: &VocabValues) -> (VocabValues, Vec<i64>) {
    match values {
        VocabValues::Strings(list) => {
            let (list, positions) = distinct_by(list, String::clone);
            (VocabValues::Strings(list), positions)
        }
        VocabValues::Decimals(list) => {
            let (list, positions) = distinct_by(list, String::clone);
            (VocabValues::Decimals(list), positions)
        }
        VocabValues::Integers(list) => {
            let (list, positions) = distinct_by(list, |value| *value);
            (VocabValues::Integers(list), positions)
        }
        VocabValues::Unsigned(list) => {
            let (list, positions) = distinct_by(list, |value| *value);
            (VocabValues::Unsigned(list), positions)
        }
        VocabValues::Floats(list) => {
            let (list, positions) = distinct_by(list, |value| float_bits(*value));
            (VocabValues::Floats(list), positions)
        }
    }
}

fn distinct_by<T: Clone, K: Hash + Eq>(values: &[T], key: impl Fn(&T) -> K) -> (Vec<T>, Vec<i64>) {
    let (mut found, mut known) = (Vec::new(), HashMap::new());
    let position = |value: &T| match known.entry(key(value)) {
        Entry::Occupied(entry) => *entry.get(),
        Entry::Vacant(entry) => {
            found.push(value.clone());
            *entry.insert(found.len() as i64)
        }
    };
    let positions = values.iter().map(position).collect();
    (found, positions)
}

// === impl ScaleIndex ===

impl ScaleIndex {
    /// Replaces the positions of tuples of the first columns by those of tuples of one more, whose positions are given;
    /// 0 if there is none. `columns` counts the first columns.
    pub(crate) fn extend(&self, columns: usize, places: &mut [i64], next: &[i64]) {
        let tuples = &self.tuples[columns - 1];
        // Neighbouring rows are often of one group.
        let (mut last, mut found) = ((0, 0), 0);
        for (place, next) in places.iter_mut().zip(next) {
            if (*place, *next) != last {
                last = (*place, *next);
                found = tuples.get(&last).copied().unwrap_or(0);
            }
            *place = found;
        }
    }

    /// Scales the values of rows, of which the groups have these positions.
    pub(crate) fn apply(&self, places: &[i64], tile: &mut Tile) {
        tile.make_floats();
        let scale = |place: i64| {
            let group = usize::try_from(place).ok().and_then(|place| place.checked_sub(1));
            group.and_then(|group| self.scales.get(group)).copied().unwrap_or((0.0, 1.0))
        };
        match tile.values_mut() {
            ValuesMut::F32(values) => {
                for (value, place) in values.iter_mut().zip(places) {
                    let (shift, divisor) = scale(*place);
                    *value = ((f64::from(*value) - shift) / divisor) as f32;
                }
            }
            ValuesMut::F64(values) => {
                for (value, place) in values.iter_mut().zip(places) {
                    let (shift, divisor) = scale(*place);
                    *value = (*value - shift) / divisor;
                }
            }
            ValuesMut::Int(_) | ValuesMut::UInt(_) => {}
        }
        tile.clear_where(|row| places[row] == 0);
    }
}

#[cfg(test)]
mod tests {
    use arrow::{
        array::{ArrayRef, AsArray, Float32Array, Int64Array, RecordBatch, StringArray},
        datatypes::{Float32Type, Float64Type},
    };

    use super::*;
    use crate::{Fill, Op, Prefix};

    fn scales(by: &[&str], keys: Vec<VocabValues>, shifts: Vec<f64>, divisors: Vec<f64>) -> Op {
        let by = by.iter().map(|column| (*column).to_owned()).collect();
        let keys = keys.into_iter().map(Arc::new).collect();
        Op::ScaleGroups(Arc::new(GroupScales { op: "standardize", by, keys, shifts, divisors }))
    }

    fn words(words: &[&str]) -> VocabValues {
        VocabValues::Strings(words.iter().map(|word| (*word).to_owned()).collect())
    }

    fn rows() -> RecordBatch {
        let shop = StringArray::from(vec![Some("a"), Some("b"), Some("a"), None, Some("?"), Some("b")]);
        let item = Int64Array::from(vec![Some(1), Some(1), Some(2), Some(1), Some(1), None]);
        let x = Int64Array::from(vec![Some(3), Some(5), None, Some(1), Some(1), Some(9)]);
        let y: Float32Array = [1.5, -0.5, 2.0, 1.0, 1.0, 0.3].into_iter().map(Some).collect();
        let columns: [(&str, ArrayRef); 4] =
            [("shop", Arc::new(shop)), ("item", Arc::new(item)), ("x", Arc::new(x)), ("y", Arc::new(y))];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    fn evaluate(column: &str, ops: &[Op]) -> ArrayRef {
        let rows = rows();
        Prefix::compile(column, ops, &rows.schema()).unwrap().evaluate(&rows).unwrap()
    }

    fn error(column: &str, ops: &[Op]) -> String {
        Prefix::compile(column, ops, &rows().schema()).unwrap_err().to_string()
    }

    #[test]
    fn each_row_takes_the_scale_of_its_group() {
        let op = scales(&["shop"], vec![words(&["a", "b"])], vec![1.0, 3.0], vec![2.0, 0.1]);
        let found = evaluate("x", std::slice::from_ref(&op));
        let expected = [Some(1.0), Some(2.0 / 0.1), None, None, None, Some(6.0 / 0.1)];
        assert!(found.as_primitive::<Float64Type>().iter().eq(expected));
        let filled = evaluate("x", &[op.clone(), Op::FillNull(Fill::Number(0.0)), Op::Abs]);
        assert_eq!(filled.as_primitive::<Float64Type>().values(), &[1.0, 2.0 / 0.1, 0.0, 0.0, 0.0, 6.0 / 0.1]);
        let singles = evaluate("y", &[op]);
        let of = |value: f32, shift: f64, divisor: f64| Some(((f64::from(value) - shift) / divisor) as f32);
        let expected = [of(1.5, 1.0, 2.0), of(-0.5, 3.0, 0.1), of(2.0, 1.0, 2.0), None, None, of(0.3, 3.0, 0.1)];
        assert!(singles.as_primitive::<Float32Type>().iter().eq(expected));
    }

    #[test]
    fn several_columns_tell_groups_apart() {
        let keys = vec![words(&["a", "a", "b"]), VocabValues::Integers(vec![1, 2, 1])];
        let found = evaluate("y", &[scales(&["shop", "item"], keys, vec![0.5, 1.0, 0.0], vec![1.0, 4.0, 2.0])]);
        let expected = [Some(1.0), Some(-0.25), Some(0.25), None, None, None];
        assert!(found.as_primitive::<Float32Type>().iter().eq(expected));
    }

    #[test]
    fn groups_apply_to_the_results_of_earlier_ops_and_rows() {
        let op = scales(&["x"], vec![VocabValues::Integers(vec![9, 3])], vec![1.0, 1.0], vec![1.0, 2.0]);
        let found = evaluate("x", &[Op::Abs, op]);
        assert!(found.as_primitive::<Float64Type>().iter().eq([Some(1.0), None, None, None, None, Some(8.0)]));
        let empty = evaluate("x", &[scales(&["shop"], vec![words(&[])], vec![], vec![])]);
        assert_eq!(empty.null_count(), 6);
    }

    #[test]
    fn rejects_what_does_not_fit() {
        let one = |keys, shifts, divisors| [scales(&["shop"], vec![keys], shifts, divisors)];
        for (column, ops, words) in [
            ("x", one(words(&["a", "b"]), vec![1.0], vec![1.0]), "a key, a shift and a divisor for each group"),
            ("x", one(words(&["a"]), vec![1.0], vec![0.0]), "a divisor must be greater than 0, not 0"),
            ("x", one(words(&["a"]), vec![f64::NAN], vec![1.0]), "a shift must be a finite number, not NaN"),
            ("x", one(words(&["a", "a"]), vec![1.0; 2], vec![1.0; 2]), "value \"a\" is in the vocabulary twice"),
            ("x", one(VocabValues::Integers(vec![1]), vec![1.0], vec![1.0]), "list of integers"),
            ("shop", one(words(&["a"]), vec![1.0], vec![1.0]), "it takes numbers, but its input is text"),
            ("x", [scales(&["none"], vec![words(&["a"])], vec![1.0], vec![1.0])], "there is no column \"none\""),
        ] {
            let error = error(column, &ops);
            assert!(error.contains(words), "{error}");
        }
        let keys = vec![words(&["a", "b", "a"]), VocabValues::Integers(vec![1, 1, 1])];
        let twice = scales(&["shop", "item"], keys, vec![0.0; 3], vec![1.0; 3]);
        assert!(error("x", &[twice]).ends_with("group 3 has the keys of group 1"));
    }
}
