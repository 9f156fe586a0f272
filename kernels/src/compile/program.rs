//! The compiled form of a plan's outputs: chains checked against their columns' types, and the schema of what comes out.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

#[cfg(feature = "cuda")]
use arrow::datatypes::FieldRef;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;

use crate::compile::chain::{ChainProblem, CompiledChain};
use crate::compile::inputs::Inputs;
use crate::domain::Domain;
use crate::error::{CompileError, KernelError};
use crate::ops::Op;

/// The most columns that a program's outputs may have together: 2^20, 4 MiB a row of FLOAT32.
pub const MAX_COLUMNS: usize = 1_048_576;

/// The element type of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    /// IEEE single precision.
    Float32,
    /// IEEE half precision.
    Float16,
    /// bfloat16, carried as uint16 with field metadata `forebay.dtype` = `BFLOAT16`.
    BFloat16,
    /// Signed 32 bits.
    Int32,
    /// Signed 64 bits.
    Int64,
    /// Unsigned 8 bits.
    UInt8,
    /// One column passed through untouched, of any type, with its nulls.
    AsStored,
}

/// A chain of ops applied to one column.
#[derive(Clone, Debug, PartialEq)]
pub struct Chain {
    /// The input column.
    pub column: String,
    /// The ops, first one first.
    pub ops: Vec<Op>,
}

/// One column of a batch: its chains side by side, row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputSpec {
    /// The output's name.
    pub name: String,
    /// Its element type.
    pub dtype: DType,
    /// Its columns, or groups of columns where a chain ends in `one_hot`.
    pub chains: Vec<Chain>,
}

/// A compiled program: immutable, and shared by all the streams of a plan.
#[derive(Debug)]
pub struct Program {
    input_columns: Vec<String>,
    pub(crate) input_types: Vec<DataType>,
    pub(crate) outputs: Vec<Output>,
    /// Places for what chains make of dictionaries.
    pub(crate) slots: usize,
    schema: SchemaRef,
    row_bytes: Option<usize>,
}

/// A compiled output. Inputs are places in `Program::input_columns`.
#[derive(Clone, Debug)]
pub(crate) enum Output {
    Matrix {
        dtype: DType,
        width: usize,
        chains: Vec<PlacedChain>,
    },
    /// A column of lists.
    Ragged {
        dtype: DType,
        chain: CompiledChain,
    },
    Stored {
        input: usize,
    },
}

/// A chain and the columns `at..at + width` of its output that it writes.
#[derive(Clone, Debug)]
pub(crate) struct PlacedChain {
    pub(crate) at: usize,
    pub(crate) chain: CompiledChain,
}

impl DType {
    /// The dtype's name in a plan.
    pub fn name(self) -> &'static str {
        match self {
            Self::Float32 => "FLOAT32",
            Self::Float16 => "FLOAT16",
            Self::BFloat16 => "BFLOAT16",
            Self::Int32 => "INT32",
            Self::Int64 => "INT64",
            Self::UInt8 => "UINT8",
            Self::AsStored => "AS_STORED",
        }
    }

    /// Bytes of an element; none for `AS_STORED`.
    pub(crate) fn bytes(self) -> Option<usize> {
        match self {
            Self::Float32 | Self::Int32 => Some(4),
            Self::Float16 | Self::BFloat16 => Some(2),
            Self::Int64 => Some(8),
            Self::UInt8 => Some(1),
            Self::AsStored => None,
        }
    }

    fn arrow(self) -> DataType {
        match self {
            Self::Float32 => DataType::Float32,
            Self::Float16 => DataType::Float16,
            Self::BFloat16 => DataType::UInt16,
            Self::Int32 => DataType::Int32,
            Self::Int64 => DataType::Int64,
            Self::UInt8 => DataType::UInt8,
            Self::AsStored => DataType::Null,
        }
    }
}

