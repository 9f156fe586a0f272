//! A chain of ops compiled against its column's type: how tiles are loaded, the steps over them, and what comes out.
//!
//! A chain over lists works on their elements: [`CompiledChain::list`] says what becomes of the lists themselves.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use arrow::error::ArrowError;

use crate::compile::inputs::Inputs;
use crate::domain::{Domain, Number, list_item};
use crate::error::OpProblem;
use crate::ops::box_cox::BoxCox;
use crate::ops::bucketize::Bucketize;
use crate::ops::clip::Clip;
use crate::ops::cross::Cross;
use crate::ops::decimal::{self, DecimalPlaces};
use crate::ops::fill_null::FillNull;
use crate::ops::hash_bucket::HashBucket;
use crate::ops::list::{ListChange, ListSteps};
use crate::ops::logit::Logit;
use crate::ops::map_id::MapId;
use crate::ops::ngram::Ngram;
use crate::ops::pad::{self, Pad};
use crate::ops::positive_mod::PositiveMod;
use crate::ops::sigrid_hash::SigridHash;
use crate::ops::vocab::Vocab;
use crate::ops::{Encoder, Fill, Op, Step, first_n, max_abs, min_max, multi_hot, one_hot, robust, standardize};
use crate::vector::collected::Collected;

/// A compiled chain.
#[derive(Clone, Debug)]
pub(crate) struct CompiledChain {
    /// The column, as a place in the inputs.
    pub(crate) input: usize,
    /// Where a builder keeps what it made of the column's dictionary.
    pub(crate) slot: usize,
    pub(crate) head: Head,
    /// Over the tiles that the head gives: of rows, or of the lists' elements.
    pub(crate) steps: Vec<Step>,
    /// For columns of lists: what happens to the lists.
    pub(crate) list: Option<ListSteps>,
    /// What the chain holds at its end.
    pub(crate) domain: Domain,
    /// What the values at its end stand for: the column's type as long as the ops leave its values what they are.
    pub(crate) meaning: DataType,
    /// How many of them a row has.
    pub(crate) shape: Shape,
    /// How many indices there are behind the last op, if it gives indices.
    pub(super) cardinality: Option<u64>,
    /// What the first `fill_null` made of the nulls, while the chain holds a column's decimals: steps have only the double of it.
    pub(crate) filled: Option<Box<Fill>>,
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
    /// A column of decimals is looked up among a table's keys or a vocabulary.
    Decimals(DecimalPlaces),
    /// Several columns are hashed together.
    Tuple(Cross),
    /// The column is looked up in a small table.
    Joined(Arc<Joined>),
}

/// A lookup, and the rest of its chain, done on the table's rows once.
#[derive(Debug)]
pub(crate) struct Joined {
    /// Gives the key's row in `rows`; 0, a null, where there is none.
    pub(crate) front: CompiledChain,
    pub(crate) rows: JoinedRows,
    /// The same rows as the table has them, if they are decimals and the chain leaves them what they are.
    pub(crate) decimals: Option<ArrayRef>,
}

/// What comes out of the chain for each row of a table, behind a null.
#[derive(Debug)]
pub(crate) enum JoinedRows {
    Numbers(Collected),
    Strings(ArrayRef),
}

/// How many values a row has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// One.
    Single,
    /// A list.
    List,
    /// So many, each a column of its own.
    Columns(usize),
    /// One index, laid out as so many columns.
    OneHot(usize),
    /// So many indices, each laid out as so many columns.
    OneHots { n: usize, size: usize },
    /// A list of indices, laid out as so many columns.
    MultiHot(usize),
}

/// Why a chain does not compile.
#[derive(Debug)]
pub(crate) enum ChainProblem {
    /// No op and no numeric output reads the column's type.
    Type,
    /// The op (counted from 0) is wrong.
    Op(usize, OpProblem),
    /// The op needs this column, which there is not.
    Column(String),
    /// A table that is looked up cannot be read.
    Table(ArrowError),
}

