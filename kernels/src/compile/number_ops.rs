//! Ops over numbers → steps.

use std::sync::Arc;

use crate::{
    compile::{
        chain::{CompiledChain, Head, RowShape},
        inputs::Inputs,
    },
    domain::{Domain, Number},
    error::OpProblem,
    ops::{
        Op,
        abs::Abs,
        box_cox::BoxCox,
        bucketize::Bucketize,
        clip::Clip,
        decimal::{self, DecimalVocab},
        fill_null::{Fill, FillNull},
        hash_bucket::HashBucket,
        logit::Logit,
        map_id::MapId,
        max_abs, min_max, one_hot,
        positive_mod::PositiveMod,
        robust,
        sigrid_hash::SigridHash,
        sqrt::Sqrt,
        standardize,
        step::Step,
        vocab::{Vocab, VocabValues},
    },
    vector::cast::Rounding,
};

/// A step, and what the values are after it.
struct Computed {
    step: Step,
    number: Number,
    /// The number of distinct indices, if the step yields indices.
    cardinality: Option<u64>,
    /// How an output rounds the values.
    rounding: Rounding,
}

impl Computed {
    /// A step that yields indices or ids.
    fn indices(step: Step, cardinality: Option<u64>) -> Self {
        Self { step, number: Number::Int, cardinality, rounding: Rounding::Fractions }
    }
}

impl CompiledChain {
    pub(super) fn push_numbers(&mut self, op: &Op, number: Number, inputs: &mut Inputs) -> Result<(), OpProblem> {
        let cardinality = self.cardinality.take();
        let Some(computed) = self.compute(op, number, cardinality, inputs)? else { return Ok(()) };
        let Computed { step, number, cardinality, rounding } = computed;
        if !self.keeps_meaning(&step, number) {
            self.meaning = number.data_type();
        }
        if !self.clip_scaled(&step) {
            self.push_step(step);
        }
        self.domain = Domain::Number(number);
        (self.cardinality, self.rounding) = (cardinality, rounding);
        Ok(())
    }

    /// The step of an op; `None` for ops that change the chain in another way.
    fn compute(
        &mut self,
        op: &Op,
        number: Number,
        cardinality: Option<u64>,
        inputs: &mut Inputs,
    ) -> Result<Option<Computed>, OpProblem> {
        // What an op yields: numbers that are rounded as before, fractions, or indices.
        let rounding = self.rounding;
        let kept = |step, number| Computed { step, number, cardinality: None, rounding };
        let clipped = |(clip, number)| kept(Step::Clip(clip), number);
        let fractions = |step| Computed { rounding: Rounding::Nearest, ..kept(step, number.floating()) };
        let scaled = |scale| fractions(Step::Scale(scale));
        let indices = |step, count| Computed::indices(step, Some(count));
        let bucketized = |(step, count): (Bucketize, u64)| indices(Step::of(step), count);
        Ok(Some(match op {
            Op::FillNull(fill) => self.fill_numbers(fill, number, cardinality)?,
            Op::Clip { min, max } => clipped(Clip::compile(*min, *max, number)?),
            Op::ClipWhole { min, max } => clipped(Clip::compile_whole(*min, *max, number)?),
            Op::Abs => kept(Step::of(Abs), number),
            Op::PositiveMod { modulus } => {
                let cardinality = (!number.is_float()).then_some(modulus.unsigned_abs());
                Computed { cardinality, ..kept(Step::of(PositiveMod::compile(*modulus)?), number) }
            }
            Op::Log1p => fractions(Step::Log1p),
            Op::Sqrt => fractions(Step::of(Sqrt)),
            Op::Logit { eps } => fractions(Step::of(Logit::compile(*eps)?)),
            Op::BoxCox { lambda } => fractions(Step::of(BoxCox::compile(*lambda)?)),
            Op::Standardize { mean, std } => scaled(standardize::compile(*mean, *std)?),
            Op::MinMax { min, max } => scaled(min_max::compile(*min, *max)?),
            Op::MaxAbs { max_abs } => scaled(max_abs::compile(*max_abs)?),
            Op::Robust { center, scale } => scaled(robust::compile(*center, *scale)?),
            Op::Bucketize { boundaries } => bucketized(Bucketize::compile(boundaries)?),
            Op::BucketizeWhole { boundaries } => bucketized(Bucketize::compile_whole(boundaries)?),
            Op::HashBucket { buckets, seed } => indices(Step::of(HashBucket::compile(*buckets, *seed)?), *buckets),
            Op::SigridHash { salt, max_value } => {
                let hash = SigridHash::compile(*salt, *max_value, number)?;
                indices(Step::of(hash), max_value.unsigned_abs())
            }
            Op::MapId { ids, values, default } => {
                let map = MapId::compile(ids, values, *default, number, &self.meaning)?;
                Computed::indices(Step::of(map), None)
            }
            Op::Vocab { values, oov_buckets } => return self.look_up_numbers(values, *oov_buckets, inputs),
            Op::OneHot { size } => return self.expand(*size, cardinality).map(|()| None),
            Op::Cross { .. }
            | Op::MultiHot { .. }
            | Op::FirstN { .. }
            | Op::LastN { .. }
            | Op::Pad { .. }
            | Op::AttentionMask { .. }
            | Op::Ngram { .. }
            | Op::Bytes { .. }
            | Op::Lookup(_)
            | Op::ScaleGroups(_)
            | Op::Encode(_) => return Ok(None),
        }))
    }

