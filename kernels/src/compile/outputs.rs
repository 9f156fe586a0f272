//! One output of a plan → its chains and its Arrow field.

use std::{collections::HashMap, sync::Arc};

use arrow::datatypes::{DataType, Field};

use crate::{
    compile::{
        chain::{ChainProblem, CompiledChain, RowShape},
        inputs::Inputs,
    },
    domain::Domain,
    error::CompileError,
    ops::Op,
    spec::{Chain, DType, OutputSpec},
    vector::tiling::tile_rows,
};

/// The key of a tensor's shape, a list in JSON, in the metadata of a column whose rows are tensors. An output of such a
/// column alone has its shape, and is not limited by [`crate::MAX_COLUMNS`].
pub const SHAPE_KEY: &str = "forebay.shape";

/// A compiled output. Inputs are positions in `Program::input_columns`.
#[derive(Clone, Debug)]
pub(crate) enum CompiledOutput {
    Matrix {
        dtype: DType,
        width: usize,
        chains: Vec<PlacedChain>,
    },
    /// A column of lists.
    Ragged {
        dtype: DType,
        chain: Box<CompiledChain>,
    },
    Stored {
        input: usize,
    },
}

/// A chain, and the columns `at..at + width` of its output that it writes.
#[derive(Clone, Debug)]
pub(crate) struct PlacedChain {
    pub(crate) at: usize,
    pub(crate) chain: CompiledChain,
}

impl CompiledOutput {
    /// Rows of a matrix that are computed at once.
    pub(crate) fn tile_rows(&self) -> usize {
        let chains = match self {
            Self::Matrix { chains, .. } => chains.as_slice(),
            Self::Ragged { .. } | Self::Stored { .. } => &[],
        };
        let widest = chains.iter().filter_map(|placed| match placed.chain.shape {
            RowShape::Columns(width) => Some(width),
            _ => None,
        });
        tile_rows(widest.max().unwrap_or(1))
    }

    /// Rows of a matrix of `rows` that are computed before they are scattered.
    pub(crate) fn scratch_rows(&self, rows: usize) -> usize {
        rows.min(self.tile_rows())
    }

    /// Bytes of a row of a matrix.
    pub(crate) fn row_bytes(&self) -> usize {
        match self {
            Self::Matrix { dtype, width, .. } => width * dtype.bytes().unwrap_or(0),
            Self::Ragged { .. } | Self::Stored { .. } => 0,
        }
    }
}

/// Compiles the output at a position of the plan.
pub(crate) fn compile_output(
    position: usize,
    spec: &OutputSpec,
    inputs: &mut Inputs,
) -> Result<(CompiledOutput, Field), CompileError> {
    let output = || spec.name.clone();
    let at =
        |chain: usize, error: CompileError| CompileError::Chain { output: position, chain, error: Box::new(error) };
    if spec.chains.is_empty() {
        return Err(CompileError::NoColumns { output: output() });
    }
    if spec.dtype == DType::AsStored {
        return stored_output(spec, inputs);
    }
    let (mut chains, mut width) = (Vec::with_capacity(spec.chains.len()), 0);
    for (number, Chain { column, ops }) in spec.chains.iter().enumerate() {
        let chain = CompiledChain::compile(column, ops, inputs)
            .map_err(|problem| at(number, chain_error(problem, Some(&spec.name), column, ops, inputs)))?;
        if let Domain::Text | Domain::Binary = chain.domain {
            let ways = if chain.domain == Domain::Text { "vocab or hash_bucket" } else { "hash_bucket" };
            let lookup = ops.iter().rev().find_map(|op| if let Op::Lookup(table) = op { Some(table) } else { None });
            let (column, data_type) = match lookup {
                Some(found) => (format!("{}.{}", found.table, found.column), found.values.data_type().clone()),
                None => (column.clone(), inputs.columns[chain.input].data_type().clone()),
            };
            return Err(at(number, CompileError::NotNumeric { output: output(), column, data_type, ways }));
        }
        let Some(chain_width) = chain.width() else {
            if spec.chains.len() > 1 {
                return Err(at(number, CompileError::Lists { output: output(), column: column.clone() }));
            }
            let field = ragged_field(&spec.name, spec.dtype);
            return Ok((CompiledOutput::Ragged { dtype: spec.dtype, chain: Box::new(chain) }, field));
        };
        chains.push(PlacedChain { at: width, chain });
        width += chain_width;
    }
    let shape = tensor_shape(spec, inputs);
    let field = matrix_field(&spec.name, spec.dtype, width, shape);
    Ok((CompiledOutput::Matrix { dtype: spec.dtype, width, chains }, field))
}

