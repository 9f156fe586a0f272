//! What to change so that a request that the memory budget refused fits it.

use forebay_runtime::budget::BudgetError;
use forebay_settings::ByteSize;

/// Advised limits are multiples of this.
const LIMIT_STEP_BYTES: u64 = 1 << 20;

/// Returns what to change so that a pass over a snapshot, such as the stream of a raw table or a fit, fits the budget
/// that refused it.
pub(super) fn of_pass(source: &BudgetError) -> String {
    if source.may_pass() {
        return format!("wait for them to end, or {}", raise(source.reserved().saturating_add(source.bytes()), 1));
    }
    raise(source.bytes(), 1)
}

/// The limit to raise, for all ranks of an epoch.
pub(super) fn raise(bytes: u64, ranks: u64) -> String {
    let limit = ByteSize(bytes.div_ceil(LIMIT_STEP_BYTES).saturating_mul(LIMIT_STEP_BYTES));
    let whom = if ranks > 1 { format!(" for all {ranks} ranks") } else { String::new() };
    format!("raise --memory-limit-bytes to {limit}{whom}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_runtime::budget::Budget;

    #[test]
    fn a_table_names_the_limit_that_it_needs() {
        let budget = Budget::new(3 << 20);
        let held = budget.reserve(2 << 20).unwrap();
        let busy = of_pass(&budget.reserve((2 << 20) + 1).unwrap_err());
        assert_eq!(busy, "wait for them to end, or raise --memory-limit-bytes to 5MiB");
        assert_eq!(of_pass(&budget.reserve(5_000_000_000).unwrap_err()), "raise --memory-limit-bytes to 4769MiB");
        drop(held);
    }
}
