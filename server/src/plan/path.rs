//! Paths of a plan's fields.

/// The path of a chain's part, for errors.
pub(super) fn chain_path(output_index: usize, part_index: usize) -> String {
    format!("plan.outputs[{output_index}].parts[{part_index}]")
}
