//! Ops over numbers → steps.

use std::sync::Arc;

use arrow::datatypes::DataType;

use crate::{
    compile::{
        chain::{CompiledChain, Head, RowShape},
        inputs::Inputs,
    },
    domain::{Domain, Number},
    error::OpProblem,
    ops::{
        box_cox::BoxCox,
        bucketize::Bucketize,
        clip::Clip,
        decimal::{self, DecimalVocab},
        fill_null::{Fill, FillNull},
        hash_bucket::HashBucket,
        logit::Logit,
        map_id::MapId,
        max_abs, min_max, one_hot,
        op::Op,
        positive_mod::PositiveMod,
        robust,
        sigrid_hash::SigridHash,
        standardize,
        step::Step,
        vocab::{Vocab, VocabValues},
    },
    vector::cast::Rounding,
};

/// A step, the kind of number after it, and the number of distinct indices if it yields indices.
type NumberStep = (Step, Number, Option<u64>);

impl CompiledChain {
    pub(super) fn push_numbers(&mut self, op: &Op, number: Number, inputs: &mut Inputs) -> Result<(), OpProblem> {
        let cardinality = self.cardinality.take();
        let step = match op {
            Op::FillNull(fill) => Some(self.fill_numbers(fill, number, cardinality)?),
            Op::Clip { .. }
            | Op::ClipWhole { .. }
            | Op::Log1p
            | Op::Sqrt
            | Op::Abs
            | Op::Logit { .. }
            | Op::BoxCox { .. }
            | Op::Standardize { .. }
            | Op::MinMax { .. }
            | Op::MaxAbs { .. }
            | Op::Robust { .. } => arithmetic(op, number)?,
            Op::PositiveMod { .. }
            | Op::SigridHash { .. }
            | Op::MapId { .. }
            | Op::Bucketize { .. }
            | Op::BucketizeWhole { .. }
            | Op::HashBucket { .. } => indices(op, number, &self.meaning)?,
            Op::Vocab { values, oov_buckets } => self.look_up_numbers(values, *oov_buckets, inputs)?,
            Op::OneHot { size } => {
                let size = one_hot::compile(*size, cardinality)?;
                self.shape = match self.shape {
                    RowShape::Columns(n) => RowShape::OneHots { n, size },
                    _ => RowShape::OneHot(size),
                };
                None
            }
            Op::Cross { .. }
            | Op::MultiHot { .. }
            | Op::FirstN { .. }
            | Op::LastN { .. }
            | Op::Pad { .. }
            | Op::AttentionMask { .. }
            | Op::Ngram { .. }
            | Op::Bytes { .. }
            | Op::Lookup(_)
            | Op::Encode(_) => None,
        };
        if let Some((step, number, cardinality)) = step {
            if !self.keeps_meaning(op, number) {
                self.meaning = number.data_type();
            }
            if !self.clip_scaled(&step) {
                self.push_step(step);
            }
            self.domain = Domain::Number(number);
            self.cardinality = cardinality;
            self.rounding = rounding_after(op, self.rounding);
        }
        Ok(())
    }

    fn fill_numbers(&mut self, fill: &Fill, number: Number, cardinality: Option<u64>) -> Result<NumberStep, OpProblem> {
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
        Ok((Step::FillNull(step), number, cardinality))
    }

    /// The step of a vocabulary; `None` for decimals, which the chain's head looks up.
    fn look_up_numbers(
        &mut self,
        values: &Arc<VocabValues>,
        oov_buckets: u32,
        inputs: &mut Inputs,
    ) -> Result<Option<NumberStep>, OpProblem> {
        if let Some(scale) = decimal::scale(&self.meaning).filter(|_| self.is_decimals()) {
            let decimals = Vocab::compile_decimals(values, oov_buckets, scale, &mut inputs.indices)?;
            if let Some((vocab, cardinality)) = decimals {
                self.look_up_decimals(vocab);
                self.cardinality = Some(cardinality);
                return Ok(None);
            }
        }
        let (vocab, cardinality) = Vocab::compile(values, oov_buckets, self.domain, &mut inputs.indices)?;
        Ok(Some((Step::Vocab(vocab), Number::Int, Some(cardinality))))
    }