impl Program {
    /// Compiles outputs against the columns of an input. Of the input only the columns that are named matter.
    pub fn compile(outputs: &[OutputSpec], input: &Schema) -> Result<Self, CompileError> {
        if outputs.is_empty() {
            return Err(CompileError::NoOutputs);
        }
        let mut inputs = Inputs::new(input);
        let (mut names, mut fields, mut built) = (HashSet::new(), Vec::new(), Vec::new());
        let (mut columns, mut row_bytes) = (0, None);
        for (place, spec) in outputs.iter().enumerate() {
            if spec.name.is_empty() {
                return Err(CompileError::EmptyName { number: place + 1 });
            }
            if !names.insert(spec.name.as_str()) {
                return Err(CompileError::DuplicateName { output: spec.name.clone() });
            }
            let (output, field) = compile_output(place, spec, &mut inputs)?;
            if let Output::Matrix { dtype, width, .. } = &output {
                columns += width;
                if columns > MAX_COLUMNS {
                    let error = CompileError::TooWide { output: spec.name.clone(), columns, limit: MAX_COLUMNS };
                    let (chain, error) = (spec.chains.len().saturating_sub(1), Box::new(error));
                    return Err(CompileError::Chain { output: place, chain, error });
                }
                row_bytes = Some(row_bytes.unwrap_or(0) + width * dtype.bytes().unwrap_or(0));
            }
            built.push(output);
            fields.push(field);
        }
        let input_types = inputs.columns.iter().map(|field| field.data_type().clone()).collect();
        let input_columns = inputs.columns.iter().map(|field| field.name().clone()).collect();
        let schema = Arc::new(Schema::new(fields));
        Ok(Self { input_columns, input_types, outputs: built, slots: inputs.slots(), schema, row_bytes })
    }

    /// The columns that batches must hold, each once.
    pub fn input_columns(&self) -> &[String] {
        &self.input_columns
    }

    /// The schema of the batches that come out.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// The columns whose values have no fixed width in an output: passed through by `AS_STORED`, or lists.
    pub fn stored_columns(&self) -> impl Iterator<Item = &str> {
        self.outputs.iter().filter_map(|output| match output {
            Output::Stored { input } => Some(self.input_columns[*input].as_str()),
            Output::Ragged { chain, .. } => Some(self.input_columns[chain.input].as_str()),
            Output::Matrix { .. } => None,
        })
    }

    /// The inputs that an `AS_STORED` output passes through: they come in the very type that the program was compiled for.
    pub(crate) fn passed_inputs(&self) -> BTreeSet<usize> {
        let passed = self.outputs.iter().filter_map(|output| match output {
            Output::Stored { input } => Some(*input),
            Output::Matrix { .. } | Output::Ragged { .. } => None,
        });
        passed.collect()
    }

    /// The same program, with only the outputs whose place `keeps`.
    #[cfg(feature = "cuda")]
    pub(crate) fn only(&self, keeps: impl Fn(usize) -> bool) -> Self {
        let kept = || self.outputs.iter().enumerate().filter(|(place, _)| keeps(*place));
        let row_bytes = kept().filter_map(|(_, output)| match output {
            Output::Matrix { dtype, width, .. } => Some(width * dtype.bytes().unwrap_or(0)),
            Output::Ragged { .. } | Output::Stored { .. } => None,
        });
        let fields: Vec<FieldRef> = kept().map(|(place, _)| Arc::clone(&self.schema.fields()[place])).collect();
        Self {
            input_columns: self.input_columns.clone(),
            input_types: self.input_types.clone(),
            slots: self.slots,
            row_bytes: row_bytes.reduce(|all, bytes| all + bytes),
            outputs: kept().map(|(_, output)| output.clone()).collect(),
            schema: Arc::new(Schema::new(fields)),
        }
    }

    /// Why an output could not be put together.
    pub(crate) fn refused(&self, output: usize, source: ArrowError) -> KernelError {
        KernelError::Arrow { what: "put together output", name: self.schema.field(output).name().clone(), source }
    }

    /// Bytes of a row over all outputs but the `AS_STORED` ones and lists; none when there are no others.
    pub fn row_bytes(&self) -> Option<usize> {
        self.row_bytes
    }
}

