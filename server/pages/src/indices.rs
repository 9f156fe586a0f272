//! Pages of indices into a dictionary.

use crate::{error::PageError, runs::Runs};

/// The runs of a page of indices, which follow their width.
pub(crate) fn index_runs(body: &[u8], at: usize) -> Result<Runs, PageError> {
    match body.get(at).map(|width| u32::from(*width)) {
        Some(width) if width <= u32::BITS => Ok(Runs::new(at + 1, width)),
        Some(width) => Err(PageError::new(format!("a page declares indices of {width} bits"))),
        None => Err(PageError::new("a page of indices does not declare their width")),
    }
}

/// Checks that a dictionary has the values that indices refer to.
pub(crate) fn check_indices(indices: &[u32], values: usize) -> Result<(), PageError> {
    let largest = pulp::Arch::new().dispatch(
        #[inline(always)]
        || indices.iter().fold(0, |largest: u32, index| largest.max(*index)),
    );
    if (largest as usize) < values || indices.is_empty() {
        return Ok(());
    }
    Err(PageError::new(format!("a page refers to value {largest} of a dictionary of {values} values")))
}
