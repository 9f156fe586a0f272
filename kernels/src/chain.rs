//! A chain of ops compiled against its column's type: how tiles are loaded, the steps over them, and what comes out.

use arrow::datatypes::DataType;

use crate::domain::{Domain, Number};
use crate::error::OpProblem;
use crate::ops::bucketize::Bucketize;
use crate::ops::clip::Clip;
use crate::ops::fill_null::FillNull;
use crate::ops::hash_bucket::HashBucket;
use crate::ops::min_max::MinMax;
use crate::ops::standardize::Standardize;
use crate::ops::vocab::{Indices, Vocab};
use crate::ops::{Encoder, Op, Step, one_hot};

/// A compiled chain.
#[derive(Clone, Debug)]
pub(crate) struct CompiledChain {
    pub(crate) head: Head,
    pub(crate) steps: Vec<Step>,
    /// What the chain holds at its end.
    pub(crate) domain: Domain,
    /// How many columns a `one_hot` at its end makes.
    pub(crate) one_hot: Option<usize>,
    /// How many indices there are behind the last op, if it gives indices.
    cardinality: Option<u64>,
}

/// How a column becomes tiles.
#[derive(Clone, Debug)]
pub(crate) enum Head {
    /// A column of numbers is loaded.
    Numbers,
    /// A column of text or bytes is turned into integers.
    Encoded(Encoder),
    /// A column of text or bytes stays that, so there are no tiles.
    Strings { fill: Option<String> },
}

/// Why a chain does not compile.
#[derive(Debug)]
pub(crate) enum ChainProblem {
    /// No op and no numeric output reads the column's type.
    Type,
    /// The op (counted from 0) is wrong.
    Op(usize, OpProblem),
}

impl CompiledChain {
    pub(crate) fn compile(ops: &[Op], data_type: &DataType, indices: &mut Indices) -> Result<Self, ChainProblem> {
        let domain = Domain::of(data_type).ok_or(ChainProblem::Type)?;
        let head = match domain {
            Domain::Number(_) => Head::Numbers,
            Domain::Text | Domain::Binary => Head::Strings { fill: None },
        };
        let mut chain = Self { head, steps: Vec::new(), domain, one_hot: None, cardinality: None };
        for (place, op) in ops.iter().enumerate() {
            chain.push(op, indices).map_err(|problem| ChainProblem::Op(place, problem))?;
        }
        Ok(chain)
    }

    /// How many columns of an output the chain makes.
    pub(crate) fn width(&self) -> usize {
        self.one_hot.unwrap_or(1)
    }

    fn push(&mut self, op: &Op, indices: &mut Indices) -> Result<(), OpProblem> {
        if self.one_hot.is_some() {
            return Err(OpProblem::AfterOneHot);
        }
        match self.domain {
            Domain::Number(number) => self.push_numbers(op, number, indices),
            Domain::Text | Domain::Binary => self.push_strings(op, indices),
        }
    }

    fn push_numbers(&mut self, op: &Op, number: Number, indices: &mut Indices) -> Result<(), OpProblem> {
        let cardinality = self.cardinality.take();
        let (step, number, cardinality) = match op {
            Op::FillNull(fill) => {
                let (step, number) = FillNull::compile(fill, number)?;
                // Filling with an index keeps them the indices they were.
                let index = if let Step::FillNull(fill) = &step { fill.index() } else { None };
                (step, number, cardinality.filter(|cardinality| index.is_some_and(|index| index < *cardinality)))
            }
            Op::Clip { min, max } => {
                let (step, number) = Clip::compile(*min, *max, number)?;
                (step, number, None)
            }
            Op::Log1p => (Step::Log1p, number.floating(), None),
            Op::Standardize { mean, std } => (Standardize::compile(*mean, *std)?, number.floating(), None),
            Op::MinMax { min, max } => (MinMax::compile(*min, *max)?, number.floating(), None),
            Op::Bucketize { boundaries } => {
                let (step, cardinality) = Bucketize::compile(boundaries)?;
                (step, Number::Int, Some(cardinality))
            }
            Op::Vocab { values, oov_buckets } => {
                let (vocab, cardinality) = Vocab::compile(values, *oov_buckets, self.domain, indices)?;
                (Step::Vocab(vocab), Number::Int, Some(cardinality))
            }
            Op::HashBucket { buckets, seed } => {
                let hash = HashBucket::compile(*buckets, *seed)?;
                (hash.step(), Number::Int, Some(hash.cardinality()))
            }
            Op::OneHot { size } => {
                self.one_hot = Some(one_hot::compile(*size, cardinality)?);
                return Ok(());
            }
        };
        self.steps.push(step);
        self.domain = Domain::Number(number);
        self.cardinality = cardinality;
        Ok(())
    }

    fn push_strings(&mut self, op: &Op, indices: &mut Indices) -> Result<(), OpProblem> {
        let Head::Strings { fill } = &mut self.head else { return Ok(()) };
        let (encoder, cardinality) = match op {
            Op::FillNull(with) => {
                // There are no nulls left for a second fill.
                fill.get_or_insert(FillNull::compile_text(with, self.domain)?);
                return Ok(());
            }
            Op::Vocab { values, oov_buckets } => {
                let (vocab, cardinality) = Vocab::compile(values, *oov_buckets, self.domain, indices)?;
                (Encoder::Vocab(vocab), cardinality)
            }
            Op::HashBucket { buckets, seed } => {
                let hash = HashBucket::compile(*buckets, *seed)?;
                (Encoder::HashBucket(hash), hash.cardinality())
            }
            _ => return Err(OpProblem::Input { takes: "numbers", gets: self.domain.words() }),
        };
        // Null rows are filled behind the encoder, with the code of what fills them.
        match fill {
            Some(text) => self.steps.push(Step::FillNull(FillNull::Int(encoder.code(text.as_bytes())))),
            None if matches!(encoder, Encoder::Vocab(_)) => self.steps.push(Vocab::null_step()),
            None => {}
        }
        self.head = Head::Encoded(encoder);
        self.domain = Domain::Number(Number::Int);
        self.cardinality = Some(cardinality);
        Ok(())
    }
}
