//! One form for plans that mean the same, and its digest.

use forebay_kernels::ExactDecimal;
use forebay_proto::v1::{self, fill_null::Fill, op::Op as OpMessage};
use prost::Message as _;

use crate::state::short_digest;

/// The plan with one column a part, and one column a lookup: parts stand side by side, so this changes no output, and every op then has a place
/// for what it learns from its own column.
pub fn canonical(plan: &v1::Plan) -> v1::Plan {
    let outputs = plan.outputs.iter().map(|output| {
        let parts = output.parts.iter().flat_map(|part| {
            let chains =
                part.columns.iter().flat_map(|column| one_lookup(&part.ops).into_iter().map(move |ops| (column, ops)));
            chains.map(|(column, ops)| v1::Part { columns: vec![column.clone()], ops })
        });
        v1::Output { name: output.name.clone(), dtype: output.dtype, parts: parts.collect() }
    });
    let mut units = plan.units.clone();
    units.sort_by(|one, other| one.column.cmp(&other.column));
    v1::Plan { filter: plan.filter.trim().to_owned(), derive: plan.derive.clone(), outputs: outputs.collect(), units }
}

/// A chain for each column that its lookups find: the first lookup's columns in turn, each with those of the next.
fn one_lookup(ops: &[v1::Op]) -> Vec<Vec<v1::Op>> {
    let mut chains = vec![Vec::with_capacity(ops.len())];
    for op in ops {
        match &op.op {
            Some(OpMessage::Lookup(lookup)) if lookup.columns.len() > 1 => {
                let one = |column: &String| {
                    let lookup = v1::Lookup { columns: vec![column.clone()], ..lookup.clone() };
                    v1::Op { op: Some(OpMessage::Lookup(lookup)) }
                };
                let longer = |chain: &Vec<v1::Op>| {
                    let chain = chain.clone();
                    lookup
                        .columns
                        .iter()
                        .map(move |column| [chain.as_slice(), &[one(column)]].concat())
                        .collect::<Vec<_>>()
                };
                chains = chains.iter().flat_map(longer).collect();
            }
            // An op may hold a vocabulary of megabytes: it is copied once a chain.
            _ => chains.iter_mut().for_each(|chain| chain.push(one_spelling(op.clone()))),
        }
    }
    chains
}

/// The op with its decimals in their canonical text. What is no decimal stays for the error that names it.
fn one_spelling(mut op: v1::Op) -> v1::Op {
    let texts = match &mut op.op {
        Some(OpMessage::Vocab(v1::Vocab { values: Some(values), .. })) => values.decimals.as_mut_slice(),
        Some(OpMessage::FillNull(v1::FillNull { fill: Some(Fill::Decimal(text)) })) => std::slice::from_mut(text),
        _ => &mut [],
    };
    for text in texts {
        if let Some(canonical) = ExactDecimal::canonical(text) {
            *text = canonical;
        }
    }
    op
}

/// How many parts of the canonical plan a part becomes.
fn chain_count(part: &v1::Part) -> usize {
    let lookups = part.ops.iter().map(|op| match &op.op {
        Some(OpMessage::Lookup(lookup)) => lookup.columns.len().max(1),
        _ => 1,
    });
    lookups.fold(part.columns.len(), usize::saturating_mul)
}

/// A path within the canonical plan as it is in the plan that was sent: `parts[…]` counts the parts that stand there.
pub(super) fn path_in_original(path: &str, original: &v1::Plan) -> Option<String> {
    let (output, rest) = path.strip_prefix("plan.outputs[")?.split_once("].parts[")?;
    let (part, rest) = rest.split_once(']')?;
    let mut chains: usize = part.parse().ok()?;
    for (index, part) in original.outputs.get(output.parse::<usize>().ok()?)?.parts.iter().enumerate() {
        let count = chain_count(part);
        if chains < count {
            return Some(format!("plan.outputs[{output}].parts[{index}]{rest}"));
        }
        chains -= count;
    }
    None
}

/// Digest of a canonical plan: SHA-256 of its protobuf bytes, the first 32 hexadecimal digits.
pub fn plan_id(plan: &v1::Plan) -> String {
    plan_id_of_bytes(&plan.encode_to_vec())
}

/// The same of a canonical plan's protobuf bytes.
pub fn plan_id_of_bytes(bytes: &[u8]) -> String {
    short_digest(&[b"forebay plan 1\n", bytes])
}
