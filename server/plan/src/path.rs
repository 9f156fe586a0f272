//! Paths of a plan's fields.

/// Returns the path of a join.
pub fn join_path(index: usize) -> String {
    format!("plan.join[{index}]")
}

/// Returns the path of the part of a chain, for errors.
pub(super) fn chain_path(output_index: usize, part_index: usize) -> String {
    format!("plan.outputs[{output_index}].parts[{part_index}]")
}
