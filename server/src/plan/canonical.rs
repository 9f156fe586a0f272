//! One form for plans that mean the same, and its digest.

use forebay_proto::v1;
use prost::Message as _;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;

/// The plan with one column a part: parts stand side by side, so this changes no output, and every op then has a place
/// for what it learns from its own column.
pub fn canonical(plan: &v1::Plan) -> v1::Plan {
    let one_column = |part: &v1::Part| -> Vec<v1::Part> {
        let single = |column: &String| v1::Part { columns: vec![column.clone()], ops: part.ops.clone() };
        part.columns.iter().map(single).collect()
    };
    let outputs = plan.outputs.iter().map(|output| v1::Output {
        parts: output.parts.iter().flat_map(one_column).collect(),
        ..output.clone()
    });
    v1::Plan { filter: plan.filter.trim().to_owned(), derive: plan.derive.clone(), outputs: outputs.collect() }
}

/// Digest of a canonical plan: SHA-256 of its protobuf bytes, the first 32 hexadecimal digits.
pub fn plan_id(plan: &v1::Plan) -> String {
    let mut hash = Sha256::new();
    hash.update(b"forebay plan 1\n");
    hash.update(plan.encode_to_vec());
    hash.finalize()[..16].iter().fold(String::with_capacity(32), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