impl CompiledChain {
    /// Compiles a column's ops.
    pub(crate) fn compile(column: &str, ops: &[Op], inputs: &mut Inputs) -> Result<Self, ChainProblem> {
        let Some((input, field)) = inputs.place(column) else { return Err(ChainProblem::Column(column.to_owned())) };
        Self::compile_input(input, field.data_type(), ops, inputs)
    }

    pub(super) fn compile_input(
        input: usize,
        data_type: &DataType,
        ops: &[Op],
        inputs: &mut Inputs,
    ) -> Result<Self, ChainProblem> {
        let mut chain = Self::begin(input, data_type, inputs)?;
        for (place, op) in ops.iter().enumerate() {
            if let Op::Lookup(table) = op {
                return chain.join(table, &ops[place + 1..], inputs).map_err(|problem| match problem {
                    ChainProblem::Op(rest, problem) => ChainProblem::Op(place + rest, problem),
                    other => other,
                });
            }
            chain.push(op, inputs).map_err(|problem| match problem {
                ChainProblem::Op(_, problem) => ChainProblem::Op(place, problem),
                other => other,
            })?;
        }
        Ok(chain)
    }

    fn begin(input: usize, data_type: &DataType, inputs: &mut Inputs) -> Result<Self, ChainProblem> {
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
            if item.is_some() { (Shape::List, Some(ListSteps::default())) } else { (Shape::Single, None) };
        let (slot, steps) = (inputs.next_slot(), Vec::new());
        Ok(Self { input, slot, head, steps, list, domain, meaning, shape, cardinality: None, filled: None })
    }

    /// How many columns of an output the chain makes; none for lists.
    pub(crate) fn width(&self) -> Option<usize> {
        match self.shape {
            Shape::Single => Some(1),
            Shape::List => None,
            Shape::Columns(width) | Shape::OneHot(width) | Shape::MultiHot(width) => Some(width),
            Shape::OneHots { n, size } => Some(n * size),
        }
    }

    /// The kind of number that comes out.
    pub(crate) fn number(&self) -> Number {
        if let Domain::Number(number) = self.domain { number } else { Number::Int }
    }

    fn push(&mut self, op: &Op, inputs: &mut Inputs) -> Result<(), ChainProblem> {
        let problem = |problem| ChainProblem::Op(0, problem);
        match (op, self.shape) {
            (_, Shape::OneHot(_) | Shape::OneHots { .. } | Shape::MultiHot(_)) => Err(problem(OpProblem::AfterOneHot)),
            (Op::FirstN { .. } | Op::Pad { .. } | Op::MultiHot { .. } | Op::Ngram { .. }, Shape::List) => {
                self.push_list(op).map_err(problem)
            }
            (Op::FirstN { .. } | Op::Pad { .. } | Op::MultiHot { .. } | Op::Ngram { .. }, _) => {
                Err(problem(OpProblem::Input { takes: "lists", gets: self.words() }))
            }
            (Op::OneHot { .. }, Shape::List) | (Op::Cross { .. }, Shape::List | Shape::Columns(_)) => {
                Err(problem(OpProblem::Input { takes: "one value a row", gets: self.words() }))
            }
            (Op::Cross { columns, buckets, seed }, _) => self.push_cross(columns, *buckets, *seed, inputs),
            _ => match self.domain {
                Domain::Number(number) => self.push_numbers(op, number, inputs).map_err(problem),
                Domain::Text | Domain::Binary => self.push_strings(op, inputs).map_err(problem),
            },
        }
    }

