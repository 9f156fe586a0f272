//! Scalers with `by`: the chain's value, the chains that find the group of a row, and the scales of the groups.

use std::sync::Arc;

use crate::{
    compile::{
        chain::{ChainProblem, CompiledChain, Grouped, Head, RowShape},
        inputs::Inputs,
    },
    domain::Domain,
    error::OpProblem,
    ops::{Op, group_scales::GroupScales},
    vector::cast::Rounding,
};

impl CompiledChain {
    pub(super) fn push_group_scales(&mut self, scales: &GroupScales, inputs: &mut Inputs) -> Result<(), ChainProblem> {
        let problem = |problem| ChainProblem::Op(0, problem);
        if self.shape != RowShape::Single {
            return Err(problem(OpProblem::Input { takes: "one value per row", gets: self.words() }));
        }
        let Domain::Number(number) = self.domain else {
            return Err(problem(OpProblem::Input { takes: "numbers", gets: self.words() }));
        };
        let (values, index) = scales.compile().map_err(problem)?;
        let mut keys = Vec::with_capacity(values.len());
        for (column, values) in scales.by.iter().zip(values) {
            let position = Op::Vocab { values, oov_buckets: 0 };
            let key = Self::of_column(column, &[position], inputs).map_err(|found| match found {
                ChainProblem::Op(_, OpProblem::Input { takes, gets }) => {
                    problem(OpProblem::Parameter(format!("its column {column:?} of by must be {takes}, but is {gets}")))
                }
                other => other,
            });
            keys.push(key?);
        }
        let value = self.take_front(inputs);
        self.head = Head::Grouped(Arc::new(Grouped { value, keys, index }));
        self.domain = Domain::Number(number.floating());
        self.meaning = number.floating().data_type();
        (self.cardinality, self.rounding) = (None, Rounding::Nearest);
        Ok(())
    }
}
