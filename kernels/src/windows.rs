//! Windows: matrices of the values of consecutive rows, made of rows that a program has computed.

use std::{collections::HashMap, ops::Range, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array},
    buffer::MutableBuffer,
    compute::take,
    datatypes::{DataType, Field, Schema, SchemaRef},
    error::ArrowError,
};

use crate::{
    compile::{
        outputs::{CompiledOutput, SHAPE_KEY},
        program::Program,
    },
    error::{CompileError, KernelError},
    execute::interleave::{bytes, matrix},
    spec::{Chain, DType, OutputSpec},
};

/// The rows of a window that an output has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowPart {
    /// The past rows.
    Past,
    /// The rows after them.
    Future,
    /// The last past row.
    Static,
}

/// How the rows of a program become windows.
#[derive(Debug)]
pub struct Windowing {
    /// The part of each output.
    parts: Vec<WindowPart>,
    /// Past rows of a window.
    length: usize,
    schema: SchemaRef,
}

/// The rows of a window in a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedWindow {
    /// The past rows that exist, at least one; those before them are padding.
    pub past: Range<usize>,
    /// The rows after them.
    pub future: Range<usize>,
}

impl Windowing {
    /// Windows of `length` past and `horizon` future rows of a program; `parts` has the part of each of its outputs. Returns the
    /// program whose finished rows the windows are, too.
    pub fn compile(
        rows: &Program,
        parts: &[WindowPart],
        (length, horizon): (usize, usize),
    ) -> Result<(Self, Program), CompileError> {
        let schema = rows.schema();
        let (mut specs, mut inputs) = (Vec::with_capacity(parts.len()), Vec::with_capacity(parts.len()));
        for ((position, output), (part, field)) in
            rows.outputs.iter().enumerate().zip(parts.iter().zip(schema.fields()))
        {
            let row_count = match part {
                WindowPart::Past => Some(length),
                WindowPart::Future => Some(horizon),
                WindowPart::Static => None,
            };
            let (dtype, input) = match (output, row_count) {
                (CompiledOutput::Matrix { dtype, width, .. }, _) => {
                    (*dtype, matrix_input(field, *dtype, *width, row_count))
                }
                (CompiledOutput::Ragged { dtype, .. }, None) => (*dtype, Some(field.as_ref().clone())),
                (CompiledOutput::Stored { .. }, None) => (DType::AsStored, Some(field.as_ref().clone())),
                (_, Some(_)) => (DType::AsStored, None),
            };
            let error = || CompileError::Chain {
                output: position,
                chain: 0,
                error: Box::new(CompileError::NoMatrix { output: field.name().clone() }),
            };
            inputs.push(input.ok_or_else(error)?);
            let chains = vec![Chain { column: field.name().clone(), ops: Vec::new() }];
            specs.push(OutputSpec { name: field.name().clone(), dtype, chains });
        }
        let program = Program::compile(&specs, &Schema::new(inputs))?;
        Ok((Self { parts: parts.to_vec(), length, schema: program.schema() }, program))
    }

    /// The windows of computed rows. `padding` is a row that stands for those before a window's past; it may lack the columns of
    /// other parts than the past.
    pub fn assemble(
        &self,
        rows: &RecordBatch,
        padding: Option<&RecordBatch>,
        windows: &[PlacedWindow],
    ) -> Result<RecordBatch, KernelError> {
        let fields = self.schema.fields().iter().zip(&self.parts).zip(rows.columns());
        let columns = fields.map(|((field, part), column)| match part {
            WindowPart::Past => {
                let padding = padding.and_then(|padding| padding.column_by_name(field.name()));
                let before = |window: &PlacedWindow| self.length.saturating_sub(window.past.len());
                matrices(field, column, padding, windows, |window| (before(window), window.past.clone()))
            }
            WindowPart::Future => matrices(field, column, None, windows, |window| (0, window.future.clone())),
            WindowPart::Static => {
                let last = windows.iter().map(|window| window.past.end.saturating_sub(1) as u32);
                take(column, &UInt32Array::from_iter_values(last), None).map_err(|source| error(field, source))
            }
        });
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(windows.len()));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
            .map_err(|source| KernelError::Arrow { what: "windows", name: String::new(), source })
    }
}

/// A column of matrices that an output of the shape can be made of; none if a row of it has more values than a fixed-size list.
fn matrix_input(field: &Field, dtype: DType, width: usize, row_count: Option<usize>) -> Option<Field> {
    // The values are never converted, so that any type that chains read is right.
    let item = match dtype {
        DType::Int32 | DType::Int64 => DataType::Int64,
        DType::UInt8 => DataType::UInt8,
        _ => DataType::Float32,
    };
    let of_row = field.metadata().get("ARROW:extension:metadata");
    let of_row = of_row.and_then(|shape| shape.strip_prefix("{\"shape\":[")?.strip_suffix("]}")).unwrap_or("1");
    let shape = match row_count {
        Some(rows) => format!("[{rows},{of_row}]"),
        None if matches!(field.data_type(), DataType::FixedSizeList(..)) => format!("[{of_row}]"),
        None => return Some(Field::new(field.name(), item, false)),
    };
    let width = i32::try_from(width.checked_mul(row_count.unwrap_or(1))?).ok()?;
    let list = DataType::FixedSizeList(Arc::new(Field::new("item", item, false)), width);
    Some(Field::new(field.name(), list, false).with_metadata(HashMap::from([(SHAPE_KEY.to_owned(), shape)])))
}