    /// What the chain holds, in words.
    pub(super) fn words(&self) -> &'static str {
        match self.shape {
            Shape::List => "lists",
            Shape::Columns(_) => "several columns",
            _ => self.domain.words(),
        }
    }

    fn push_numbers(&mut self, op: &Op, number: Number, inputs: &mut Inputs) -> Result<(), OpProblem> {
        let cardinality = self.cardinality.take();
        let whole = || {
            let is_whole = !number.is_float();
            is_whole.then_some(()).ok_or(OpProblem::Input { takes: "whole numbers", gets: self.domain.words() })
        };
        let (step, number, cardinality) = match op {
            Op::FillNull(fill) => {
                let (step, number) = FillNull::compile(fill, number)?;
                if self.is_decimals() {
                    // There are no nulls left for a second fill.
                    self.filled.get_or_insert_with(|| Box::new(fill.clone()));
                }
                // Filling with an index keeps them the indices they were.
                let index = if let Step::FillNull(fill) = &step { fill.index() } else { None };
                if let (Shape::List, Some(list)) = (self.shape, &mut self.list) {
                    list.fills_null_lists = true;
                }
                (step, number, cardinality.filter(|cardinality| index.is_some_and(|index| index < *cardinality)))
            }
            Op::Clip { min, max } => {
                let (step, number) = Clip::compile(*min, *max, number)?;
                (step, number, None)
            }
            Op::ClipWhole { min, max } => {
                let (step, number) = Clip::compile_whole(*min, *max, number)?;
                (step, number, None)
            }
            Op::Log1p => (Step::Log1p, number.floating(), None),
            Op::Sqrt => (Step::Sqrt, number.floating(), None),
            Op::Abs => (Step::Abs, number, None),
            Op::Logit { eps } => (Logit::compile(*eps)?, number.floating(), None),
            Op::BoxCox { lambda } => (BoxCox::compile(*lambda)?, number.floating(), None),
            Op::Standardize { mean, std } => (standardize::compile(*mean, *std)?, number.floating(), None),
            Op::MinMax { min, max } => (min_max::compile(*min, *max)?, number.floating(), None),
            Op::MaxAbs { max_abs } => (max_abs::compile(*max_abs)?, number.floating(), None),
            Op::Robust { center, scale } => (robust::compile(*center, *scale)?, number.floating(), None),
            Op::PositiveMod { modulus } => {
                let cardinality = (!number.is_float()).then_some(modulus.unsigned_abs());
                (PositiveMod::compile(*modulus)?, number, cardinality)
            }
            Op::SigridHash { salt, max_value } => {
                whole()?;
                (SigridHash::compile(*salt, *max_value)?, Number::Int, Some(max_value.unsigned_abs()))
            }
            Op::MapId { ids, values, default } => {
                whole()?;
                MapId::check(&self.meaning)?;
                (MapId::compile(ids, values, *default, number)?, Number::Int, None)
            }
            Op::Bucketize { boundaries } => {
                let (step, cardinality) = Bucketize::compile(boundaries)?;
                (step, Number::Int, Some(cardinality))
            }
            Op::BucketizeWhole { boundaries } => {
                let (step, cardinality) = Bucketize::compile_whole(boundaries)?;
                (step, Number::Int, Some(cardinality))
            }
            Op::Vocab { values, oov_buckets } => {
                if let Some(scale) = decimal::scale(&self.meaning).filter(|_| self.is_decimals()) {
                    let places = Vocab::compile_decimals(values, *oov_buckets, scale, &mut inputs.indices)?;
                    if let Some((places, cardinality)) = places {
                        self.look_up_decimals(places);
                        self.cardinality = Some(cardinality);
                        return Ok(());
                    }
                }
                let (vocab, cardinality) = Vocab::compile(values, *oov_buckets, self.domain, &mut inputs.indices)?;
                (Step::Vocab(vocab), Number::Int, Some(cardinality))
            }
            Op::HashBucket { buckets, seed } => {
                let hash = HashBucket::compile(*buckets, *seed)?;
                (hash.step(), Number::Int, Some(hash.cardinality()))
            }
            Op::OneHot { size } => {
                let size = one_hot::compile(*size, cardinality)?;
                self.shape = match self.shape {
                    Shape::Columns(n) => Shape::OneHots { n, size },
                    _ => Shape::OneHot(size),
                };
                return Ok(());
            }
            Op::Cross { .. }
            | Op::MultiHot { .. }
            | Op::FirstN { .. }
            | Op::Pad { .. }
            | Op::Ngram { .. }
            | Op::Lookup(_) => {
                return Ok(());
            }
        };
        if !self.keeps_meaning(op, number) {
            self.meaning = number.data_type();
        }
        if !self.clip_scaled(&step) {
            self.push_step(step);
        }
        self.domain = Domain::Number(number);
        self.cardinality = cardinality;
        Ok(())
    }

    /// Whether the chain holds the decimals of a column, their nulls filled or not, one by one or in the column's lists.
    pub(crate) fn is_decimals(&self) -> bool {
        let is_changed = self.list.as_ref().is_some_and(|list| !list.changes.is_empty());
        matches!(self.head, Head::Numbers) && !is_changed && decimal::scale(&self.meaning).is_some()
    }

    /// Turns a column's decimals into their places, from 1, among a list's.
    pub(super) fn look_up_decimals(&mut self, places: DecimalPlaces) {
        // Decimals keep their meaning through `fill_null` alone, so every step before is one.
        let fill = self.filled.take().map_or(0, |fill| places.of_fill(&fill));
        self.steps = vec![Step::FillNull(FillNull::Int(fill))];
        self.head = Head::Decimals(places);
        self.set_indices();
    }

    /// Whether values behind an op, which are of `number`, are values of the column still.
    fn keeps_meaning(&self, op: &Op, number: Number) -> bool {
        let is_exact = decimal::scale(&self.meaning).is_none();
        self.domain == Domain::Number(number)
            && (matches!(op, Op::FillNull(_)) || is_exact && matches!(op, Op::Clip { .. } | Op::ClipWhole { .. }))
    }

    /// Whether a clip can be part of the step before it, which is quicker.
    fn clip_scaled(&mut self, step: &Step) -> bool {
        let steps = match self.list.as_mut().and_then(|list| list.changes.last_mut()) {
            Some((_, steps)) => steps,
            None => &mut self.steps,
        };
        match (steps.last_mut(), step) {
            (Some(Step::Scale(scale)), Step::Clip(Clip::Float { min, max })) if scale.is_open() => {
                (scale.min, scale.max) = (*min, *max);
                true
            }
            _ => false,
        }
    }

    /// A step behind what there is: over the head's tiles, or over what the last change of the lists left.
    pub(super) fn push_step(&mut self, step: Step) {
        match self.list.as_mut().and_then(|list| list.changes.last_mut()) {
            Some((_, steps)) => steps.push(step),
            None => self.steps.push(step),
        }
    }

    fn push_strings(&mut self, op: &Op, inputs: &mut Inputs) -> Result<(), OpProblem> {
        let Head::Strings { fill } = &mut self.head else {
            return Err(OpProblem::Input { takes: "numbers", gets: self.domain.words() });
        };
        let (encoder, cardinality) = match op {
            Op::FillNull(with) => {
                // There are no nulls left for a second fill.
                fill.get_or_insert(FillNull::compile_text(with, self.domain)?);
                if let Some(list) = &mut self.list {
                    list.fills_null_lists = true;
                }
                return Ok(());
            }
            Op::Vocab { values, oov_buckets } => {
                let (vocab, cardinality) = Vocab::compile(values, *oov_buckets, self.domain, &mut inputs.indices)?;
                (Encoder::Vocab(vocab), Some(cardinality))
            }
            Op::HashBucket { buckets, seed } => {
                let hash = HashBucket::compile(*buckets, *seed)?;
                (Encoder::HashBucket(hash), Some(hash.cardinality()))
            }
            _ => return Err(OpProblem::Input { takes: "numbers", gets: self.domain.words() }),
        };
        self.encode(encoder);
        self.cardinality = cardinality;
        Ok(())
    }

    /// Turns text or bytes into integers.
    pub(super) fn encode(&mut self, encoder: Encoder) {
        // Null rows are filled behind the encoder, with the code of what fills them.
        if let Head::Strings { fill: Some(text) } = &self.head {
            self.steps.push(Step::FillNull(FillNull::Int(encoder.code(text.as_bytes()))));
        } else if !matches!(encoder, Encoder::HashBucket(_)) {
            self.steps.push(Vocab::null_step());
        }
        self.head = Head::Encoded(encoder);
        self.set_indices();
    }

    /// What the chain holds from here on is an integer that an op made.
    pub(super) fn set_indices(&mut self) {
        self.domain = Domain::Number(Number::Int);
        self.meaning = DataType::Int64;
    }

    /// Turns what the chain holds into the hashes that a tuple is made of.
    fn push_component(&mut self) {
        if let Domain::Number(_) = self.domain {
            self.push_step(Step::Component);
        } else {
            self.encode(Encoder::Component);
        }
        self.set_indices();
    }

    fn push_cross(
        &mut self,
        columns: &[String],
        buckets: u64,
        seed: u64,
        inputs: &mut Inputs,
    ) -> Result<(), ChainProblem> {
        let modulus = Cross::check(columns, buckets).map_err(|problem| ChainProblem::Op(0, problem))?;
        let front = Self {
            input: self.input,
            slot: inputs.next_slot(),
            head: std::mem::replace(&mut self.head, Head::Numbers),
            steps: std::mem::take(&mut self.steps),
            list: None,
            domain: self.domain,
            meaning: self.meaning.clone(),
            shape: Shape::Single,
            cardinality: None,
            filled: self.filled.take(),
        };
        let mut parts = vec![front];
        for column in columns {
            let part = Self::compile(column, &[], inputs).map_err(|part| match part {
                ChainProblem::Column(column) => ChainProblem::Op(0, OpProblem::UnknownColumn { column }),
                ChainProblem::Type => {
                    ChainProblem::Op(0, OpProblem::Input { takes: "text, bytes or numbers", gets: "neither" })
                }
                other => other,
            })?;
            if part.shape != Shape::Single {
                return Err(ChainProblem::Op(0, OpProblem::Input { takes: "one value a row", gets: part.words() }));
            }
            parts.push(part);
        }
        for part in &mut parts {
            part.push_component();
        }
        self.head = Head::Tuple(Cross::new(parts, modulus, seed));
        self.set_indices();
        self.cardinality = Some(buckets);
        Ok(())
    }

    fn push_list(&mut self, op: &Op) -> Result<(), OpProblem> {
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
                match self.list.as_mut().and_then(|list| list.changes.last_mut()) {
                    Some(_) => self.change(ListChange::First(n)),
                    // Until the elements are joined, an element does not depend on the others: what is cut is not looked at.
                    None => {
                        if let Some(list) = &mut self.list {
                            list.limit = list.limit.min(n);
                        }
                    }
                }
                if let Some(value) = value {
                    self.pad(n, *value, numbers()?);
                }
            }
            Op::Pad { n, value } => {
                let n = pad::check(*n)?;
                self.pad(n, *value, numbers()?);
            }
            Op::MultiHot { size } => {
                numbers()?;
                self.shape = Shape::MultiHot(multi_hot::compile(*size, self.cardinality)?);
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

    fn pad(&mut self, n: usize, value: f64, number: Number) {
        let (pad, number) = Pad::compile(n, value, number);
        self.cardinality = self.cardinality.filter(|cardinality| pad.index().is_some_and(|index| index < *cardinality));
        if number.is_float() {
            self.push_step(Step::ToFloat);
        }
        self.change(ListChange::Pad(pad));
        if self.domain != Domain::Number(number) {
            self.meaning = number.data_type();
        }
        self.domain = Domain::Number(number);
        self.shape = Shape::Columns(n);
    }

    fn change(&mut self, change: ListChange) {
        if let Some(list) = &mut self.list {
            list.changes.push((change, Vec::new()));
        }
    }
}
