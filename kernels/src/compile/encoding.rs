//! `count_encode` and `target_mean`: the chain up to them finds the position of a value's number; the rest of the chain
//! is applied to the numbers once.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, Float64Array},
    datatypes::DataType,
};

use crate::{
    compile::{
        chain::{ChainProblem, CompiledChain, Joined, JoinedRows, RowFold, RowShape},
        inputs::Inputs,
    },
    error::OpProblem,
    ops::{
        Op,
        encoding::{Encoding, Folds},
        fill_null::Fill,
    },
};

impl CompiledChain {
    /// Appends an encoding and the remaining ops, which apply to its numbers. Errors count ops from the encoding.
    pub(super) fn encode_numbers(
        mut self,
        encoding: &Encoding,
        rest: &[Op],
        inputs: &mut Inputs,
    ) -> Result<Self, ChainProblem> {
        let problem = |problem| ChainProblem::Op(0, problem);
        if matches!(self.shape, RowShape::List | RowShape::Columns(_)) {
            return Err(problem(OpProblem::Input { takes: "one value per row", gets: self.words() }));
        }
        let (values, numbers) = (encoding.values.len(), encoding.numbers.len());
        if numbers != (values + 1) * encoding.width() {
            let folds = encoding.folds.as_ref().map_or(0, |folds| folds.count);
            let reason = format!("it has {numbers} numbers for {values} values and {folds} folds");
            return Err(problem(OpProblem::Parameter(reason)));
        }
        self.push(&Op::Vocab { values: Arc::clone(&encoding.values), oov_buckets: 0 }, inputs)?;
        let fold = encoding.folds.as_ref().map(|folds| row_fold(folds, inputs)).transpose()?;
        let rest = Self::compile_input(0, &DataType::Float64, rest, inputs).map_err(|problem| problem.after(1))?;
        if !matches!(rest.shape, RowShape::Single | RowShape::OneHot(_)) || rest.reads_other_columns() {
            let reason = format!("{} cannot be followed by cross or a scaler with by", encoding.op);
            return Err(problem(OpProblem::Parameter(reason)));
        }
        let rows: ArrayRef = Arc::new(Float64Array::from(encoding.numbers.clone()));
        let rows = JoinedRows::Numbers(inputs.evaluate(&rest, rows).map_err(ChainProblem::Table)?);
        Ok(rest.of_joined(Joined { front: self, fold, rows, decimals: None, _table: None }))
    }
}

/// The chain that yields the fold of a row; after the last one, that of rows without an id.
fn row_fold(folds: &Folds, inputs: &mut Inputs) -> Result<RowFold, ChainProblem> {
    let hash = Op::HashBucket { buckets: folds.count.into(), seed: folds.seed };
    let none = Op::FillNull(Fill::Integer(folds.count.into()));
    let chain = CompiledChain::compile(&folds.row_ids, &[hash, none], inputs)?;
    Ok(RowFold { chain, count: i64::from(folds.count) + 1 })
}
