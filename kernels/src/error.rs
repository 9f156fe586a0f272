//! What can be wrong with a program or with the rows it meets, in words for the person who wrote the plan.

use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use thiserror::Error;

/// Outputs that cannot be compiled against the columns' types: the plan is wrong, no row has been looked at.
#[derive(Debug, Error)]
pub enum CompileError {
    /// What is wrong with one chain, and its place.
    #[error("{error}")]
    Chain {
        /// The output's place in the plan, from 0.
        output: usize,
        /// The chain's place in the output, from 0.
        chain: usize,
        /// What is wrong.
        error: Box<CompileError>,
    },
    /// There is nothing to compute.
    #[error("the plan has no outputs")]
    NoOutputs,
    /// An output without a name.
    #[error("output number {number} has an empty name")]
    EmptyName {
        /// The output's place in the plan, from 1.
        number: usize,
    },
    /// Two outputs of one name.
    #[error("there are two outputs named {output:?}; names must differ")]
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
    /// A column that the input does not hold.
    #[error("{}: there is no such column", place(.output.as_deref(), .column))]
    UnknownColumn {
        /// The output that asks for it; none in a fit.
        output: Option<String>,
        /// The missing column.
        column: String,
    },
    /// `AS_STORED` with several columns or with ops.
    #[error(
        "output {output:?} is AS_STORED, which passes one column through untouched: it takes exactly one column and no ops, \
         but has {columns} column(s) and {ops} op(s)"
    )]
    AsStored {
        /// The output.
        output: String,
        /// How many columns it has.
        columns: usize,
        /// How many ops its chains have together.
        ops: usize,
    },
    /// A column whose type no kernel reads.
    #[error(
        "{}: {} cannot read a column of type {data_type}; such a column can only be passed through whole, as an output of its \
         own with dtype AS_STORED and no ops",
        place(.output.as_deref(), .column), .op.map_or("a numeric output".to_owned(), |op| format!("op {op}"))
    )]
    UnsupportedType {
        /// The output; none in a fit.
        output: Option<String>,
        /// The column.
        column: String,
        /// Its type.
        data_type: DataType,
        /// The first op of its chain, if there is one.
        op: Option<&'static str>,
    },
    /// Text or bytes that reach a numeric output.
    #[error(
        "{}: a column of type {data_type} does not turn into numbers by itself; end its chain in {ways}, or pass it through with \
         dtype AS_STORED",
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
    /// Lists that are not alone in their output.
    #[error(
        "{}: its chain ends in lists, which can only be an output of their own, of one column and with a dtype other than AS_STORED; \
         to lay lists side by side end the chain in pad, first_n with a value, or multi_hot",
        place(Some(.output), .column)
    )]
    Lists {
        /// The output.
        output: String,
        /// The column.
        column: String,
    },
    /// A table that an op looks up and that cannot be read.
    #[error("{}: its table cannot be read: {source}", place(.output.as_deref(), .column))]
    Table {
        /// The output; none in a fit.
        output: Option<String>,
        /// The column.
        column: String,
        /// Arrow's reason.
        #[source]
        source: ArrowError,
    },
    /// More columns than a batch may have.
    #[error("output {output:?} brings the plan to {columns} columns in all; the limit is {limit}")]
    TooWide {
        /// The output that goes over the limit.
        output: String,
        /// Columns up to and with it.
        columns: usize,
        /// [`crate::MAX_COLUMNS`].
        limit: usize,
    },
    /// An op that does not fit the column or whose parameters make no sense.
    #[error("{}: op {op} (number {number} of its chain): {problem}", place(.output.as_deref(), .column))]
    Op {
        /// The output; none in a fit.
        output: Option<String>,
        /// The column.
        column: String,
        /// The op's name.
        op: &'static str,
        /// The op's place in the chain, from 1.
        number: usize,
        /// What is wrong.
        problem: Box<OpProblem>,
    },
}

