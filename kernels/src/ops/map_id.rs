//! `map_id`: replaces `ids[i]` with `values[i]`. The `MapId` of Meta's preprocessing; `pandas.Series.map` with a
//! dictionary.
//!
//! - Other ids become `default`, or null without one. Null stays null.
//! - Whole numbers only, not dates and times; the result is signed. Ids must be distinct, and there must be as many
//!   values, at least one.

use std::sync::Arc;

use arrow::datatypes::DataType;

use super::{
    lookup_keys::counts_time,
    number_op::NumberOp,
    parameter::whole,
    vocab_index::{IndexProblem, VocabIndex},
};
use crate::{
    domain::Number,
    error::OpProblem,
    vector::tile::{Tile, Values},
};

/// The mapping.
#[derive(Debug)]
pub(crate) struct MapId {
    index: Arc<VocabIndex>,
    values: Box<[i64]>,
    default: Option<i64>,
}

impl MapId {
    /// Rejects dates and times: the meaning of an id would depend on the unit of the file.
    fn check(column: &DataType) -> Result<(), OpProblem> {
        if !counts_time(column) {
            return Ok(());
        }
        Err(OpProblem::Parameter(format!(
            "its ids are whole numbers, but its input is of type {column}; derive a number from it, for example with \
             date_part('year', …) or CAST(… AS BIGINT), or use vocab"
        )))
    }

    pub(crate) fn compile(
        ids: &[i128],
        values: &[i64],
        default: Option<i64>,
        number: Number,
        column: &DataType,
    ) -> Result<Self, OpProblem> {
        whole(number)?;
        Self::check(column)?;
        if ids.is_empty() || ids.len() != values.len() {
            let (ids, values) = (ids.len(), values.len());
            return Err(OpProblem::Parameter(format!(
                "it needs as many values as ids, at least one, not {ids} ids and {values} values"
            )));
        }
        let is_unsigned = number == Number::UInt;
        let bits = |id: i128| {
            if is_unsigned { u64::try_from(id).ok() } else { i64::try_from(id).ok().map(i64::cast_unsigned) }
        };
        let known = ids.iter().zip(values).filter_map(|(id, value)| Some((bits(*id)?, *value)));
        let (known, values): (Vec<u64>, Vec<i64>) = known.unzip();
        let index = VocabIndex::of_bits(known.iter().copied()).map_err(|problem| match problem {
            IndexProblem::Duplicate(place) => {
                let id = known[place];
                let id = if is_unsigned { id.to_string() } else { id.cast_signed().to_string() };
                OpProblem::Parameter(format!("id {id} is listed twice"))
            }
            IndexProblem::TooLong => OpProblem::Parameter("too many ids".to_owned()),
        })?;
        Ok(Self { index: Arc::new(index), values: values.into(), default })
    }

    fn find(&self, id: u64) -> Option<i64> {
        self.index.find_bits(id).map_or(self.default, |place| self.values.get(place).copied())
    }
}

impl NumberOp for MapId {
    fn apply(&self, tile: &mut Tile) {
        let mut lost = Vec::new();
        if self.default.is_none() {
            lost = match tile.values() {
                Values::Int(ids) => ids.iter().map(|id| self.find(*id as u64).is_none()).collect(),
                Values::UInt(ids) => ids.iter().map(|id| self.find(*id).is_none()).collect(),
                _ => Vec::new(),
            };
        }
        tile.map_to_ints(
            move |id| self.find(id as u64).unwrap_or_default(),
            |id| self.find(id).unwrap_or_default(),
            |_| 0,
        );
        if lost.contains(&true) {
            tile.clear_where(|row| lost[row]);
        }
    }

    #[cfg(feature = "cuda")]
    fn write(&self, writer: &mut crate::cuda::writer::Writer) {
        let first = writer.vocabulary(&self.index);
        let values = writer.numbers(self.values.iter().map(|value| *value as u64));
        writer.group(&[values, self.default.unwrap_or_default() as u64, u64::from(self.default.is_some())]);
        writer.assign_int(&format!("map_id(run, {first}, value_bits({}), valid)", writer.value()));
    }

    fn maps_to_null(&self) -> bool {
        self.default.is_none()
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::UInt64Array;

    use crate::{
        Op,
        testing::{assert_ints, compile_error, doubles, evaluate, ints},
    };

    fn map_id(ids: &[i128], values: &[i64], default: Option<i64>) -> [Op; 1] {
        [Op::MapId { ids: ids.to_vec(), values: values.to_vec(), default }]
    }

    #[test]
    fn maps_ids_to_values() {
        let column = || ints(&[Some(7), Some(-1), None, Some(8)]);
        assert_ints(&evaluate(&map_id(&[7, -1], &[70, 10], None), column()), &[Some(70), Some(10), None, None]);
        assert_ints(&evaluate(&map_id(&[7, -1], &[70, 10], Some(3)), column()), &[Some(70), Some(10), None, Some(3)]);
    }

    #[test]
    fn distinguishes_the_largest_unsigned_id_from_minus_one() {
        let column = UInt64Array::from(vec![u64::MAX, 7]);
        assert_ints(&evaluate(&map_id(&[-1, 7], &[1, 2], Some(0)), column.clone()), &[Some(0), Some(2)]);
        assert_ints(&evaluate(&map_id(&[-1, u64::MAX.into()], &[1, 2], Some(0)), column), &[Some(2), Some(0)]);
        let column = ints(&[Some(-1), Some(i64::MAX)]);
        let unsigned = map_id(&[u64::MAX.into(), i64::MAX.into()], &[1, 2], None);
        assert_ints(&evaluate(&unsigned, column), &[None, Some(2)]);
    }

    #[test]
    fn rejects_invalid_mappings() {
        assert!(compile_error(&map_id(&[1], &[], None), ints(&[None])).ends_with("not 1 ids and 0 values"));
        assert!(compile_error(&map_id(&[], &[], None), ints(&[None])).ends_with("not 0 ids and 0 values"));
        assert!(compile_error(&map_id(&[1, 1], &[2, 3], None), ints(&[None])).ends_with("id 1 is listed twice"));
        assert!(compile_error(&map_id(&[1], &[2], None), doubles(&[None])).contains("it takes whole numbers"));
    }
}
