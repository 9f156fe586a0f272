//! The fault words of a run: which row the CPU would report.

use super::generate::Generated;

/// Rows per tile on the CPU, as in `prelude.cu`.
const CPU_TILE_ROWS: u64 = 1024;

/// The value of every byte of a fault word without a fault, set before a run.
pub(crate) const NO_FAULT_BYTE: u8 = 0xff;

/// A row that an output rejects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The output's position in the program, and the chain's in the output.
    pub(crate) output: usize,
    pub(crate) chain: usize,
    /// The row of the run.
    pub(crate) row: usize,
    pub(crate) is_null: bool,
}

/// Converts bytes to fault words.
pub(crate) fn fault_words(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

/// The fault that the CPU finds first: outputs in order, in each the tiles of rows in order, in each the chains in
/// order, and in a chain's tile the first null before the first number that does not fit.
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