fn compile_output(place: usize, spec: &OutputSpec, inputs: &mut Inputs) -> Result<(Output, Field), CompileError> {
    let output = || spec.name.clone();
    let at = |chain: usize, error: CompileError| CompileError::Chain { output: place, chain, error: Box::new(error) };
    if spec.chains.is_empty() {
        return Err(CompileError::NoColumns { output: output() });
    }
    if spec.dtype == DType::AsStored {
        return passed(spec, inputs);
    }
    let (mut chains, mut width) = (Vec::with_capacity(spec.chains.len()), 0);
    for (number, Chain { column, ops }) in spec.chains.iter().enumerate() {
        let chain = CompiledChain::compile(column, ops, inputs)
            .map_err(|problem| at(number, chain_error(problem, Some(&spec.name), column, ops, inputs)))?;
        let data_type = inputs.columns[chain.input].data_type();
        if let Domain::Text | Domain::Binary = chain.domain {
            let ways = if chain.domain == Domain::Text { "vocab or hash_bucket" } else { "hash_bucket" };
            let (column, data_type) = (column.clone(), data_type.clone());
            return Err(at(number, CompileError::NotNumeric { output: output(), column, data_type, ways }));
        }
        let Some(chain_width) = chain.width() else {
            if spec.chains.len() > 1 {
                return Err(at(number, CompileError::Lists { output: output(), column: column.clone() }));
            }
            let field = ragged_field(&spec.name, spec.dtype);
            return Ok((Output::Ragged { dtype: spec.dtype, chain }, field));
        };
        chains.push(PlacedChain { at: width, chain });
        width += chain_width;
    }
    let field = matrix_field(&spec.name, spec.dtype, width);
    Ok((Output::Matrix { dtype: spec.dtype, width, chains }, field))
}

fn passed(spec: &OutputSpec, inputs: &mut Inputs) -> Result<(Output, Field), CompileError> {
    let ops = spec.chains.iter().map(|chain| chain.ops.len()).sum();
    let ([Chain { column, .. }], 0) = (spec.chains.as_slice(), ops) else {
        return Err(CompileError::AsStored { output: spec.name.clone(), columns: spec.chains.len(), ops });
    };
    let unknown = || CompileError::UnknownColumn { output: Some(spec.name.clone()), column: column.clone() };
    let (input, field) = inputs.place(column).ok_or_else(unknown)?;
    Ok((Output::Stored { input }, field.as_ref().clone().with_name(&spec.name)))
}

/// A chain's problem with its names.
pub(crate) fn chain_error(
    problem: ChainProblem,
    output: Option<&str>,
    column: &str,
    ops: &[Op],
    inputs: &mut Inputs,
) -> CompileError {
    let (output, column) = (output.map(str::to_owned), column.to_owned());
    match problem {
        ChainProblem::Type => {
            let (op, place) = (ops.first().map(Op::name), inputs.place(&column));
            let data_type = place.map_or(DataType::Null, |(_, field)| field.data_type().clone());
            CompileError::UnsupportedType { output, column, data_type, op }
        }
        ChainProblem::Op(place, problem) => {
            let op = ops.get(place).map_or("", Op::name);
            CompileError::Op { output, column, op, number: place + 1, problem: Box::new(problem) }
        }
        ChainProblem::Column(column) => CompileError::UnknownColumn { output, column },
        ChainProblem::Table(source) => CompileError::Table { output, column, source },
    }
}

/// One column is a primitive column; several are the canonical extension type `arrow.fixed_shape_tensor`. No nulls in either.
fn matrix_field(name: &str, dtype: DType, width: usize) -> Field {
    let mut metadata = dtype_metadata(dtype);
    let data_type = if width == 1 {
        dtype.arrow()
    } else {
        metadata.insert("ARROW:extension:name".to_owned(), "arrow.fixed_shape_tensor".to_owned());
        metadata.insert("ARROW:extension:metadata".to_owned(), format!("{{\"shape\":[{width}]}}"));
        // A width beyond i32 is beyond MAX_COLUMNS too, and refused there.
        DataType::FixedSizeList(
            Arc::new(Field::new("item", dtype.arrow(), false)),
            i32::try_from(width).unwrap_or(i32::MAX),
        )
    };
    Field::new(name, data_type, false).with_metadata(metadata)
}

/// Lists without nulls, of elements without nulls.
fn ragged_field(name: &str, dtype: DType) -> Field {
    let item = Field::new("item", dtype.arrow(), false);
    Field::new(name, DataType::List(Arc::new(item)), false).with_metadata(dtype_metadata(dtype))
}

/// What Arrow has no type for.
fn dtype_metadata(dtype: DType) -> HashMap<String, String> {
    let name = (dtype == DType::BFloat16).then(|| ("forebay.dtype".to_owned(), dtype.name().to_owned()));
    name.into_iter().collect()
}

#[cfg(test)]
mod tests;
