//! Columns of MDS: the type of each encoding, and values → arrays.

use std::sync::Arc;

use arrow::{
    array::{ArrayData, ArrayRef, FixedSizeListArray, make_array},
    buffer::Buffer,
    datatypes::{DataType, Field},
};

use crate::{json_type::JsonType, options::Options, raw_column::RawKind, text::BadText};

/// A column.
#[derive(Clone, Debug)]
pub(crate) struct MdsColumn {
    /// Its name.
    pub name: String,
    /// How its values are stored.
    pub encoding: String,
    /// How they are read.
    pub kind: MdsKind,
}

/// How the values of a column are read.
#[derive(Clone, Debug)]
pub(crate) enum MdsKind {
    /// As bytes, text or documents of any size.
    Raw(RawKind),
    /// As numbers of this type and size in bytes.
    Number(DataType, u64),
    /// As arrays of numbers of this type, size and count.
    Numbers(DataType, u64, i32),
}

// === impl MdsColumn ===

impl MdsColumn {
    /// The column of an encoding; an error is the reason.
    pub(crate) fn new(name: &str, encoding: &str, options: &Options) -> Result<Self, String> {
        let kind = kind_of(encoding)
            .map_err(|reason| format!("column \"{name}\" has the encoding {}: {reason}", encoding.escape_debug()))?;
        let kind = match (options.type_of(name), kind) {
            (None, kind) => kind,
            (Some(set), MdsKind::Raw(_)) => MdsKind::Raw(RawKind::Typed(set.clone())),
            (Some(_), _) => {
                return Err(format!("column \"{name}\" has the encoding {encoding}, which is a type: omit --type"));
            }
        };
        Ok(Self { name: name.to_owned(), encoding: encoding.to_owned(), kind })
    }

    /// Bytes of each value; `None` if they vary.
    pub(crate) fn value_bytes(&self) -> Option<u64> {
        match &self.kind {
            MdsKind::Raw(_) => None,
            MdsKind::Number(_, bytes) => Some(*bytes),
            MdsKind::Numbers(_, bytes, count) => Some(*bytes * u64::from(count.unsigned_abs())),
        }
    }

    /// The column of the result.
    pub(crate) fn field(&self) -> Field {
        match &self.kind {
            MdsKind::Raw(kind) => Field::new(&self.name, kind.data_type(), matches!(kind, RawKind::Json(_))),
            MdsKind::Number(kind, _) => Field::new(&self.name, kind.clone(), false),
            MdsKind::Numbers(kind, _, count) => {
                Field::new(&self.name, DataType::FixedSizeList(item(kind), *count), false)
            }
        }
    }

    /// Converts values.
    pub(crate) fn convert(&self, values: &[&[u8]]) -> Result<ArrayRef, BadText> {
        match &self.kind {
            MdsKind::Raw(kind) => {
                let values: Vec<Option<&[u8]>> = values.iter().copied().map(Some).collect();
                kind.convert(&values, &self.name)
            }
            MdsKind::Number(kind, _) => numbers(values, kind, values.len()),
            MdsKind::Numbers(kind, _, count) => {
                let numbers = numbers(values, kind, values.len() * count.unsigned_abs() as usize)?;
                let arrays = FixedSizeListArray::try_new(item(kind), *count, numbers, None);
                Ok(Arc::new(arrays.map_err(|error| BadText { row: 0, reason: error.to_string() })?))
            }
        }
    }
}

fn kind_of(encoding: &str) -> Result<MdsKind, String> {
    if let Some((kind, bytes)) = number_type(encoding) {
        return Ok(MdsKind::Number(kind, bytes));
    }
    match encoding {
        "str" | "str_int" | "str_float" | "str_decimal" => Ok(MdsKind::Raw(RawKind::Typed(DataType::Utf8))),
        "bytes" | "jpeg" | "png" => Ok(MdsKind::Raw(RawKind::Typed(DataType::Binary))),
        "json" => Ok(MdsKind::Raw(RawKind::Json(JsonType::default()))),
        "pil" => Err("pixels without a codec: write it as png or jpeg".to_owned()),
        "pkl" => Err("pickled objects run code: write it as json or bytes".to_owned()),
        _ => array_type(encoding),
    }
}

fn array_type(encoding: &str) -> Result<MdsKind, String> {
    let Some(rest) = encoding.strip_prefix("ndarray") else {
        return Err("it is not supported: write it as bytes or json".to_owned());
    };
    let unsized_array =
        || "arrays need a type and a shape, as in ndarray:float32:768: write it so, or as bytes".to_owned();
    let (kind, shape) = rest.strip_prefix(':').and_then(|rest| rest.split_once(':')).ok_or_else(unsized_array)?;
    let (kind, bytes) = number_type(kind).filter(|_| kind != "int").ok_or_else(unsized_array)?;
    let count = shape.split(',').try_fold(1_i32, |count, length| {
        length.parse::<i32>().ok().filter(|length| *length > 0).and_then(|length| count.checked_mul(length))
    });
    count.map(|count| MdsKind::Numbers(kind, bytes, count)).ok_or_else(unsized_array)
}

fn number_type(name: &str) -> Option<(DataType, u64)> {
    Some(match name {
        "int" | "int64" => (DataType::Int64, 8),
        "int8" => (DataType::Int8, 1),
        "int16" => (DataType::Int16, 2),
        "int32" => (DataType::Int32, 4),
        "uint8" => (DataType::UInt8, 1),
        "uint16" => (DataType::UInt16, 2),
        "uint32" => (DataType::UInt32, 4),
        "uint64" => (DataType::UInt64, 8),
        "float16" => (DataType::Float16, 2),
        "float32" => (DataType::Float32, 4),
        "float64" => (DataType::Float64, 8),
        _ => return None,
    })
}

fn item(kind: &DataType) -> Arc<Field> {
    Arc::new(Field::new_list_field(kind.clone(), false))
}

fn numbers(values: &[&[u8]], kind: &DataType, count: usize) -> Result<ArrayRef, BadText> {
    let buffer = Buffer::from_vec(values.concat());
    let data = ArrayData::builder(kind.clone()).len(count).add_buffer(buffer).align_buffers(true).build();
    data.map(make_array).map_err(|error| BadText { row: 0, reason: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings_have_types() {
        let options = Options::new(Vec::new(), "out".into());
        let kind = |encoding: &str| {
            MdsColumn::new("x", encoding, &options).map(|column| crate::type_name::name(column.field().data_type()))
        };
        for (encoding, expected) in [
            ("int", "int64"),
            ("uint16", "uint16"),
            ("float16", "halffloat"),
            ("str_decimal", "string"),
            ("jpeg", "binary"),
            ("ndarray:float32:2,3", "fixed_size_list<float>[6]"),
        ] {
            assert_eq!(kind(encoding).as_deref(), Ok(expected), "{encoding}");
        }
        for (encoding, reason) in [
            ("pil", "write it as png"),
            ("pkl", "run code"),
            ("ndarray", "need a type and a shape"),
            ("ndarray:float32", "need a type and a shape"),
            ("ndarray:float32:0", "need a type and a shape"),
            ("ndarray:float32:65536,65536", "need a type and a shape"),
            ("ndarray:int:3", "need a type and a shape"),
            ("list[jpeg]", "not supported"),
        ] {
            assert!(kind(encoding).unwrap_err().contains(reason), "{encoding}");
        }
    }
}
