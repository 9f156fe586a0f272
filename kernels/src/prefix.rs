//! The values that a fit learns from: the result of the first ops of a chain, as an Arrow array with nulls.

mod decimals;

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, RecordBatch, StringBuilder, UInt64Array},
    compute::take,
    datatypes::{DataType, Schema},
    error::ArrowError,
};

use crate::{
    compile::{
        chain::{CompiledChain, Head, Joined, JoinedRows},
        inputs::Inputs,
        outputs::chain_error,
    },
    domain::{Domain, same_values},
    error::{CompileError, KernelError, OpProblem},
    execute::{
        dictionary::DictionaryKeys,
        explain::{column_error, wrong_type},
        list_rows::ListRows,
        lists::ListFeed,
        source::{Feed, UnreadableColumn, evaluate_column},
        text::Strings,
    },
    ops::Op,
    vector::{collected::Collected, tile::Values},
};

/// A column and the ops that precede the one that learns.
///
/// Numbers are returned as Int64, `UInt64`, Float32 or Float64, by the domain of the chain. Text that no op turned into
/// numbers is returned as Utf8, from any encoding. Nulls that no op filled stay null. The elements of lists, and of the
/// columns that `pad` makes of them, are returned one after the other.
#[derive(Debug)]
pub struct Prefix {
    columns: Vec<String>,
    input_types: Vec<DataType>,
    chain: CompiledChain,
    data_type: DataType,
}

impl Prefix {
    /// Compiles the ops against the columns' types.
    pub fn compile(column: &str, ops: &[Op], input: &Schema) -> Result<Self, CompileError> {
        let mut inputs = Inputs::new(input, evaluate_column);
        let chain = CompiledChain::compile(column, ops, &mut inputs)
            .map_err(|problem| chain_error(problem, None, column, ops, &mut inputs))?;
        if let Some(op) = ops.last().filter(|op| matches!(op, Op::OneHot { .. } | Op::MultiHot { .. })) {
            let (column, number) = (column.to_owned(), ops.len());
            let problem = Box::new(OpProblem::NoValues);
            return Err(CompileError::Op { output: None, column, op: op.name(), number, problem });
        }
        let data_type = match chain.domain {
            Domain::Number(number) => number.data_type(),
            Domain::Text => DataType::Utf8,
            Domain::Binary => {
                let (column, op) = (column.to_owned(), ops.first().map(Op::name));
                let data_type = inputs.columns[chain.input].data_type().clone();
                return Err(CompileError::UnsupportedType { output: None, column, data_type, op });
            }
        };
        let columns = inputs.columns.iter().map(|field| field.name().clone()).collect();
        let input_types = inputs.columns.iter().map(|field| field.data_type().clone()).collect();
        Ok(Self { columns, input_types, chain, data_type })
    }

    /// Returns decimals of more than 15 digits as Decimal128 or Decimal256, not as doubles, which would merge some of
    /// them.
    ///
    /// This applies while the values are still those of a column (which may be one that `lookup` found), that is after
    /// no op other than `fill_null`, and if some decimal type holds both them and the fill value.
    #[must_use]
    pub fn with_exact_decimals(self) -> Self {
        let data_type = decimals::exact_type(&self.chain).unwrap_or(self.data_type);
        Self { data_type, ..self }
    }

    /// The type of the arrays that [`Self::evaluate`] returns.
    pub fn data_type(&self) -> &DataType {
        &self.data_type
    }

    /// The columns that a batch must have.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// The values of a batch's rows, or of the elements of its lists.
    pub fn evaluate(&self, batch: &RecordBatch) -> Result<ArrayRef, KernelError> {
        let mut inputs = Vec::with_capacity(self.columns.len());
        for (column, expected) in self.columns.iter().zip(&self.input_types) {
            let Some(array) = batch.column_by_name(column) else {
                return Err(KernelError::MissingColumn { column: column.clone() });
            };
            if !same_values(expected, array.data_type()) {
                return Err(wrong_type(column, expected, array.data_type()));
            }
            inputs.push(Arc::clone(array));
        }
        self.values(&inputs).map_err(|problem| {
            let input = problem.input;
            column_error(problem, &self.columns[input], &self.input_types[input], &inputs[input])
        })
    }