/// The matrices of consecutive rows of a column, after the padding before them.
fn matrices(
    field: &Field,
    column: &ArrayRef,
    padding: Option<&ArrayRef>,
    windows: &[PlacedWindow],
    rows_of: impl Fn(&PlacedWindow) -> (usize, Range<usize>),
) -> Result<ArrayRef, KernelError> {
    let (values, before) = (bytes(column), padding.map(bytes));
    let row_bytes = values.len().checked_div(column.len()).unwrap_or(0);
    let rows: usize = windows.iter().map(|window| rows_of(window).0 + rows_of(window).1.len()).sum();
    let mut buffer = MutableBuffer::with_capacity(rows * row_bytes);
    for window in windows {
        let (missing, rows) = rows_of(window);
        for _ in 0..missing {
            buffer.extend_from_slice(before.as_deref().unwrap_or_default());
        }
        buffer.extend_from_slice(&values[rows.start * row_bytes..rows.end * row_bytes]);
    }
    matrix(buffer.into(), windows.len(), field.data_type()).map_err(|source| error(field, source))
}

fn error(field: &Field, source: ArrowError) -> KernelError {
    KernelError::Arrow { what: "window output", name: field.name().clone(), source }
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, Float32Array, Int32Array, StringArray};
    use arrow::datatypes::Float32Type;

    use super::*;
    use crate::BatchBuilder;

    fn spec(name: &str, dtype: DType, columns: &[&str]) -> OutputSpec {
        let chains = columns.iter().map(|column| Chain { column: (*column).to_owned(), ops: Vec::new() });
        OutputSpec { name: name.to_owned(), dtype, chains: chains.collect() }
    }

    fn table() -> RecordBatch {
        let number =
            |scale: f32| Arc::new(Float32Array::from_iter_values((0..6).map(|row| scale * row as f32))) as ArrayRef;
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values((0..6).map(|row| format!("r{row}"))));
        RecordBatch::try_from_iter([("x", number(1.0)), ("y", number(10.0)), ("name", texts)]).unwrap()
    }

    fn computed(specs: &[OutputSpec], table: &RecordBatch) -> (Arc<Program>, RecordBatch) {
        let program = Arc::new(Program::compile(specs, &table.schema()).unwrap());
        let mut builder = BatchBuilder::new(Arc::clone(&program), table.num_rows());
        builder.append(table, 0..table.num_rows()).unwrap();
        (program, builder.finish().unwrap())
    }

    #[test]
    fn windows_have_the_rows_of_their_parts() {
        let parts = [WindowPart::Past, WindowPart::Future, WindowPart::Static, WindowPart::Static];
        let specs = [
            spec("past", DType::Float32, &["x", "y"]),
            spec("future", DType::BFloat16, &["x"]),
            spec("both", DType::Float32, &["y", "x"]),
            spec("name", DType::AsStored, &["name"]),
        ];
        let (rows, batch) = computed(&specs, &table());
        let (windowing, program) = Windowing::compile(&rows, &parts, (3, 1)).unwrap();
        let padding = batch.slice(5, 1);
        let placed = |past: Range<usize>| PlacedWindow { future: past.end..past.end + 1, past };
        let windows = windowing.assemble(&batch, Some(&padding), &[placed(0..3), placed(4..5)]).unwrap();
        assert_eq!(windows.schema(), program.schema());
        let floats =
            |name: &str| windows[name].as_fixed_size_list().values().as_primitive::<Float32Type>().values().to_vec();
        assert_eq!(floats("past"), [0.0, 0.0, 1.0, 10.0, 2.0, 20.0, 5.0, 50.0, 5.0, 50.0, 4.0, 40.0]);
        assert_eq!(floats("both"), [20.0, 2.0, 40.0, 4.0]);
        assert_eq!(windows["name"].as_string::<i32>(), &StringArray::from(vec!["r2", "r4"]));
        let future = windows["future"].as_fixed_size_list();
        assert_eq!((future.value_length(), future.values().data_type()), (1, &DataType::UInt16));
        let shape =
            |name: &str| windows.schema().field_with_name(name).unwrap().metadata()["ARROW:extension:metadata"].clone();
        assert_eq!(
            [shape("past"), shape("future"), shape("both")],
            [r#"{"shape":[3,2]}"#, r#"{"shape":[1,1]}"#, r#"{"shape":[2]}"#]
        );
        assert_eq!(program.schema().field(1).metadata()["forebay.dtype"], "BFLOAT16");
        // Windows are finished rows of the program.
        let mut builder = BatchBuilder::new(Arc::new(program), 2);
        builder.append_finished(&windows, 0..2).unwrap();
        assert_eq!(builder.finish().unwrap(), windows);
    }

    #[test]
    fn only_values_of_one_size_have_matrices() {
        let (rows, _) = computed(&[spec("name", DType::AsStored, &["name"])], &table());
        let error = Windowing::compile(&rows, &[WindowPart::Past], (3, 0)).unwrap_err().to_string();
        assert!(error.contains("\"name\"") && error.contains("STATIC"), "{error}");
        let (rows, _) = computed(&[spec("x", DType::Int32, &["n"])], &{
            let number: ArrayRef = Arc::new(Int32Array::from(vec![1]));
            RecordBatch::try_from_iter([("n", number)]).unwrap()
        });
        assert!(Windowing::compile(&rows, &[WindowPart::Past], (usize::MAX, 0)).is_err());
    }
}
