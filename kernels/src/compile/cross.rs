//! `cross`: several columns → one chain over their tuples.

use crate::{
    compile::{
        chain::{ChainProblem, CompiledChain, Head, RowShape, Tuple},
        inputs::Inputs,
    },
    error::OpProblem,
    ops::cross::Cross,
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
        let problem = |problem| ChainProblem::Op(0, problem);
        let cross = Cross::compile(columns, buckets, seed).map_err(problem)?;
        let front = Self {
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
        };
        let mut parts = vec![front];
        for column in columns {
            let part = Self::compile(column, &[], inputs).map_err(|part| match part {
                ChainProblem::Column(column) => problem(OpProblem::UnknownColumn { column }),
                ChainProblem::Type => {
                    problem(OpProblem::Input { takes: "text, bytes or numbers", gets: "of another type" })
                }
                other => other,
            })?;
            if part.shape != RowShape::Single {
                return Err(problem(OpProblem::Input { takes: "one value per row", gets: part.words() }));
            }
            parts.push(part);
        }
        for part in &mut parts {
            part.push_component();
        }
        self.head = Head::Tuple(Tuple { parts, cross });
        self.set_indices();
        self.cardinality = Some(buckets);
        Ok(())
    }
}