/// The shape of the tensors of an output's only column, in JSON; none for outputs of other columns.
fn tensor_shape<'a>(spec: &OutputSpec, inputs: &mut Inputs<'a>) -> Option<&'a str> {
    let [Chain { column, .. }] = spec.chains.as_slice() else { return None };
    let (_, field) = inputs.find(column)?;
    field.metadata().get(SHAPE_KEY).map(String::as_str)
}

/// Whether an output is of a column of tensors.
pub(super) fn is_tensor(spec: &OutputSpec, inputs: &mut Inputs) -> bool {
    tensor_shape(spec, inputs).is_some()
}

fn stored_output(spec: &OutputSpec, inputs: &mut Inputs) -> Result<(CompiledOutput, Field), CompileError> {
    let ops = spec.chains.iter().map(|chain| chain.ops.len()).sum();
    let ([Chain { column, .. }], 0) = (spec.chains.as_slice(), ops) else {
        return Err(CompileError::AsStored { output: spec.name.clone(), columns: spec.chains.len(), ops });
    };
    let unknown = || CompileError::UnknownColumn { output: Some(spec.name.clone()), column: column.clone() };
    let (input, field) = inputs.find(column).ok_or_else(unknown)?;
    Ok((CompiledOutput::Stored { input }, field.as_ref().clone().with_name(&spec.name)))
}

/// A chain's problem, with the names that it concerns.
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
            let (op, found) = (ops.first().map(Op::name), inputs.find(&column));
            let data_type = found.map_or(DataType::Null, |(_, field)| field.data_type().clone());
            CompileError::UnsupportedType { output, column, data_type, op }
        }
        ChainProblem::Op(position, problem) => {
            let op = ops.get(position).map_or("", Op::name);
            CompileError::Op { output, column, op, number: position + 1, problem: Box::new(problem) }
        }
        ChainProblem::Column(column) => CompileError::UnknownColumn { output, column },
        ChainProblem::Table(source) => CompileError::Table { output, column, source },
    }
}

/// A primitive field for one column, the canonical extension type `arrow.fixed_shape_tensor` for several and for
/// tensors; never nullable.
fn matrix_field(name: &str, dtype: DType, width: usize, shape: Option<&str>) -> Field {
    let mut metadata = dtype_metadata(dtype);
    let data_type = if width == 1 && shape.is_none() {
        dtype.data_type()
    } else {
        let shape = shape.map_or_else(|| format!("[{width}]"), str::to_owned);
        metadata.insert("ARROW:extension:name".to_owned(), "arrow.fixed_shape_tensor".to_owned());
        metadata.insert("ARROW:extension:metadata".to_owned(), format!("{{\"shape\":{shape}}}"));
        // A width that exceeds i32 exceeds MAX_COLUMNS too, which is checked later.
        DataType::FixedSizeList(
            Arc::new(Field::new("item", dtype.data_type(), false)),
            i32::try_from(width).unwrap_or(i32::MAX),
        )
    };
    Field::new(name, data_type, false).with_metadata(metadata)
}

/// Non-nullable lists of non-nullable elements.
fn ragged_field(name: &str, dtype: DType) -> Field {
    let item = Field::new("item", dtype.data_type(), false);
    Field::new(name, DataType::List(Arc::new(item)), false).with_metadata(dtype_metadata(dtype))
}

/// The metadata of dtypes that Arrow has no type for.
fn dtype_metadata(dtype: DType) -> HashMap<String, String> {
    let name = (dtype == DType::BFloat16).then(|| ("forebay.dtype".to_owned(), dtype.name().to_owned()));
    name.into_iter().collect()
}
