//! Errors of programs and of the rows that they process, worded for the author of the plan.

use arrow::{datatypes::DataType, error::ArrowError};
use thiserror::Error;

/// Outputs that do not compile against the types of the columns: an error in the plan, found before any row is read.
#[derive(Debug, Error)]
pub enum CompileError {
    /// An error in one chain, with its position.
    #[error("{error}")]
    Chain {
        /// The output's position in the plan, from 0.
        output: usize,
        /// The chain's position in the output, from 0.
        chain: usize,
        /// The error.
        error: Box<CompileError>,
    },
    /// A plan without outputs.
    #[error("the plan has no outputs")]
    NoOutputs,
    /// An output without a name.
    #[error("output number {number} has an empty name")]
    EmptyName {
        /// The output's position in the plan, from 1.
        number: usize,
    },
    /// Two outputs with the same name.
    #[error("there are two outputs named {output:?}; names must be unique")]
    DuplicateName {
        /// The name.
        output: String,
    },
    /// An output without columns.
    #[error("output {output:?} has no columns")]
    NoColumns {
        /// The output.
        output: String,
    },
    /// A column that the input lacks.
    #[error("{}: there is no such column", place(.output.as_deref(), .column))]
    UnknownColumn {
        /// The output that reads it; `None` in a fit.
        output: Option<String>,
        /// The missing column.
        column: String,
    },
    /// `AS_STORED` with several columns or with ops.
    #[error(
        "output {output:?} is AS_STORED, which passes one column through unchanged: it takes exactly one column and \
         no ops, but has {columns} column(s) and {ops} op(s)"
    )]
    AsStored {
        /// The output.
        output: String,
        /// The number of its columns.
        columns: usize,
        /// The number of ops over all its chains.
        ops: usize,
    },
    /// A column of a type that no kernel reads.
    #[error(
        "{}: {} cannot read a column of type {data_type}; such columns can only be passed through, as a separate \
         output with dtype AS_STORED and no ops",
        place(.output.as_deref(), .column), .op.map_or("a numeric output".to_owned(), |op| format!("op {op}"))
    )]
    UnsupportedType {
        /// The output; `None` in a fit.
        output: Option<String>,
        /// The column.
        column: String,
        /// Its type.
        data_type: DataType,
        /// The first op of its chain, if any.
        op: Option<&'static str>,
    },
    /// Text or bytes in a numeric output.
    #[error(
        "{}: a column of type {data_type} is not numeric; end its chain in {ways}, or pass it through with dtype \
         AS_STORED",
        place(Some(.output), .column)
    )]
    NotNumeric {
        /// The output.
        output: String,
        /// The column.
        column: String,
        /// Its type.
        data_type: DataType,
        /// The ops that turn it into numbers.
        ways: &'static str,
    },
    /// Lists next to other columns of an output.
    #[error(
        "{}: its chain ends in lists, which need a separate output with one column and a dtype other than AS_STORED; \
         to combine lists with other columns, end the chain in pad, first_n or last_n with a value, or multi_hot",
        place(Some(.output), .column)
    )]
    Lists {
        /// The output.
        output: String,
        /// The column.
        column: String,
    },
    /// Lists or values of any type in matrices of windows.
    #[error(
        "output {output:?}: the rows of windows are matrices of numbers, and its values differ in size, or a matrix has more than \
         2^31 of them: give it the part STATIC, or a dtype and ops such as pad"
    )]
    NoMatrix {
        /// The output.
        output: String,
    },
    /// A lookup table that cannot be read.
    #[error("{}: cannot read its lookup table: {source}", place(.output.as_deref(), .column))]
    Table {
        /// The output; `None` in a fit.
        output: Option<String>,
        /// The column.
        column: String,
        /// Arrow's error.
        #[source]
        source: ArrowError,
    },
    /// More columns than a batch may have.
    #[error("output {output:?} brings the plan to {columns} columns in all; the limit is {limit}")]
    TooWide {
        /// The output that exceeds the limit.
        output: String,
        /// The number of columns up to and including this output.
        columns: usize,
        /// [`crate::MAX_COLUMNS`].
        limit: usize,
    },
    /// An op that does not apply to the column, or that has invalid parameters.
    #[error("{}: op {op} (number {number} of its chain): {problem}", place(.output.as_deref(), .column))]
    Op {
        /// The output; `None` in a fit.
        output: Option<String>,
        /// The column.
        column: String,
        /// The op's name.
        op: &'static str,
        /// The op's position in the chain, from 1.
        number: usize,
        /// The error.
        problem: Box<OpProblem>,
    },
}

/// An error in one op of a chain.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum OpProblem {
    /// An invalid parameter.
    #[error("{0}")]
    Parameter(String),
    /// An input that the op does not take.
    #[error("it takes {takes}, but its input is {gets}")]
    Input {
        /// The input that the op takes.
        takes: &'static str,
        /// The input that it has.
        gets: &'static str,
    },
    /// A parameter of another type than the op's input.
    #[error("its parameter {parameter} is {given}, but its input is {column}")]
    ValueType {
        /// The parameter.
        parameter: &'static str,
        /// The type of its value.
        given: &'static str,
        /// The input that the op has.
        column: &'static str,
    },
    /// A column that the input lacks.
    #[error("there is no column {column:?}")]
    UnknownColumn {
        /// The column.
        column: String,
    },
    /// An op after `one_hot` or `multi_hot`.
    #[error("one_hot and multi_hot must be the last op of a chain")]
    AfterOneHot,
    /// `one_hot` or `multi_hot` in a chain that a fit learns from.
    #[error("it yields columns, not values that a fit can learn from")]
    NoValues,
}

