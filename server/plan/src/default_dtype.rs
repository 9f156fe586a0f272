//! The dtype of an output that names none: an integer for indices, bytes and lists of integers, FLOAT32 for everything else.

use arrow::datatypes::{DataType, Schema};
use forebay_proto::{
    ops,
    v1::{self, fill_null::Fill, op::Op as OpMessage},
};

const INT32_MAX: u64 = i32::MAX as u64;

/// What the values of a chain are by its ops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    /// Indices up to a bound.
    Indices(u64),
    /// The elements of a column's lists, which are padded, and whole numbers up to a bound.
    Elements(u64),
    Others,
}

/// The dtype of an output: the one it names or, if it names none, UINT8 if every part ends in `bytes`, that of [`of_image`] for an image, INT32 if
/// it is packed or every part ends in indices (INT64 if an index may exceed INT32), ELEMENT if parts end in the elements of
/// padded lists, FLOAT32 otherwise.
pub(super) fn dtype_of(output: &v1::Output) -> i32 {
    output.dtype.unwrap_or_else(|| {
        if let Some(dtype) = output.parts.first().and_then(of_image) {
            return dtype.into();
        }
        if !output.parts.is_empty() && output.parts.iter().all(ends_in_bytes) {
            return v1::DType::Uint8.into();
        }
        let ends: Vec<Ends> = output.parts.iter().map(|part| ends(&part.ops)).collect();
        let dtype = match largest_index(&ends, |_| None) {
            Some(largest) => integer_of(largest),
            None if output.pack.is_some() => v1::DType::Int32,
            None if !ends.is_empty() && !ends.contains(&Ends::Others) => v1::DType::Element,
            None => v1::DType::Float32,
        };
        dtype.into()
    })
}

/// The dtype of an output whose dtype is ELEMENT, over columns of these types.
pub(super) fn of_elements(output: &v1::Output, schema: &Schema) -> v1::DType {
    let ends: Vec<Ends> = output.parts.iter().map(|part| ends(&part.ops)).collect();
    let largest = largest_index(&ends, |part| {
        let columns = output.parts.get(part)?.columns.iter();
        let largest = columns.map(|column| largest_integer(schema.field_with_name(column).ok()?.data_type()));
        largest.collect::<Option<Vec<u64>>>()?.into_iter().max()
    });
    largest.map_or(v1::DType::Float32, integer_of)
}

fn integer_of(largest: u64) -> v1::DType {
    if largest <= INT32_MAX { v1::DType::Int32 } else { v1::DType::Int64 }
}

/// A bound of the integers of parts, of which `elements` gives that of the columns of one; `None` if some are not
/// integers.
fn largest_index(ends: &[Ends], elements: impl Fn(usize) -> Option<u64>) -> Option<u64> {
    let bounds = ends.iter().enumerate().map(|(part, ends)| match ends {
        Ends::Indices(largest) => Some(*largest),
        Ends::Elements(added) => Some(elements(part)?.max(*added)),
        Ends::Others => None,
    });
    bounds.collect::<Option<Vec<u64>>>()?.into_iter().max()
}

/// The largest integer of the elements of a list; `None` if they are not integers.
fn largest_integer(data_type: &DataType) -> Option<u64> {
    use DataType as T;
    match data_type {
        T::List(item) | T::LargeList(item) | T::FixedSizeList(item, _) => match item.data_type() {
            T::Int8 | T::Int16 | T::Int32 | T::UInt8 | T::UInt16 => Some(INT32_MAX),
            T::Int64 | T::UInt32 | T::UInt64 => Some(u64::MAX),
            _ => None,
        },
        _ => None,
    }
}

/// The dtype of an image, the only part of its output: AS_STORED if it is encoded, UINT8 if every op keeps bytes, and
/// FLOAT32 otherwise; none for other parts.
fn of_image(part: &v1::Part) -> Option<v1::DType> {
    let mut ops = part.ops.iter().map(|op| op.op.as_ref());
    let Some(Some(OpMessage::DecodeImage(image))) = ops.next() else { return None };
    let keeps_bytes = |op: Option<&OpMessage>| match op {
        Some(OpMessage::Clip(_)) => true,
        Some(OpMessage::FillNull(v1::FillNull { fill: Some(fill) })) => match fill {
            Fill::Value(value) => ops::magnitude(*value).is_some(),
            Fill::Integer(_) | Fill::Unsigned(_) => true,
            Fill::Text(_) | Fill::Stat(_) | Fill::Decimal(_) => false,
        },
        _ => false,
    };
    Some(if image.encoded {
        v1::DType::AsStored
    } else if image.normalize.is_none() && ops.all(keeps_bytes) {
        v1::DType::Uint8
    } else {
        v1::DType::Float32
    })
}

fn ends_in_bytes(part: &v1::Part) -> bool {
    matches!(part.ops.last().and_then(|op| op.op.as_ref()), Some(OpMessage::Bytes(_)))
}

fn ends(ops: &[v1::Op]) -> Ends {
    let (mut largest, mut is_padded) = (0, false);
    for op in ops.iter().rev() {
        let Some(op) = &op.op else { return Ends::Others };
        if let Some(bound) = ops::index_bound(op) {
            return Ends::Indices(largest.max(bound));
        }
        let Some(added) = ops::added_index(op) else { return Ends::Others };
        largest = largest.max(added);
        is_padded |= pads(op);
    }
    if is_padded { Ends::Elements(largest) } else { Ends::Others }
}

/// Whether an op makes columns of lists.
fn pads(op: &OpMessage) -> bool {
    match op {
        OpMessage::Pad(_) => true,
        OpMessage::FirstN(v1::FirstN { value, .. }) | OpMessage::LastN(v1::LastN { value, .. }) => value.is_some(),
        _ => false,
    }
}
