//! The canonical bytes of a plan: its id is their digest, and state directories hold them.
//!
//! A canonical plan names every dtype. Its bytes leave out FLOAT32, the value 0, as they did before the field had
//! presence: ids and stored plans keep their meaning.

use prost::{DecodeError, Message as _, encoding};

use crate::v1::{DType, Output, Plan};

/// The field numbers of `Plan.outputs` and `Output.parts`.
const OUTPUTS: u32 = 3;
const PARTS: u32 = 3;

/// Writes a plan whose outputs all name their dtype.
pub fn plan_to_bytes(plan: &Plan) -> Vec<u8> {
    // Parts may hold a vocabulary of many megabytes, so they are not cloned.
    let head = Plan { filter: plan.filter.clone(), derive: plan.derive.clone(), ..Plan::default() };
    let mut bytes = head.encode_to_vec();
    for output in &plan.outputs {
        let dtype = output.dtype.filter(|dtype| *dtype != DType::Float32 as i32);
        let mut body = Output { name: output.name.clone(), dtype, ..Output::default() }.encode_to_vec();
        encoding::message::encode_repeated(PARTS, &output.parts, &mut body);
        body.extend(Output { pack: output.pack, part: output.part, ..Output::default() }.encode_to_vec());
        encoding::bytes::encode(OUTPUTS, &body, &mut bytes);
    }
    let (units, join, types) = (plan.units.clone(), plan.join.clone(), plan.types.clone());
    let tail = Plan { units, join, types, history: plan.history.clone(), ..Plan::default() };
    bytes.extend(tail.encode_to_vec());
    bytes
}

/// Reads the result of [`plan_to_bytes`].
pub fn plan_from_bytes(bytes: &[u8]) -> Result<Plan, DecodeError> {
    let mut plan = Plan::decode(bytes)?;
    for output in &mut plan.outputs {
        output.dtype.get_or_insert(DType::Float32.into());
    }
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::{ColumnType, Derive, History, Join, Pack, Part, Unit, WindowPart};

    #[test]
    fn bytes_leave_out_float32_and_nothing_else() {
        let output = |name: &str, dtype: Option<DType>| Output {
            name: name.to_owned(),
            dtype: dtype.map(Into::into),
            parts: vec![Part { columns: vec!["a".to_owned(), "b".to_owned()], ops: Vec::new() }, Part::default()],
            pack: (name == "y").then_some(Pack { length: 8, separator: Some(0), padding: -1 }),
            part: if name == "z" { WindowPart::Static.into() } else { 0 },
        };
        let plan = |first| Plan {
            filter: "a > 0".to_owned(),
            derive: vec![Derive { name: "b".to_owned(), expr: "a + 1".to_owned() }],
            outputs: vec![output("x", first), output("y", Some(DType::Int32)), output("z", Some(DType::AsStored))],
            units: vec![Unit { column: "a".to_owned(), unit: "date32[day]".to_owned() }],
            join: vec![Join { table: "t".to_owned(), on: "a".to_owned(), ..Join::default() }],
            types: vec![ColumnType { column: "a".to_owned(), r#type: "date32[day]".to_owned() }],
            history: Some(History { by: vec!["a".to_owned()], order: "b".to_owned() }),
        };
        let named = plan(Some(DType::Float32));
        let bytes = plan_to_bytes(&named);
        assert_eq!(bytes, plan(None).encode_to_vec());
        assert_eq!(plan_from_bytes(&bytes).unwrap(), named);
    }
}
