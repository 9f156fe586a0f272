//! A column and its ops → a chain: each op goes to the compiler of the values that the chain holds at that point.

use arrow::datatypes::DataType;

use crate::{
    compile::{
        chain::{ChainProblem, CompiledChain, Head, RowShape},
        inputs::Inputs,
    },
    domain::{Domain, Number, is_integer, list_item},
    error::OpProblem,
    ops::{Op, list::ListSteps, pad::Side},
    vector::{cast::Rounding, mapped::SharedTables},
};

/// The longest fixed-size lists that are laid out as columns, such as the values of an image: 2^24, as 2364 × 2364 × 3.
pub const FIXED_WIDTH_MAX: usize = 1 << 24;

/// The number of columns that a column of fixed-size lists of numbers is laid out as, and their kind; `None` for other
/// columns, and if an op takes lists.
fn fixed_width(data_type: &DataType, chain: &CompiledChain, ops: &[Op]) -> Option<(usize, Number)> {
    match (data_type, chain.domain) {
        (DataType::FixedSizeList(_, n), Domain::Number(number)) if !ops.iter().any(takes_lists) => {
            let n = usize::try_from(*n).ok().filter(|n| (1..=FIXED_WIDTH_MAX).contains(n));
            n.map(|n| (n, number))
        }
        _ => None,
    }
}

fn takes_lists(op: &Op) -> bool {
    matches!(
        op,
        Op::FirstN { .. }
            | Op::LastN { .. }
            | Op::Pad { .. }
            | Op::AttentionMask { .. }
            | Op::MultiHot { .. }
            | Op::Ngram { .. }
    )
}

impl CompiledChain {
    /// Compiles the ops of a column.
    pub(crate) fn compile(column: &str, ops: &[Op], inputs: &mut Inputs) -> Result<Self, ChainProblem> {
        let Some((input, field)) = inputs.find(column) else { return Err(ChainProblem::Column(column.to_owned())) };
        Self::compile_input(input, field.data_type(), ops, inputs)
    }

    pub(super) fn compile_input(
        input: usize,
        data_type: &DataType,
        ops: &[Op],
        inputs: &mut Inputs,
    ) -> Result<Self, ChainProblem> {
        let mut chain = Self::of_type(input, data_type, inputs)?;
        if let Some((n, number)) = fixed_width(data_type, &chain, ops) {
            // A null row becomes n nulls; no row is shorter, so the value pads nothing.
            chain.pad((n, Side::Right), 0.0, number);
        }
        for (position, op) in ops.iter().enumerate() {
            let rest = &ops[position + 1..];
            let joined = match op {
                Op::Lookup(table) => chain.join(table, rest, inputs),
                Op::Encode(encoding) => chain.encode_numbers(encoding, rest, inputs),
                _ => {
                    chain.push(op, inputs).map_err(|problem| problem.at(position))?;
                    continue;
                }
            };
            return joined.map_err(|problem| problem.after(position));
        }
        Ok(chain)
    }

    /// The chain of a column without ops.
    fn of_type(input: usize, data_type: &DataType, inputs: &mut Inputs) -> Result<Self, ChainProblem> {
        let item = list_item(data_type);
        let meaning = match item.unwrap_or(data_type) {
            DataType::Dictionary(_, values) => values.as_ref().clone(),
            plain => plain.clone(),
        };
        let domain = Domain::of(item.unwrap_or(data_type)).ok_or(ChainProblem::Type)?;
        let head = match domain {
            Domain::Number(_) => Head::Numbers,
            Domain::Text | Domain::Binary => Head::Strings { fill: None },
        };
        let (shape, list) =
            if item.is_some() { (RowShape::List, Some(ListSteps::default())) } else { (RowShape::Single, None) };
        let rounding = if is_integer(&meaning) { Rounding::Fractions } else { Rounding::Nearest };
        let (slot, steps, cardinality) = (inputs.next_slot(), Vec::new(), None);
        let (filled, null_advice) = (None, None);
        let tables = SharedTables::default();
        Ok(Self {
            input,
            slot,
            tables,
            head,
            steps,
            list,
            domain,
            meaning,
            shape,
            cardinality,
            rounding,
            filled,
            null_advice,
        })
    }

    pub(super) fn push(&mut self, op: &Op, inputs: &mut Inputs) -> Result<(), ChainProblem> {
        let problem = |problem| ChainProblem::Op(0, problem);
        match (op, self.shape) {
            (_, RowShape::OneHot(_) | RowShape::OneHots { .. } | RowShape::MultiHot(_)) => {
                Err(problem(OpProblem::AfterOneHot))
            }
            (op, RowShape::List) if takes_lists(op) => self.push_list(op).map_err(problem),
            (op, _) if takes_lists(op) => Err(problem(OpProblem::Input { takes: "lists", gets: self.words() })),
            (Op::OneHot { .. }, RowShape::List) | (Op::Cross { .. }, RowShape::List | RowShape::Columns(_)) => {
                Err(problem(OpProblem::Input { takes: "one value per row", gets: self.words() }))
            }
            (Op::Bytes { n }, _) => self.push_bytes(*n).map_err(problem),
            (Op::Cross { columns, buckets, seed }, _) => self.push_cross(columns, *buckets, *seed, inputs),
            (Op::ScaleGroups(scales), _) => self.push_group_scales(scales, inputs),
            _ => match self.domain {
                Domain::Number(number) => self.push_numbers(op, number, inputs).map_err(problem),
                Domain::Text | Domain::Binary => self.push_strings(op, inputs).map_err(problem),
            },
        }
    }
}
