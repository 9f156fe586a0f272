//! The canonical form of a plan, and its digest: equivalent plans have the same id.

use forebay_kernels::ExactDecimal;
use forebay_proto::{
    ops, plan_to_bytes,
    v1::{self, fill_null::Fill, op::Op as OpMessage},
};
use forebay_runtime::state::short_digest;

use super::{decode_image::defaults, default_dtype::dtype_of, grouped_ops::scales_mut, history_ops::history_path};

/// Returns the plan with one column per part, one column per lookup, a dtype for every output and a key for every join.
/// Parts are concatenated, so no output changes, and each op has its own fields for what it learns from its column.
pub fn canonical(plan: &v1::Plan) -> v1::Plan {
    let outputs = plan.outputs.iter().map(|output| {
        let parts = output.parts.iter().flat_map(|part| {
            let chains =
                part.columns.iter().flat_map(|column| chains_of(&part.ops).into_iter().map(move |ops| (column, ops)));
            chains.map(|(column, ops)| v1::Part { columns: vec![column.clone()], ops })
        });
        v1::Output {
            name: output.name.clone(),
            dtype: Some(dtype_of(output)),
            parts: parts.collect(),
            pack: output.pack,
            part: output.part,
        }
    });
    let mut units = plan.units.clone();
    units.sort_by(|one, other| one.column.cmp(&other.column));
    let mut types = plan.types.clone();
    types.sort_by(|one, other| one.column.cmp(&other.column));
    let join = plan.join.iter().map(|join| {
        let key = if join.key.is_empty() { &join.on } else { &join.key };
        let as_of = join.as_of.as_ref().map(|as_of| {
            let right = if as_of.right.is_empty() { &as_of.left } else { &as_of.right };
            let allow_exact = as_of.allow_exact.filter(|allows| !allows);
            v1::AsOf { right: right.clone(), allow_exact, ..as_of.clone() }
        });
        v1::Join { key: key.clone(), as_of, ..join.clone() }
    });
    let mut canonical = v1::Plan {
        filter: plan.filter.trim().to_owned(),
        derive: plan.derive.clone(),
        outputs: outputs.collect(),
        units,
        join: join.collect(),
        types,
        history: plan.history.clone().filter(|_| history_path(plan).is_some()),
    };
    defaults::write_turned_like(&mut canonical);
    canonical
}

/// Returns a chain for each combination of columns of the lookups: the first lookup's columns in order, each with those
/// of the next.
fn chains_of(ops: &[v1::Op]) -> Vec<Vec<v1::Op>> {
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
            // An op may contain a vocabulary of megabytes: it is copied once per chain.
            _ => chains.iter_mut().for_each(|chain| chain.push(canonical_op(op.clone()))),
        }
    }
    chains
}

/// Returns the op with its defaults, and with decimals in their canonical spelling. Invalid decimals are kept for the
/// error that names them.
fn canonical_op(mut op: v1::Op) -> v1::Op {
    op.op.iter_mut().for_each(ops::write_defaults);
    if let Some(OpMessage::DecodeImage(message)) = &mut op.op {
        defaults::write(message);
    }
    if let Some(Some(scales)) = op.op.as_mut().and_then(scales_mut) {
        scales.keys.iter_mut().for_each(|keys| canonical_decimals(&mut keys.decimals));
    }
    let texts = match &mut op.op {
        Some(
            OpMessage::Vocab(v1::Vocab { values: Some(values), .. })
            | OpMessage::CountEncode(v1::CountEncode { values: Some(values), .. })
            | OpMessage::TargetMean(v1::TargetMean { values: Some(values), .. }),
        ) => values.decimals.as_mut_slice(),
        Some(OpMessage::FillNull(v1::FillNull { fill: Some(Fill::Decimal(text)) })) => std::slice::from_mut(text),
        _ => &mut [],
    };
    canonical_decimals(texts);
    op
}

fn canonical_decimals(texts: &mut [String]) {
    for text in texts {
        if let Some(canonical) = ExactDecimal::canonical(text) {
            *text = canonical;
        }
    }
}

/// Returns the number of canonical parts of a part.
fn chain_count(part: &v1::Part) -> usize {
    let lookups = part.ops.iter().map(|op| match &op.op {
        Some(OpMessage::Lookup(lookup)) => lookup.columns.len().max(1),
        _ => 1,
    });
    lookups.fold(part.columns.len(), usize::saturating_mul)
}

/// Converts a path in the canonical plan to the path in the plan that the client sent, whose `parts[…]` differ.
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

/// Returns the id of a canonical plan: the first 32 hexadecimal digits of the SHA-256 of its canonical bytes.
pub fn plan_id(plan: &v1::Plan) -> String {
    plan_id_of_bytes(&plan_to_bytes(plan))
}

/// Returns the id of a canonical plan from its canonical bytes.
pub fn plan_id_of_bytes(bytes: &[u8]) -> String {
    short_digest(&[b"forebay plan 1\n", bytes])
}