    /// Expands indices to columns.
    fn expand(&mut self, size: u32, cardinality: Option<u64>) -> Result<(), OpProblem> {
        let size = one_hot::compile(size, cardinality)?;
        self.shape = match self.shape {
            RowShape::Columns(n) => RowShape::OneHots { n, size },
            _ => RowShape::OneHot(size),
        };
        Ok(())
    }

    fn fill_numbers(&mut self, fill: &Fill, number: Number, cardinality: Option<u64>) -> Result<Computed, OpProblem> {
        let (step, number) = FillNull::compile(fill, number)?;
        if self.is_decimals() {
            // The first fill leaves no nulls for a second one.
            self.filled.get_or_insert_with(|| Box::new(fill.clone()));
        }
        if let (RowShape::List, Some(list)) = (self.shape, &mut self.list) {
            list.fills_null_lists = true;
        }
        // Indices filled with an index are still indices.
        let cardinality = cardinality.filter(|cardinality| step.index().is_some_and(|index| index < *cardinality));
        Ok(Computed { step: Step::FillNull(step), number, cardinality, rounding: self.rounding })
    }

    /// The step of a vocabulary; `None` for decimals, which the chain's head looks up.
    fn look_up_numbers(
        &mut self,
        values: &Arc<VocabValues>,
        oov_buckets: u32,
        inputs: &mut Inputs,
    ) -> Result<Option<Computed>, OpProblem> {
        if let Some(scale) = decimal::scale(&self.meaning).filter(|_| self.is_decimals()) {
            let decimals = Vocab::compile_decimals(values, oov_buckets, scale, &mut inputs.indices)?;
            if let Some((vocab, cardinality)) = decimals {
                self.look_up_decimals(vocab);
                self.cardinality = Some(cardinality);
                return Ok(None);
            }
        }
        let (vocab, cardinality) = Vocab::compile(values, oov_buckets, self.domain, &mut inputs.indices)?;
        Ok(Some(Computed::indices(Step::of(vocab), Some(cardinality))))
    }

    /// Turns a column's decimals into their positions, from 1, in a list.
    pub(super) fn look_up_decimals(&mut self, vocab: DecimalVocab) {
        // Only `fill_null` keeps decimals what they are, so every earlier step is one.
        let fill = self.filled.take().map_or(0, |fill| vocab.of_fill(&fill));
        self.steps = vec![Step::FillNull(FillNull::Int(fill))];
        self.head = Head::Decimals(vocab);
        self.set_indices();
    }

    /// Whether the values after a step, which are of kind `number`, are still values of the column.
    fn keeps_meaning(&self, step: &Step, number: Number) -> bool {
        let is_exact = decimal::scale(&self.meaning).is_none();
        self.domain == Domain::Number(number)
            && (matches!(step, Step::FillNull(_)) || is_exact && matches!(step, Step::Clip(_)))
    }

    /// Merges a clip into the scale before it, which is faster than a separate step. Returns whether it did.
    fn clip_scaled(&mut self, step: &Step) -> bool {
        match (self.last_steps().last_mut(), step) {
            (Some(Step::Scale(scale)), Step::Clip(Clip::Float { min, max })) if scale.is_unbounded() => {
                (scale.min, scale.max) = (*min, *max);
                true
            }
            _ => false,
        }
    }
}
