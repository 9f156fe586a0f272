//! What a run's fault words say: the row that the CPU would tell of.

use super::generate::Generated;

/// Rows of a tile of the CPU, as `prelude.cu` has them.
const CPU_TILE_ROWS: u64 = 1024;

/// No fault: what the words are set to before a run, every byte of them.
pub(crate) const NO_FAULT_BYTE: u8 = 0xff;

/// A row that an output cannot take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The output's place in the program, and the chain's in it.
    pub(crate) output: usize,
    pub(crate) chain: usize,
    /// The row of the run.
    pub(crate) row: usize,
    pub(crate) is_null: bool,
}

/// Fault words out of their bytes.
pub(crate) fn words_of(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

/// The fault that the CPU meets first: outputs in order, in each the tiles of rows in order, in each the chains in order, and in a
/// chain's tile the first null before the first number that does not fit.
pub(crate) fn first_fault(generated: &Generated, words: &[u64]) -> Option<Fault> {
    generated.outputs.iter().find_map(|output| {
        let chains = words.get(output.first_chain..output.first_chain + output.chains)?;
        let faults = chains.iter().enumerate().filter(|(_, word)| **word != u64::MAX);
        let (chain, word) = faults.min_by_key(|(chain, word)| (**word / (2 * CPU_TILE_ROWS), *chain))?;
        let (tile, rest) = (word / (2 * CPU_TILE_ROWS), word % (2 * CPU_TILE_ROWS));
        let row = (tile * CPU_TILE_ROWS + rest % CPU_TILE_ROWS) as usize;
        Some(Fault { output: output.output, chain, row, is_null: rest < CPU_TILE_ROWS })
    })
}
