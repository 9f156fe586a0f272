//! Compiled ops: steps over tiles of numbers, and encoders of text and bytes.

use std::sync::Arc;

use crate::{
    ops::{
        clip::Clip, cross, fill_null::FillNull, hash_bucket::HashBucket, log1p::Log1p, number_op::NumberOp,
        scale::Scale, vocab::Vocab,
    },
    vector::tile::Tile,
};

/// A step over numbers. Only those that other code matches on, to fuse or to merge them, are variants.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    FillNull(FillNull),
    Clip(Clip),
    Log1p,
    Scale(Scale),
    ToFloat,
    /// Any other op.
    Op(Arc<dyn NumberOp>),
}

/// Converts integers to f64.
#[derive(Debug)]
struct ToFloat;

/// A compiled op that turns text or bytes into integers.
#[derive(Clone, Debug)]
pub(crate) enum Encoder {
    Vocab(Vocab),
    HashBucket(HashBucket),
    Component,
}

impl Step {
    /// The step of an op that no other code matches on.
    pub(crate) fn of(op: impl NumberOp + 'static) -> Self {
        Self::Op(Arc::new(op))
    }

    pub(crate) fn op(&self) -> &dyn NumberOp {
        match self {
            Self::FillNull(fill) => fill,
            Self::Clip(clip) => clip,
            Self::Log1p => &Log1p,
            Self::Scale(scale) => scale,
            Self::ToFloat => &ToFloat,
            Self::Op(op) => op.as_ref(),
        }
    }
}

impl NumberOp for ToFloat {
    fn apply(&self, tile: &mut Tile) {
        tile.make_floats();
    }

    #[cfg(feature = "cuda")]
    fn write(&self, writer: &mut crate::cuda::writer::Writer) {
        writer.make_floats();
    }
}

impl Encoder {
    /// The seed of the hash that the encoder computes first.
    pub(crate) fn seed(&self) -> u64 {
        match self {
            Self::Vocab(_) | Self::Component => 0,
            Self::HashBucket(hash) => hash.seed(),
        }
    }

    /// The integer that encodes a value's bytes.
    pub(crate) fn code(&self, bytes: &[u8]) -> i64 {
        match self {
            Self::Vocab(vocab) => vocab.bytes(bytes),
            Self::HashBucket(hash) => hash.bytes(bytes),
            Self::Component => cross::component(bytes),
        }
    }
}