    /// Turns a column's decimals into their positions, from 1, in a list.
    pub(super) fn look_up_decimals(&mut self, vocab: DecimalVocab) {
        // Only `fill_null` keeps decimals what they are, so every earlier step is one.
        let fill = self.filled.take().map_or(0, |fill| vocab.of_fill(&fill));
        self.steps = vec![Step::FillNull(FillNull::Int(fill))];
        self.head = Head::Decimals(vocab);
        self.set_indices();
    }

    /// Whether the values after an op, which are of kind `number`, are still values of the column.
    fn keeps_meaning(&self, op: &Op, number: Number) -> bool {
        let is_exact = decimal::scale(&self.meaning).is_none();
        self.domain == Domain::Number(number)
            && (matches!(op, Op::FillNull(_)) || is_exact && matches!(op, Op::Clip { .. } | Op::ClipWhole { .. }))
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

/// How an output rounds the result of an op on numbers.
fn rounding_after(op: &Op, before: Rounding) -> Rounding {
    match op {
        Op::Log1p
        | Op::Sqrt
        | Op::Logit { .. }
        | Op::BoxCox { .. }
        | Op::Standardize { .. }
        | Op::MinMax { .. }
        | Op::MaxAbs { .. }
        | Op::Robust { .. } => Rounding::Nearest,
        Op::FillNull(_) | Op::Clip { .. } | Op::ClipWhole { .. } | Op::Abs | Op::PositiveMod { .. } => before,
        _ => Rounding::Fractions,
    }
}

/// The step of an op that computes a number; `None` for other ops.
fn arithmetic(op: &Op, number: Number) -> Result<Option<NumberStep>, OpProblem> {
    let clipped = |(clip, number)| (Step::Clip(clip), number);
    let (step, number) = match op {
        Op::Clip { min, max } => clipped(Clip::compile(*min, *max, number)?),
        Op::ClipWhole { min, max } => clipped(Clip::compile_whole(*min, *max, number)?),
        Op::Log1p => (Step::Log1p, number.floating()),
        Op::Sqrt => (Step::Sqrt, number.floating()),
        Op::Abs => (Step::Abs, number),
        Op::Logit { eps } => (Step::Logit(Logit::compile(*eps)?), number.floating()),
        Op::BoxCox { lambda } => (Step::BoxCox(BoxCox::compile(*lambda)?), number.floating()),
        Op::Standardize { mean, std } => (Step::Scale(standardize::compile(*mean, *std)?), number.floating()),
        Op::MinMax { min, max } => (Step::Scale(min_max::compile(*min, *max)?), number.floating()),
        Op::MaxAbs { max_abs } => (Step::Scale(max_abs::compile(*max_abs)?), number.floating()),
        Op::Robust { center, scale } => (Step::Scale(robust::compile(*center, *scale)?), number.floating()),
        _ => return Ok(None),
    };
    Ok(Some((step, number, None)))
}

/// The step of an op that computes an index or an id; `None` for other ops.
fn indices(op: &Op, number: Number, meaning: &DataType) -> Result<Option<NumberStep>, OpProblem> {
    let whole = || {
        let is_whole = !number.is_float();
        let gets = Domain::Number(number).words();
        is_whole.then_some(()).ok_or(OpProblem::Input { takes: "whole numbers", gets })
    };
    let bucketized = |(step, cardinality)| (Step::Bucketize(step), Number::Int, Some(cardinality));
    Ok(Some(match op {
        Op::PositiveMod { modulus } => {
            let cardinality = (!number.is_float()).then_some(modulus.unsigned_abs());
            (Step::PositiveMod(PositiveMod::compile(*modulus)?), number, cardinality)
        }
        Op::SigridHash { salt, max_value } => {
            whole()?;
            let step = SigridHash::compile(*salt, *max_value)?;
            (Step::SigridHash(step), Number::Int, Some(max_value.unsigned_abs()))
        }
        Op::MapId { ids, values, default } => {
            whole()?;
            MapId::check(meaning)?;
            (Step::MapId(MapId::compile(ids, values, *default, number)?), Number::Int, None)
        }
        Op::Bucketize { boundaries } => bucketized(Bucketize::compile(boundaries)?),
        Op::BucketizeWhole { boundaries } => bucketized(Bucketize::compile_whole(boundaries)?),
        Op::HashBucket { buckets, seed } => {
            let hash = HashBucket::compile(*buckets, *seed)?;
            (Step::HashBucket(hash), Number::Int, Some(hash.cardinality()))
        }
        _ => return Ok(None),
    }))
}
