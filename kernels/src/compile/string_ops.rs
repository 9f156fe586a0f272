//! Ops over text and bytes → encoders into integers.

use crate::{
    compile::{
        chain::{CompiledChain, Head},
        inputs::Inputs,
    },
    domain::Domain,
    error::OpProblem,
    ops::{
        Op,
        cross::Component,
        fill_null::FillNull,
        hash_bucket::HashBucket,
        step::{Encoder, Step},
        vocab::{NULL_IS_ZERO, Vocab},
    },
};

impl CompiledChain {
    pub(super) fn push_strings(&mut self, op: &Op, inputs: &mut Inputs) -> Result<(), OpProblem> {
        let Head::Strings { fill } = &mut self.head else {
            return Err(OpProblem::Input { takes: "numbers", gets: self.domain.words() });
        };
        let (encoder, cardinality) = match op {
            Op::FillNull(with) => {
                // The first fill leaves no nulls for a second one.
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
        // Null rows are filled after encoding, with the code of the fill value.
        if let Head::Strings { fill: Some(text) } = &self.head {
            self.steps.push(Step::FillNull(FillNull::Int(encoder.code(text.as_bytes()))));
        } else if !matches!(encoder, Encoder::HashBucket(_)) {
            self.steps.push(Step::FillNull(NULL_IS_ZERO));
        }
        self.head = Head::Encoded(encoder);
        self.set_indices();
    }

    /// Turns the chain's values into the hashes that a tuple is made of.
    pub(super) fn push_component(&mut self) {
        if let Domain::Number(_) = self.domain {
            self.push_step(Step::of(Component));
        } else {
            self.encode(Encoder::Component);
        }
        self.set_indices();
    }
}
