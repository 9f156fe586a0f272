//! One form for plans that mean the same, and its digest.

use forebay_proto::v1;
use prost::Message as _;

use crate::state::short_digest;

/// The plan with one column a part: parts stand side by side, so this changes no output, and every op then has a place
/// for what it learns from its own column.
pub fn canonical(plan: &v1::Plan) -> v1::Plan {
    let one_column = |part: &v1::Part| -> Vec<v1::Part> {
        let single = |column: &String| v1::Part { columns: vec![column.clone()], ops: part.ops.clone() };
        part.columns.iter().map(single).collect()
    };
    let outputs = plan
        .outputs
        .iter()
        .map(|output| v1::Output { parts: output.parts.iter().flat_map(one_column).collect(), ..output.clone() });
    v1::Plan { filter: plan.filter.trim().to_owned(), derive: plan.derive.clone(), outputs: outputs.collect() }
}

/// Digest of a canonical plan: SHA-256 of its protobuf bytes, the first 32 hexadecimal digits.
pub fn plan_id(plan: &v1::Plan) -> String {
    short_digest(&[b"forebay plan 1\n", &plan.encode_to_vec()])
}
