//! `lookup`: the chain up to it finds the position of a table's row; the rest of the chain is applied to the table
//! once.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, UInt64Array, new_null_array},
    compute::{concat, take},
    error::ArrowError,
};

use crate::{
    compile::{
        chain::{ChainProblem, CompiledChain, Head, Joined, JoinedRows, RowShape},
        inputs::Inputs,
    },
    domain::Domain,
    error::OpProblem,
    ops::{
        Op,
        decimal::DecimalVocab,
        lookup::LookupTable,
        lookup_keys::{KeyIndex, LookupKeys, LookupKeysProblem},
        step::{Encoder, Step},
        vocab::Vocab,
    },
};

impl CompiledChain {
    /// Appends a lookup and the remaining ops, which apply to the values that it finds. Errors count ops from the
    /// lookup.
    pub(super) fn join(
        mut self,
        table: &Arc<LookupTable>,
        rest: &[Op],
        inputs: &mut Inputs,
    ) -> Result<Self, ChainProblem> {
        let problem = |problem| ChainProblem::Op(0, problem);
        if let RowShape::OneHot(_) | RowShape::OneHots { .. } | RowShape::MultiHot(_) = self.shape {
            return Err(problem(OpProblem::AfterOneHot));
        }
        if self.shape != RowShape::Single {
            return Err(problem(OpProblem::Input { takes: "one value per row", gets: self.words() }));
        }
        let keys = self.keys(table)?;
        self.find(&keys.index).map_err(problem)?;
        let data_type = table.values.data_type();
        let rest = Self::compile_input(0, data_type, rest, inputs).map_err(|problem| problem.after(1))?;
        if !matches!(rest.shape, RowShape::Single | RowShape::OneHot(_)) || rest.reads_other_columns() {
            let reason = "lookup cannot be followed by lists, cross or a scaler with by: use the plan's join";
            return Err(problem(OpProblem::Parameter(reason.to_owned())));
        }
        let rows = rows_after_a_null(&table.values, keys.rows.as_deref()).map_err(ChainProblem::Table)?;
        let decimals = rest.is_decimals().then(|| Arc::clone(&rows));
        let rows = match rest.head {
            Head::Strings { .. } => JoinedRows::Strings(rows),
            _ => JoinedRows::Numbers(inputs.evaluate(&rest, rows).map_err(ChainProblem::Table)?),
        };
        Ok(rest.of_joined(Joined { front: self, fold: None, rows, decimals, _table: Some(Arc::clone(table)) }))
    }

    /// The keys of a table in the representation of the chain's values.
    fn keys(&self, table: &LookupTable) -> Result<LookupKeys, ChainProblem> {
        table.keys.aligned(&self.meaning).map_err(|problem| match problem {
            LookupKeysProblem::Types => ChainProblem::Op(0, table.not_compared(&self.meaning)),
            LookupKeysProblem::Index(problem) => ChainProblem::Op(0, table.invalid_key(&problem)),
            LookupKeysProblem::Arrow(source) => ChainProblem::Table(source),
        })
    }

    /// Turns the chain's values into their positions among keys, from 1; 0 for nulls and absent values.
    fn find(&mut self, index: &KeyIndex) -> Result<(), OpProblem> {
        match (index, self.domain) {
            (KeyIndex::Decimals(index), _) => {
                self.look_up_decimals(DecimalVocab::of_index(Arc::clone(index)));
            }
            (KeyIndex::Values(index), Domain::Number(_)) => {
                self.push_step(Step::of(Vocab::of_index(Arc::clone(index))));
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
}

/// A null, followed by a table's rows or some of them.
fn rows_after_a_null(values: &ArrayRef, rows: Option<&[u64]>) -> Result<ArrayRef, ArrowError> {
    let null = new_null_array(values.data_type(), 1);
    match rows {
        None => concat(&[null.as_ref(), values.as_ref()]),
        Some(rows) => {
            let rows = rows.iter().map(|row| Some(*row));
            take(values.as_ref(), &[None].into_iter().chain(rows).collect::<UInt64Array>(), None)
        }
    }
}