    fn values(&self, inputs: &[ArrayRef]) -> Result<ArrayRef, UnreadableColumn> {
        let input = self.chain.input;
        let (column, rows) = (&inputs[input], 0..inputs[input].len());
        let unreadable = |source| UnreadableColumn { input, source };
        let mut mapped: Vec<_> = (0..=self.chain.slot).map(|_| None).collect();
        if let Some(list) = &self.chain.list {
            let lists = ListRows::new(column, rows.clone(), list.limit).map_err(|source| unreadable(Some(source)))?;
            let lists = lists.ok_or_else(|| unreadable(None))?;
            if let Some((_, found)) = list.exact.and_then(|expected| lists.first_unequal(expected)) {
                let problem = format!("a value has {found} bytes, unlike the others");
                return Err(unreadable(Some(ArrowError::InvalidArgumentError(problem))));
            }
            if self.data_type.is_decimal() {
                return self.decimals(&lists.elements);
            }
            if let Head::Strings { fill } = &self.chain.head {
                let text = text(&lists.elements, fill.as_deref()).map_err(|source| unreadable(Some(source)))?;
                return text.ok_or_else(|| unreadable(None));
            }
            let elements = Feed::of(&self.chain, &lists.elements, &(0..lists.elements.len()), &mut mapped)?;
            return Ok(ListFeed { chain: &self.chain, lists: &lists, elements }.load(rows).elements.into_array());
        }
        match &self.chain.head {
            Head::Strings { fill } => text(column, fill.as_deref())
                .map_err(|source| unreadable(Some(source)))?
                .ok_or_else(|| unreadable(None)),
            Head::Joined(joined) if let Some(found) = self.found(joined) => {
                let rows_found = Feed::new(&joined.front, inputs, &rows, &mut mapped)?.collect(rows);
                let places = places(&rows_found);
                let found = take(found.as_ref(), &places, None).map_err(|source| unreadable(Some(source)))?;
                if self.data_type.is_decimal() { self.decimals(&found) } else { Ok(found) }
            }
            _ if self.data_type.is_decimal() => self.decimals(column),
            _ => Ok(Feed::new(&self.chain, inputs, &rows, &mut mapped)?.collect(rows).into_array()),
        }
    }

    /// The rows of a table, after a leading null, if their values are returned as stored.
    fn found<'a>(&self, joined: &'a Joined) -> Option<&'a ArrayRef> {
        match &joined.rows {
            JoinedRows::Strings(found) => Some(found),
            JoinedRows::Numbers(_) => joined.decimals.as_ref().filter(|_| self.data_type.is_decimal()),
        }
    }

    fn decimals(&self, values: &ArrayRef) -> Result<ArrayRef, UnreadableColumn> {
        let unreadable = |source| UnreadableColumn { input: self.chain.input, source };
        let exact = decimals::exact(values, self.chain.filled.as_deref(), &self.data_type);
        exact.map_err(|source| unreadable(Some(source)))?.ok_or_else(|| unreadable(None))
    }
}

/// The positions of rows in a table.
fn places(rows: &Collected) -> UInt64Array {
    match rows.values(0..rows.len()) {
        Values::Int(rows) => rows.iter().map(|row| *row as u64).collect(),
        _ => UInt64Array::from(Vec::<u64>::new()),
    }
}

/// A column of text as Utf8, its nulls filled; `None` if it is not text. Fails beyond 2 GiB, the limit of Utf8.
fn text(array: &ArrayRef, fill: Option<&str>) -> Result<Option<ArrayRef>, ArrowError> {
    let (strings, keys) = match array.as_any_dictionary_opt() {
        Some(dictionary) => (Strings::new(dictionary.values().as_ref()), DictionaryKeys::new(dictionary)),
        None => (Strings::new(array.as_ref()), None),
    };
    let Some(strings) = strings else { return Ok(None) };
    let value = |row| match &keys {
        Some(keys) => keys.get(row).and_then(|key| strings.get_text(key)).or(fill),
        None => strings.get_text(row).or(fill),
    };
    let bytes = (0..array.len()).filter_map(value).map(str::len).sum::<usize>();
    if i32::try_from(bytes).is_err() {
        return Err(ArrowError::OffsetOverflowError(bytes));
    }
    let mut builder = StringBuilder::with_capacity(array.len(), bytes);
    for row in 0..array.len() {
        builder.append_option(value(row));
    }
    Ok(Some(Arc::new(builder.finish())))
}

#[cfg(test)]
mod tests;
