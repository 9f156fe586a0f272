//! What a fitted plan probably does not mean.

use forebay_proto::v1::{self, op::Op as OpMessage};

/// Returns a sentence about each vocabulary without values, with its output and column.
pub fn warnings(plan: &v1::Plan) -> Vec<String> {
    let mut found = Vec::new();
    for output in &plan.outputs {
        for part in &output.parts {
            for op in &part.ops {
                if let Some(OpMessage::Vocab(vocab)) = &op.op
                    && vocab.values.as_ref().is_some_and(is_empty)
                {
                    let (output, columns) = (&output.name, part.columns.join("\", \""));
                    found.push(format!("output \"{output}\", column \"{columns}\": {}", empty_vocabulary(vocab)));
                }
            }
        }
    }
    found
}

fn is_empty(values: &v1::VocabValues) -> bool {
    let v1::VocabValues { strings, integers, unsigned, floats, decimals } = values;
    strings.is_empty() && integers.is_empty() && unsigned.is_empty() && floats.is_empty() && decimals.is_empty()
}

fn empty_vocabulary(vocab: &v1::Vocab) -> String {
    let effect = match vocab.oov_buckets {
        0 => "every row gets index 0".to_owned(),
        buckets => format!("every value is hashed to one of {buckets} oov_buckets"),
    };
    match vocab.min_count {
        0 | 1 => format!("the vocabulary is empty, so {effect}: the rows that pass the filter hold no value"),
        least => {
            format!("the vocabulary is empty, so {effect}: no value occurs min_count = {least} times; lower min_count")
        }
    }
}
