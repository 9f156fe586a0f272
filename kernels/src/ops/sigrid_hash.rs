//! `sigrid_hash`: the hash of an id in 0…`max_value` − 1. Bit-equal to TorchArrow's (Velox's) `sigrid_hash`.
//!
//! - The id is mixed with Thomas Wang's 64-bit mix, combined with `salt` by `CityHash`'s 128-to-64-bit hash, and taken,
//!   as a signed number, modulo `max_value`, from 1 to 2^63 − 1.
//! - Whole numbers only; `UInt64` is hashed by its bits. Null stays null.

use super::{number_op::NumberOp, parameter::whole};
use crate::{domain::Number, error::OpProblem, vector::tile::Tile};

/// The parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SigridHash {
    salt: i64,
    max_value: i64,
}

impl SigridHash {
    pub(crate) fn compile(salt: i64, max_value: i64, number: Number) -> Result<Self, OpProblem> {
        whole(number)?;
        if max_value < 1 {
            return Err(OpProblem::Parameter(format!("max_value must be at least 1, not {max_value}")));
        }
        Ok(Self { salt, max_value })
    }

    #[inline(always)]
    fn hash(self, id: u64) -> i64 {
        (join(self.salt as u64, mix(id)) as i64).rem_euclid(self.max_value)
    }
}

impl NumberOp for SigridHash {
    fn apply(&self, tile: &mut Tile) {
        let op = *self;
        tile.map_to_ints(move |id| op.hash(id as u64), |id| op.hash(id), |_| 0);
    }

    #[cfg(feature = "cuda")]
    fn write(&self, writer: &mut crate::cuda::writer::Writer) {
        let (salt, max_value) = (writer.bits(self.salt as u64), writer.int(self.max_value));
        writer.assign_int(&format!("sigrid_hash(value_bits({}), {salt}, {max_value})", writer.value()));
    }
}

#[inline(always)]
fn mix(key: u64) -> u64 {
    let key = (!key).wrapping_add(key << 21);
    let key = key ^ (key >> 24);
    let key = key.wrapping_add(key << 3).wrapping_add(key << 8);
    let key = key ^ (key >> 14);
    let key = key.wrapping_add(key << 2).wrapping_add(key << 4);
    let key = key ^ (key >> 28);
    key.wrapping_add(key << 31)
}

#[inline(always)]
fn join(upper: u64, lower: u64) -> u64 {
    const FACTOR: u64 = 0x9ddf_ea08_eb38_2d69;
    let a = (lower ^ upper).wrapping_mul(FACTOR);
    let b = (upper ^ (a ^ (a >> 47))).wrapping_mul(FACTOR);
    (b ^ (b >> 47)).wrapping_mul(FACTOR)
}

#[cfg(test)]
mod tests {
    use crate::{
        Op,
        testing::{assert_ints, compile_error, doubles, evaluate, ints},
    };

    fn sigrid_hash(max_value: i64) -> [Op; 1] {
        [Op::SigridHash { salt: 0, max_value }]
    }

    /// `torcharrow.functional.sigrid_hash(ta.column(range(16)), 0, 100)`, from TorchArrow's tests.
    #[test]
    fn matches_torcharrow() {
        let column = ints(&(0..16).map(Some).collect::<Vec<_>>());
        let expected = [6, 60, 54, 54, 9, 4, 91, 11, 67, 79, 2, 25, 92, 98, 83, 66].map(Some);
        assert_ints(&evaluate(&sigrid_hash(100), column), &expected);
        assert_ints(&evaluate(&sigrid_hash(1), ints(&[Some(5), None])), &[Some(0), None]);
    }

    #[test]
    fn rejects_invalid_parameters_and_columns() {
        assert!(compile_error(&sigrid_hash(0), ints(&[None])).ends_with("max_value must be at least 1, not 0"));
        assert!(
            compile_error(&sigrid_hash(9), doubles(&[None]))
                .ends_with("it takes whole numbers, but its input is floating-point numbers")
        );
    }
}