/// What is wrong with one op of a chain.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum OpProblem {
    /// A parameter outside of what the op allows.
    #[error("{0}")]
    Parameter(String),
    /// The op before gives something that this op cannot take.
    #[error("it takes {takes}, but gets {gets} here")]
    Input {
        /// What the op takes.
        takes: &'static str,
        /// What the chain gives it.
        gets: &'static str,
    },
    /// Values that the column cannot equal.
    #[error("its {parameter} is {given}, but the column holds {column} here")]
    ValueType {
        /// The parameter.
        parameter: &'static str,
        /// What was given.
        given: &'static str,
        /// What the chain gives.
        column: &'static str,
    },
    /// A column that the input does not hold.
    #[error("there is no column {column:?}")]
    UnknownColumn {
        /// The column.
        column: String,
    },
    /// An op behind `one_hot` or `multi_hot`.
    #[error("nothing may follow one_hot or multi_hot, which has to be the last op of a chain")]
    AfterOneHot,
    /// `one_hot` in a chain whose values are asked for.
    #[error("it lays out columns and has no values to learn from")]
    NoValues,
}

/// Rows that a program cannot turn into the outputs it was compiled for.
#[derive(Debug, Error)]
pub enum KernelError {
    /// A batch without a column of the program.
    #[error("the batch lacks column {column:?}")]
    MissingColumn {
        /// The column.
        column: String,
    },
    /// A batch whose column has another type than the program was compiled for.
    #[error("column {column:?} has type {found}, but the program was compiled for {expected}")]
    ColumnType {
        /// The column.
        column: String,
        /// The type at compilation.
        expected: DataType,
        /// The type in the batch.
        found: DataType,
    },
    /// Rows that the batch does not have.
    #[error("rows {start}..{end} are not within the batch's {rows} rows")]
    OutOfRange {
        /// First row asked for.
        start: usize,
        /// Row after the last one.
        end: usize,
        /// Rows of the batch.
        rows: usize,
    },
    /// More rows than the builder has room for.
    #[error("{rows} rows do not fit: {len} of {capacity} are taken")]
    Full {
        /// Rows to append.
        rows: usize,
        /// Rows there already.
        len: usize,
        /// Rows there is room for.
        capacity: usize,
    },
    /// A null in an output that carries none.
    #[error(
        "output {output:?}, column {column:?}: row {row} is null; say what a null becomes with fill_null, or leave such rows \
         out with the filter `{column} IS NOT NULL`"
    )]
    Null {
        /// The output.
        output: String,
        /// The column.
        column: String,
        /// The row in the batch that was appended.
        row: usize,
    },
    /// A number that the output's dtype cannot hold.
    #[error("output {output:?}, column {column:?}: {value} (row {row}) cannot become {dtype} without loss")]
    Lossy {
        /// The output.
        output: String,
        /// The column.
        column: String,
        /// The row in the batch that was appended.
        row: usize,
        /// The number, as text.
        value: String,
        /// The dtype's name.
        dtype: &'static str,
    },
    /// A value that is no index of a `one_hot` or `multi_hot`.
    #[error("output {output:?}, column {column:?}: {value} (row {row}) is not an index of {op}, which takes whole numbers from 0 to {}", .size - 1)]
    OneHotIndex {
        /// The output.
        output: String,
        /// The column.
        column: String,
        /// The row in the batch that was appended.
        row: usize,
        /// The value, as text.
        value: String,
        /// Columns of the op.
        size: usize,
        /// The op.
        op: &'static str,
    },
    /// The device that computes failed.
    #[error("the CUDA device failed: {problem}; start the server without --device to compute on the CPU")]
    Device {
        /// What happened.
        problem: String,
    },
    /// Arrow could not put a column together.
    #[error("cannot {what} {name:?}: {source}")]
    Arrow {
        /// What was being done, as in "put together output".
        what: &'static str,
        /// The output or column.
        name: String,
        /// Arrow's reason.
        #[source]
        source: ArrowError,
    },
}

fn place(output: Option<&str>, column: &str) -> String {
    match output {
        Some(output) => format!("output {output:?}, column {column:?}"),
        None => format!("column {column:?}"),
    }
}
