//! A compiled program: the chains of its outputs, and the schema of the batches that it produces.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

#[cfg(feature = "cuda")]
use arrow::datatypes::FieldRef;
use arrow::{
    datatypes::{DataType, Schema, SchemaRef},
    error::ArrowError,
};

use crate::{
    compile::{
        inputs::Inputs,
        outputs::{CompiledOutput, compile_output, is_tensor},
    },
    error::{CompileError, KernelError},
    spec::{MAX_COLUMNS, OutputSpec},
};

/// A compiled program: immutable, and shared by all streams of a plan.
#[derive(Debug)]
pub struct Program {
    input_columns: Vec<String>,
    pub(crate) input_types: Vec<DataType>,
    pub(crate) outputs: Vec<CompiledOutput>,
    /// The number of slots for mapped dictionaries.
    pub(crate) slots: usize,
    schema: SchemaRef,
    row_bytes: Option<usize>,
}

impl Program {
    pub(crate) fn from_outputs(outputs: &[OutputSpec], mut inputs: Inputs) -> Result<Self, CompileError> {
        if outputs.is_empty() {
            return Err(CompileError::NoOutputs);
        }
        let (mut names, mut fields, mut compiled) = (HashSet::new(), Vec::new(), Vec::new());
        let (mut columns, mut row_bytes) = (0, None);
        for (position, spec) in outputs.iter().enumerate() {
            if spec.name.is_empty() {
                return Err(CompileError::EmptyName { number: position + 1 });
            }
            if !names.insert(spec.name.as_str()) {
                return Err(CompileError::DuplicateName { output: spec.name.clone() });
            }
            let (output, field) = compile_output(position, spec, &mut inputs)?;
            if let CompiledOutput::Matrix { dtype, width, .. } = &output {
                columns += if is_tensor(spec, &mut inputs) { 0 } else { *width };
                if columns > MAX_COLUMNS {
                    let error = CompileError::TooWide { output: spec.name.clone(), columns, limit: MAX_COLUMNS };
                    let (chain, error) = (spec.chains.len().saturating_sub(1), Box::new(error));
                    return Err(CompileError::Chain { output: position, chain, error });
                }
                row_bytes = Some(row_bytes.unwrap_or(0) + width * dtype.bytes().unwrap_or(0));
            }
            compiled.push(output);
            fields.push(field);
        }
        let input_types = inputs.columns.iter().map(|field| field.data_type().clone()).collect();
        let input_columns = inputs.columns.iter().map(|field| field.name().clone()).collect();
        let schema = Arc::new(Schema::new(fields));
        Ok(Self { input_columns, input_types, outputs: compiled, slots: inputs.slots(), schema, row_bytes })
    }

    /// The same program, whose errors of nulls say what to do: `advice` of an output and a chain, both counted from 0.
    #[must_use]
    pub fn with_null_advice(mut self, advice: impl Fn(usize, usize) -> Option<String>) -> Self {
        for (position, output) in self.outputs.iter_mut().enumerate() {
            match output {
                CompiledOutput::Matrix { chains, .. } => {
                    for (number, placed) in chains.iter_mut().enumerate() {
                        placed.chain.null_advice = advice(position, number).map(Into::into);
                    }
                }
                CompiledOutput::Ragged { chain, .. } => chain.null_advice = advice(position, 0).map(Into::into),
                CompiledOutput::Stored { .. } => {}
            }
        }
        self
    }

    /// The columns that a batch must have, each once.
    pub fn input_columns(&self) -> &[String] {
        &self.input_columns
    }

    /// The schema of the output batches.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// The input columns whose outputs have no fixed width per row: `AS_STORED` columns and lists.
    pub fn stored_columns(&self) -> impl Iterator<Item = &str> {
        self.outputs.iter().filter_map(|output| match output {
            CompiledOutput::Stored { input } => Some(self.input_columns[*input].as_str()),
            CompiledOutput::Ragged { chain, .. } => Some(self.input_columns[chain.input].as_str()),
            CompiledOutput::Matrix { .. } => None,
        })
    }

    /// The inputs of `AS_STORED` outputs, which must have exactly the type that the program was compiled for.
    pub(crate) fn passed_inputs(&self) -> BTreeSet<usize> {
        let passed = self.outputs.iter().filter_map(|output| match output {
            CompiledOutput::Stored { input } => Some(*input),
            CompiledOutput::Matrix { .. } | CompiledOutput::Ragged { .. } => None,
        });
        passed.collect()
    }

    /// The same program with only the outputs at positions for which `keeps` returns true.
    #[cfg(feature = "cuda")]
    pub(crate) fn only(&self, keeps: impl Fn(usize) -> bool) -> Self {
        let kept = || self.outputs.iter().enumerate().filter(|(position, _)| keeps(*position));
        let row_bytes = kept().filter_map(|(_, output)| match output {
            CompiledOutput::Matrix { dtype, width, .. } => Some(width * dtype.bytes().unwrap_or(0)),
            CompiledOutput::Ragged { .. } | CompiledOutput::Stored { .. } => None,
        });
        let fields: Vec<FieldRef> = kept().map(|(position, _)| Arc::clone(&self.schema.fields()[position])).collect();
        Self {
            input_columns: self.input_columns.clone(),
            input_types: self.input_types.clone(),
            slots: self.slots,
            row_bytes: row_bytes.reduce(|all, bytes| all + bytes),
            outputs: kept().map(|(_, output)| output.clone()).collect(),
            schema: Arc::new(Schema::new(fields)),
        }
    }

    /// Arrow's error for the output at this position, with the output's name.
    pub(crate) fn output_error(&self, output: usize, source: ArrowError) -> KernelError {
        KernelError::Arrow { what: "assemble output", name: self.schema.field(output).name().clone(), source }
    }

    /// Bytes per row over all outputs if every row has the same number, with a byte for the validity of each `AS_STORED`
    /// value. The error is the first output whose rows differ.
    pub fn fixed_row_bytes(&self) -> Result<usize, &str> {
        let outputs = self.outputs.iter().zip(self.schema.fields());
        let bytes = outputs.map(|(output, field)| match output {
            CompiledOutput::Matrix { dtype, width, .. } => Ok(width * dtype.bytes().unwrap_or(0)),
            CompiledOutput::Stored { .. } => {
                field.data_type().primitive_width().map(|bytes| bytes + 1).ok_or(field.name().as_str())
            }
            CompiledOutput::Ragged { .. } => Err(field.name().as_str()),
        });
        bytes.sum()
    }

    /// Bytes of the memory in which a batch of `rows` rows is computed before they are scattered.
    pub fn scratch_bytes(&self, rows: usize) -> usize {
        self.outputs.iter().map(|output| output.scratch_rows(rows) * output.row_bytes()).sum()
    }

    /// Bytes per row over all outputs except `AS_STORED` columns and lists; `None` if there are no others.
    pub fn row_bytes(&self) -> Option<usize> {
        self.row_bytes
    }
}
