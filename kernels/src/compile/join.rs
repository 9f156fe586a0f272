//! A lookup in a chain: the chain up to it finds the table's row, and the rest of the chain is computed on the table once.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, UInt64Array, new_null_array};
use arrow::compute::{concat, take};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;

use crate::compile::chain::{ChainProblem, CompiledChain, Head, Joined, JoinedRows, Shape};
use crate::compile::inputs::Inputs;
use crate::domain::Domain;
use crate::error::OpProblem;
use crate::execute::source::Feed;
use crate::ops::decimal::DecimalPlaces;
use crate::ops::lookup_keys::{self, KeyIndex, Keys, KeysProblem};
use crate::ops::vocab::Vocab;
use crate::ops::{Encoder, LookupTable, Op, Step};
use crate::vector::collected::Collected;

impl CompiledChain {
    /// The chain that looks its value up and applies the remaining ops to what it finds. Errors count ops from the lookup.
    pub(crate) fn join(
        mut self,
        table: &Arc<LookupTable>,
        rest: &[Op],
        inputs: &mut Inputs,
    ) -> Result<Self, ChainProblem> {
        let problem = |problem| ChainProblem::Op(0, problem);
        if let Shape::OneHot(_) | Shape::OneHots { .. } | Shape::MultiHot(_) = self.shape {
            return Err(problem(OpProblem::AfterOneHot));
        }
        if self.shape != Shape::Single {
            return Err(problem(OpProblem::Input { takes: "one value a row", gets: self.words() }));
        }
        let keys = self.keys(table, inputs)?;
        self.find(&keys.index).map_err(problem)?;
        let data_type = table.values.data_type();
        let rest = Self::compile_input(0, data_type, rest, inputs).map_err(|problem| match problem {
            ChainProblem::Op(place, problem) => ChainProblem::Op(place + 1, problem),
            other => other,
        })?;
        if !matches!(rest.shape, Shape::Single | Shape::OneHot(_)) || matches!(rest.head, Head::Tuple(_)) {
            return Err(problem(OpProblem::Parameter("behind lookup there may be no lists and no cross".to_owned())));
        }
        let rows = rows_behind_a_null(&table.values, keys.rows.as_deref()).map_err(ChainProblem::Table)?;
        let decimals = rest.is_decimals().then(|| Arc::clone(&rows));
        let rows = match rest.head {
            Head::Strings { .. } => JoinedRows::Strings(rows),
            _ => JoinedRows::Numbers(rest.evaluate(rows).map_err(ChainProblem::Table)?),
        };
        Ok(Self {
            input: self.input,
            slot: self.slot,
            domain: rest.domain,
            meaning: rest.meaning,
            shape: rest.shape,
            cardinality: rest.cardinality,
            head: Head::Joined(Arc::new(Joined { front: self, rows, decimals })),
            steps: Vec::new(),
            list: None,
            filled: rest.filled,
        })
    }

    /// The keys of a table for what the chain holds.
    fn keys(&self, table: &LookupTable, inputs: &mut Inputs) -> Result<Keys, ChainProblem> {
        let known =
            |(keys, column, _): &&(ArrayRef, DataType, Keys)| Arc::ptr_eq(keys, &table.keys) && *column == self.meaning;
        if let Some((.., keys)) = inputs.keys.iter().find(known) {
            return Ok(keys.clone());
        }
        let keys = lookup_keys::align(table.keys.as_ref(), &self.meaning).map_err(|problem| match problem {
            KeysProblem::Types => ChainProblem::Op(0, table.not_compared(&self.meaning)),
            KeysProblem::Index(problem) => ChainProblem::Op(0, table.no_key(&problem)),
            KeysProblem::Arrow(source) => ChainProblem::Table(source),
        })?;
        inputs.keys.push((Arc::clone(&table.keys), self.meaning.clone(), keys.clone()));
        Ok(keys)
    }

    /// Turns what the chain holds into its places among keys, from 1; 0 for a null and for what has none.
    fn find(&mut self, index: &KeyIndex) -> Result<(), OpProblem> {
        match (index, self.domain) {
            (KeyIndex::Decimals(index), _) => {
                self.look_up_decimals(DecimalPlaces::of_index(Arc::clone(index)));
            }
            (KeyIndex::Values(index), Domain::Number(_)) => {
                self.push_step(Step::Vocab(Vocab::of_index(Arc::clone(index))));
                self.set_indices();
            }
            (KeyIndex::Values(index), Domain::Text) if matches!(self.head, Head::Strings { .. }) => {
                self.encode(Encoder::Vocab(Vocab::of_index(Arc::clone(index))));
            }
            (KeyIndex::Values(_), domain) => {
                return Err(OpProblem::Input { takes: "text or numbers", gets: domain.words() });
            }
        }
        Ok(())
    }

    /// The chain over a whole column, which is its only input.
    fn evaluate(&self, column: ArrayRef) -> Result<Collected, ArrowError> {
        let rows = 0..column.len();
        let mut mapped: Vec<_> = (0..=self.slot).map(|_| None).collect();
        let columns = [column];
        let feed = Feed::new(self, &columns, &rows, &mut mapped).map_err(|problem| {
            problem.source.unwrap_or_else(|| ArrowError::SchemaError("a table's column changed its type".to_owned()))
        })?;
        Ok(feed.collect(rows))
    }
}

/// A table's rows, or some of them, behind a null.
fn rows_behind_a_null(values: &ArrayRef, rows: Option<&[u64]>) -> Result<ArrayRef, ArrowError> {
    let null = new_null_array(values.data_type(), 1);
    match rows {
        None => concat(&[null.as_ref(), values.as_ref()]),
        Some(rows) => {
            let places = rows.iter().map(|row| Some(*row));
            take(values.as_ref(), &[None].into_iter().chain(places).collect::<UInt64Array>(), None)
        }
    }
}