/// Rows that a program cannot process.
#[derive(Debug, Error)]
pub enum KernelError {
    /// A batch that lacks a column of the program.
    #[error("the batch lacks column {column:?}")]
    MissingColumn {
        /// The column.
        column: String,
    },
    /// A column of another type than the program was compiled for.
    #[error("column {column:?} has type {found}, but the program was compiled for {expected}")]
    ColumnType {
        /// The column.
        column: String,
        /// The type at compilation.
        expected: DataType,
        /// The type in the batch.
        found: DataType,
    },
    /// Rows outside the batch.
    #[error("rows {start}..{end} are not within the batch's {rows} rows")]
    OutOfRange {
        /// The first row.
        start: usize,
        /// The row after the last one.
        end: usize,
        /// The number of rows in the batch.
        rows: usize,
    },
    /// More rows than the builder has room for.
    #[error("{rows} rows do not fit: {len} of {capacity} rows are used")]
    Full {
        /// The number of rows to append.
        rows: usize,
        /// The number of rows appended before.
        len: usize,
        /// The number of rows that the builder has room for.
        capacity: usize,
    },
    /// A null in an output that cannot hold nulls.
    #[error("output {output:?}, column {column:?}: row {row} is null; {advice}")]
    Null {
        /// The output.
        output: String,
        /// The column.
        column: String,
        /// The row in the appended batch.
        row: usize,
        /// What to do.
        advice: String,
    },
    /// A null element of a list in an output that cannot hold nulls.
    #[error(
        "output {output:?}, column {column:?}: element {element} of the list in row {row} is null; fill null elements \
         with fill_null"
    )]
    NullElement {
        /// The output.
        output: String,
        /// The column.
        column: String,
        /// The row in the appended batch.
        row: usize,
        /// The element's position in its list.
        element: usize,
    },
    /// A value that a `map_id` without default maps to null, or a null.
    #[error(
        "output {output:?}, column {column:?}: row {row} is null, or not among the values that map_id and label(…, \
         classes=…) list; list its value, set a default, or exclude such rows with a filter"
    )]
    Unmapped {
        /// The output.
        output: String,
        /// The column.
        column: String,
        /// The row in the appended batch.
        row: usize,
    },
    /// A number that the output's dtype cannot hold.
    #[error("output {output:?}, column {column:?}{}", lossy(*.row, .value, .dtype))]
    Lossy {
        /// The output.
        output: String,
        /// The column.
        column: String,
        /// The row in the appended batch.
        row: usize,
        /// The number, as text.
        value: String,
        /// The dtype's name.
        dtype: &'static str,
    },
    /// A value that is not an index of a `one_hot` or `multi_hot`.
    #[error(
        "output {output:?}, column {column:?}: {value} (row {row}) is not an index of {op}, which takes whole numbers \
         from 0 to {}",
        .size - 1
    )]
    OneHotIndex {
        /// The output.
        output: String,
        /// The column.
        column: String,
        /// The row in the appended batch.
        row: usize,
        /// The value, as text.
        value: String,
        /// The number of columns of the op.
        size: usize,
        /// The op.
        op: &'static str,
    },
    /// A value of another length than its op expects.
    #[error("column {column:?}: row {row} has {found} bytes, not {expected}")]
    ByteCount {
        /// The column.
        column: String,
        /// The row in the appended batch.
        row: usize,
        /// The value's number of bytes.
        found: usize,
        /// The number of bytes of the op.
        expected: usize,
    },
    /// A difference or a sum beyond 64 bits.
    #[error(
        "column {column:?}: row {row}: {value} does not fit in a 64-bit integer; derive a column with CAST(… AS DOUBLE)"
    )]
    HistoryOverflow {
        /// The column.
        column: String,
        /// The row.
        row: usize,
        /// The result, as text.
        value: String,
    },
    /// A failure of the CUDA device.
    #[error("the CUDA device failed: {problem}; start the server without --device to compute on the CPU")]
    Device {
        /// The failure.
        problem: String,
    },
    /// Arrow could not read or assemble a column.
    #[error("cannot {what} {name:?}: {source}")]
    Arrow {
        /// The failed action, such as "assemble output".
        what: &'static str,
        /// The output or column.
        name: String,
        /// Arrow's error.
        #[source]
        source: ArrowError,
    },
}

impl KernelError {
    /// Numbers the row, if the error names one, as the caller does.
    #[must_use]
    pub fn map_row(mut self, number: impl FnOnce(usize) -> usize) -> Self {
        if let Self::Null { row, .. }
        | Self::NullElement { row, .. }
        | Self::Unmapped { row, .. }
        | Self::Lossy { row, .. }
        | Self::OneHotIndex { row, .. }
        | Self::ByteCount { row, .. }
        | Self::HistoryOverflow { row, .. } = &mut self
        {
            *row = number(*row);
        }
        self
    }
}

/// The end of the error of a number that the output's dtype cannot hold.
fn lossy(row: usize, value: &str, dtype: &str) -> String {
    let float = match dtype {
        "FLOAT16" => "finite float16",
        "FLOAT32" | "BFLOAT16" => "float32",
        "FLOAT64" => "float64",
        _ => return format!(": {value} (row {row}) cannot become {dtype} without loss"),
    };
    let ways = if dtype == "FLOAT64" { "INT64" } else { "INT64 or FLOAT64" };
    format!(
        ", row {row}: {value} is not a {float}; use dtype {ways}, vocab, hash_bucket or a scale such as standardize"
    )
}

fn place(output: Option<&str>, column: &str) -> String {
    match output {
        Some(output) => format!("output {output:?}, column {column:?}"),
        None => format!("column {column:?}"),
    }
}
