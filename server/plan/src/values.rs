//! Lists of values of a plan → those of the kernels.

use forebay_kernels::VocabValues;
use forebay_proto::v1;

use super::error::PlanError;

/// Converts the list at a path; an error if it has values of several types.
pub(super) fn vocab_values(values: &v1::VocabValues, path: &str) -> Result<VocabValues, PlanError> {
    let empty = [
        values.strings.is_empty(),
        values.integers.is_empty(),
        values.unsigned.is_empty(),
        values.floats.is_empty(),
        values.decimals.is_empty(),
    ];
    if empty.iter().filter(|empty| !**empty).count() > 1 {
        return Err(PlanError::field(path, "set only one of strings, integers, unsigned, floats, decimals"));
    }
    Ok(if !values.integers.is_empty() {
        VocabValues::Integers(values.integers.clone())
    } else if !values.unsigned.is_empty() {
        VocabValues::Unsigned(values.unsigned.clone())
    } else if !values.floats.is_empty() {
        VocabValues::Floats(values.floats.clone())
    } else if !values.decimals.is_empty() {
        VocabValues::Decimals(values.decimals.clone())
    } else {
        VocabValues::Strings(values.strings.clone())
    })
}
