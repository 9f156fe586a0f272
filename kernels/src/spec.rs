//! The outputs of a plan: each is a list of chains, and each chain applies ops to one column.

use arrow::datatypes::DataType;

use crate::ops::Op;

/// The largest total number of columns over a program's outputs: 2^20, or 4 MiB of FLOAT32 per row.
pub const MAX_COLUMNS: usize = 1_048_576;

/// The element type of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    /// IEEE single precision.
    Float32,
    /// IEEE half precision.
    Float16,
    /// IEEE double precision.
    Float64,
    /// bfloat16, stored as uint16 with the field metadata `forebay.dtype` = `BFLOAT16`.
    BFloat16,
    /// Signed 32 bits.
    Int32,
    /// Signed 64 bits.
    Int64,
    /// Unsigned 8 bits.
    UInt8,
    /// One column of any type, passed through unchanged, nulls included.
    AsStored,
}

/// A chain of ops applied to one column.
#[derive(Clone, Debug, PartialEq)]
pub struct Chain {
    /// The input column.
    pub column: String,
    /// The ops, in the order in which they apply.
    pub ops: Vec<Op>,
}

/// One column of the output batch: the results of its chains side by side, row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputSpec {
    /// The output's name.
    pub name: String,
    /// Its element type.
    pub dtype: DType,
    /// One chain per column, or per group of columns if the chain ends in an op such as `one_hot`.
    pub chains: Vec<Chain>,
}

impl DType {
    /// The dtype's name in a plan.
    pub fn name(self) -> &'static str {
        match self {
            Self::Float32 => "FLOAT32",
            Self::Float16 => "FLOAT16",
            Self::Float64 => "FLOAT64",
            Self::BFloat16 => "BFLOAT16",
            Self::Int32 => "INT32",
            Self::Int64 => "INT64",
            Self::UInt8 => "UINT8",
            Self::AsStored => "AS_STORED",
        }
    }

    /// Bytes per element; `None` for `AS_STORED`.
    pub(crate) fn bytes(self) -> Option<usize> {
        match self {
            Self::Float32 | Self::Int32 => Some(4),
            Self::Float16 | Self::BFloat16 => Some(2),
            Self::Int64 | Self::Float64 => Some(8),
            Self::UInt8 => Some(1),
            Self::AsStored => None,
        }
    }

    /// The Arrow type of an element; `Null` for `AS_STORED`, whose type is the column's.
    pub(crate) fn data_type(self) -> DataType {
        match self {
            Self::Float32 => DataType::Float32,
            Self::Float16 => DataType::Float16,
            Self::Float64 => DataType::Float64,
            Self::BFloat16 => DataType::UInt16,
            Self::Int32 => DataType::Int32,
            Self::Int64 => DataType::Int64,
            Self::UInt8 => DataType::UInt8,
            Self::AsStored => DataType::Null,
        }
    }
}
