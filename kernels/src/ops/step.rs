//! Compiled ops: steps over tiles of numbers, and encoders of text and bytes.

use crate::{
    ops::{
        abs, box_cox::BoxCox, bucketize::Bucketize, clip::Clip, cross, fill_null::FillNull, hash_bucket::HashBucket,
        log1p, logit::Logit, map_id::MapId, positive_mod::PositiveMod, scale::Scale, sigrid_hash::SigridHash, sqrt,
        vocab::Vocab,
    },
    vector::tile::Tile,
};

/// A compiled op over numbers.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    FillNull(FillNull),
    Clip(Clip),
    Log1p,
    Sqrt,
    Abs,
    Logit(Logit),
    BoxCox(BoxCox),
    Scale(Scale),
    Bucketize(Bucketize),
    Vocab(Vocab),
    HashBucket(HashBucket),
    SigridHash(SigridHash),
    MapId(MapId),
    PositiveMod(PositiveMod),
    /// The hash of a tuple's component.
    Component,
    /// Converts integers to f64.
    ToFloat,
}

/// A compiled op that turns text or bytes into integers.
#[derive(Clone, Debug)]
pub(crate) enum Encoder {
    Vocab(Vocab),
    HashBucket(HashBucket),
    Component,
}

impl Step {
    pub(crate) fn apply(&self, tile: &mut Tile) {
        match self {
            Self::FillNull(step) => step.apply(tile),
            Self::Clip(step) => step.apply(tile),
            Self::Log1p => log1p::apply(tile),
            Self::Sqrt => sqrt::apply(tile),
            Self::Abs => abs::apply(tile),
            Self::Logit(step) => step.apply(tile),
            Self::BoxCox(step) => step.apply(tile),
            Self::Scale(step) => step.apply(tile),
            Self::Bucketize(step) => step.apply(tile),
            Self::Vocab(step) => step.apply(tile),
            Self::HashBucket(step) => step.apply(tile),
            Self::SigridHash(step) => step.apply(tile),
            Self::MapId(step) => step.apply(tile),
            Self::PositiveMod(step) => step.apply(tile),
            Self::Component => cross::components(tile),
            Self::ToFloat => tile.make_floats(),
        }
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
