//! `cross`: several columns → one chain over their tuples.

use crate::{
    compile::{
        chain::{ChainProblem, CompiledChain, Head, RowShape, Tuple},
        inputs::Inputs,
    },
    error::OpProblem,
    ops::{Op, cross::Cross},
    vector::mapped::SharedTables,
};

impl CompiledChain {
    pub(super) fn push_cross(
        &mut self,
        columns: &[String],
        buckets: u64,
        seed: u64,
        inputs: &mut Inputs,
    ) -> Result<(), ChainProblem> {
        let cross = Cross::compile(columns, buckets, seed).map_err(|problem| ChainProblem::Op(0, problem))?;
        let mut parts = vec![self.take_front(inputs)];
        for column in columns {
            parts.push(Self::of_column(column, &[], inputs)?);
        }
        for part in &mut parts {
            part.push_component();
        }
        self.head = Head::Tuple(Tuple { parts, cross });
        self.set_indices();
        self.cardinality = Some(buckets);
        Ok(())
    }

    /// The chain so far, which becomes one of those that its next head combines.
    pub(super) fn take_front(&mut self, inputs: &mut Inputs) -> Self {
        Self {
            input: self.input,
            slot: inputs.next_slot(),
            tables: SharedTables::default(),
            head: std::mem::replace(&mut self.head, Head::Numbers),
            steps: std::mem::take(&mut self.steps),
            list: None,
            domain: self.domain,
            meaning: self.meaning.clone(),
            shape: RowShape::Single,
            cardinality: None,
            rounding: self.rounding,
            filled: self.filled.take(),
            null_advice: None,
        }
    }

    /// The chain of another column that an op reads: one value per row.
    pub(super) fn of_column(column: &str, ops: &[Op], inputs: &mut Inputs) -> Result<Self, ChainProblem> {
        let problem = |problem| ChainProblem::Op(0, problem);
        let chain = Self::compile(column, ops, inputs).map_err(|found| match found {
            ChainProblem::Column(column) => problem(OpProblem::UnknownColumn { column }),
            ChainProblem::Type => {
                problem(OpProblem::Input { takes: "text, bytes or numbers", gets: "of another type" })
            }
            other => other,
        })?;
        if chain.shape != RowShape::Single {
            return Err(problem(OpProblem::Input { takes: "one value per row", gets: chain.words() }));
        }
        Ok(chain)
    }
}
