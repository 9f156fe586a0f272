//! Ops over lists → changes of the lists.

use arrow::datatypes::DataType;

use crate::{
    compile::chain::{CompiledChain, Head, RowShape},
    domain::{Domain, Number},
    error::OpProblem,
    ops::{
        Op, attention_mask, first_n,
        list::{ListChange, ListSteps},
        multi_hot,
        ngram::Ngram,
        pad::{self, Pad, Side},
        step::Step,
    },
};

impl CompiledChain {
    pub(super) fn push_list(&mut self, op: &Op) -> Result<(), OpProblem> {
        let domain = self.domain;
        let gets = domain.words();
        let numbers = || {
            if let Domain::Number(number) = domain {
                Ok(number)
            } else {
                Err(OpProblem::Input { takes: "lists of numbers", gets })
            }
        };
        match op {
            Op::FirstN { n, value } => {
                let n = first_n::check(*n)?;
                self.limit(n, Side::Right);
                if let Some(value) = value {
                    self.pad((n, Side::Right), *value, numbers()?);
                }
            }
            Op::LastN { n, value } => {
                let n = first_n::check(*n)?;
                self.limit(n, Side::Left);
                if let Some(value) = value {
                    self.pad((n, Side::Left), *value, numbers()?);
                }
            }
            Op::Pad { n, value, side } => {
                let n = pad::check(*n)?;
                self.pad((n, *side), *value, numbers()?);
            }
            Op::AttentionMask { n, side } => {
                let n = attention_mask::check(*n)?;
                let step = attention_mask::compile(numbers()?, gets)?;
                self.push_step(step);
                self.pad((n, *side), 0.0, numbers()?);
                self.cardinality = Some(2);
            }
            Op::MultiHot { size } => {
                numbers()?;
                self.shape = RowShape::MultiHot(multi_hot::compile(*size, self.cardinality)?);
            }
            Op::Ngram { n, buckets, seed } => {
                let ngram = Ngram::compile(*n, *buckets, *seed)?;
                self.push_component();
                self.change(ListChange::Ngram(ngram));
                self.cardinality = Some(*buckets);
            }
            _ => {}
        }
        Ok(())
    }

    /// Takes each byte of a column of bytes as an element.
    pub(super) fn push_bytes(&mut self, n: u32) -> Result<(), OpProblem> {
        let n = pad::check(n)?;
        match (self.domain, &self.head, self.shape) {
            (Domain::Binary, Head::Strings { fill: None }, RowShape::Single) => {}
            _ => return Err(OpProblem::Input { takes: "bytes", gets: self.words() }),
        }
        self.head = Head::Numbers;
        self.domain = Domain::Number(Number::Int);
        self.meaning = DataType::UInt8;
        self.list = Some(ListSteps { exact: Some(n), ..ListSteps::default() });
        self.pad((n, Side::Right), 0.0, Number::Int);
        Ok(())
    }

    /// Cuts each list to `n` elements at a side.
    fn limit(&mut self, n: usize, side: Side) {
        let Some(list) = &mut self.list else { return };
        let (limit, cut_at) = list.limit;
        if list.changes.is_empty() && (limit == usize::MAX || cut_at == side) {
            // No element depends on another yet, so the elements that are cut are not even read.
            list.limit = (limit.min(n), side);
        } else {
            self.change(ListChange::Cut(n, side));
        }
    }

    /// Expands each list to `n` columns.
    pub(super) fn pad(&mut self, (n, side): (usize, Side), value: f64, number: Number) {
        let (pad, number) = Pad::compile((n, side), value, number);
        self.cardinality = self.cardinality.filter(|cardinality| pad.index().is_some_and(|index| index < *cardinality));
        if number.is_float() {
            self.push_step(Step::ToFloat);
        }
        self.change(ListChange::Pad(pad));
        if self.domain != Domain::Number(number) {
            self.meaning = number.data_type();
        }
        self.domain = Domain::Number(number);
        self.shape = RowShape::Columns(n);
    }

    fn change(&mut self, change: ListChange) {
        if let Some(list) = &mut self.list {
            list.changes.push((change, Vec::new()));
        }
    }
}
