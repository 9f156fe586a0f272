//! Filters. A condition on one column that arrives as a dictionary is decided once per value of the dictionary.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use arrow::{
    array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions, new_null_array},
    buffer::BooleanBuffer,
    compute::{and, cast, concat},
    datatypes::{DataType, Field, FieldRef, Int32Type, Schema, SchemaRef},
    error::ArrowError,
};

use super::{error::ExprError, expression::Expression, size::longest};

/// A dictionary with more values than this per row of a batch is not decided whole.
const VALUES_A_ROW: usize = 8;

/// Bytes of dictionaries that are written out at once.
const WRITTEN_BYTES: f64 = 67_108_864.0;

/// A filter over the columns of a schema.
#[derive(Clone, Debug)]
pub struct Filter {
    whole: Expression,
    /// The conditions of which all must be true.
    conditions: Vec<Condition>,
    schema: SchemaRef,
}

#[derive(Clone, Debug)]
struct Condition {
    expression: Expression,
    by_value: Option<ByValue>,
}

/// A condition that reads a single column.
#[derive(Clone, Debug)]
struct ByValue {
    /// The column's index in the schema.
    column: usize,
    /// The condition over values of the column, and their schema.
    expression: Expression,
    schema: SchemaRef,
    known: Arc<Mutex<Vec<Arc<Decided>>>>,
}

/// The values of a dictionary that pass.
#[derive(Debug)]
struct Decided {
    dictionary: Weak<dyn Array>,
    passes: BooleanBuffer,
    null_passes: bool,
}

impl Filter {
    /// Binds a compiled filter to batches of a schema; their columns may be dictionaries of the schema's types.
    pub fn bind(filter: &Expression, schema: &Schema) -> Result<Self, ExprError> {
        let whole = filter.bind(schema)?;
        let conditions = whole.conditions(schema)?.into_iter().map(|expression| {
            let by_value = ByValue::of(&expression, schema)?;
            Ok(Condition { expression, by_value })
        });
        let conditions = conditions.collect::<Result<_, ExprError>>()?;
        Ok(Self { conditions, whole, schema: Arc::new(schema.clone()) })
    }

    /// The columns that it reads, sorted.
    pub fn columns(&self) -> &[String] {
        self.whole.columns()
    }

    /// Whether it reads a column in conditions that read no other column, so that dictionaries of it pay.
    pub fn decides_by_value(&self, column: &str) -> bool {
        let mut reads = self.conditions.iter().filter(|condition| condition.reads(column)).peekable();
        reads.peek().is_some() && reads.all(|condition| condition.by_value.is_some())
    }

    /// The rows for which the filter is true; null is not true.
    pub fn passes(&self, batch: &RecordBatch) -> Result<BooleanArray, ExprError> {
        match self.by_values(batch) {
            Some(passes) => Ok(passes),
            None => self.by_rows(&self.whole, batch),
        }
    }

    /// Evaluates an expression for every row, with columns of the schema's types. Dictionaries of long values are written
    /// out for some rows at a time.
    fn by_rows(&self, expression: &Expression, batch: &RecordBatch) -> Result<BooleanArray, ExprError> {
        let failed = |source: ArrowError| self.whole.failed(source.to_string());
        let fields = self.schema.fields().iter().enumerate();
        let is_written = |(column, field): &(usize, &FieldRef)| {
            batch.column(*column).data_type() != field.data_type() && expression.columns().contains(field.name())
        };
        let written: Vec<_> = fields.filter(is_written).collect();
        let row_bytes: f64 = written.iter().map(|(column, _)| longest(batch.column(*column))).sum();
        let rows = (WRITTEN_BYTES / row_bytes.max(1.0)).max(1.0) as usize;
        let mut pieces = Vec::new();
        for start in (0..batch.num_rows().max(1)).step_by(rows) {
            let piece = batch.slice(start, rows.min(batch.num_rows() - start));
            let mut columns = piece.columns().to_vec();
            for (column, field) in &written {
                columns[*column] = cast(piece.column(*column), field.data_type()).map_err(failed)?;
            }
            let options = RecordBatchOptions::new().with_row_count(Some(piece.num_rows()));
            let fields = self.schema.fields().iter().zip(&columns).map(|(field, column)| {
                Arc::new(field.as_ref().clone().with_data_type(column.data_type().clone()).with_nullable(true))
            });
            let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
            let plain = RecordBatch::try_new_with_options(schema, columns, &options).map_err(failed)?;
            pieces.push(expression.passes(&plain)?);
        }
        match pieces.as_slice() {
            [passes] => Ok(passes.clone()),
            pieces => {
                let pieces: Vec<&dyn Array> = pieces.iter().map(|piece| piece as &dyn Array).collect();
                concat(&pieces).map(|passes| passes.as_boolean().clone()).map_err(failed)
            }
        }
    }

    /// `None` if no condition can be decided by value, or if one fails: it may fail for values that no row has, or that
    /// another condition excludes.
    fn by_values(&self, batch: &RecordBatch) -> Option<BooleanArray> {
        let decided: Vec<_> = self
            .conditions
            .iter()
            .map(|condition| condition.by_value.as_ref().and_then(|by_value| by_value.passes(batch)))
            .collect();
        if decided.iter().all(Option::is_none) {
            return None;
        }
        let mut all: Option<BooleanArray> = None;
        for (condition, decided) in self.conditions.iter().zip(decided) {
            let passes = match decided {
                Some(passes) => passes,
                None => self.by_rows(&condition.expression, batch).ok()?,
            };
            all = Some(match all {
                Some(all) => and(&all, &passes).ok()?,
                None => passes,
            });
        }
        all
    }
}

impl Condition {
    fn reads(&self, column: &str) -> bool {
        self.expression.columns().iter().any(|read| read == column)
    }
}

impl ByValue {
    /// `None` if the condition reads several columns, or none.
    fn of(condition: &Expression, schema: &Schema) -> Result<Option<Self>, ExprError> {
        let [name] = condition.columns() else { return Ok(None) };
        let Ok(column) = schema.index_of(name) else { return Ok(None) };
        let data_type = match schema.field(column).data_type() {
            DataType::Dictionary(_, values) => values.as_ref().clone(),
            other => other.clone(),
        };
        let schema = Arc::new(Schema::new(vec![Field::new(name, data_type, true)]));
        let expression = condition.bind(&schema)?;
        Ok(Some(Self { column, expression, schema, known: Arc::default() }))
    }

    /// The rows that pass; `None` if they must be decided one by one.
    fn passes(&self, batch: &RecordBatch) -> Option<BooleanArray> {
        let dictionary = batch.columns().get(self.column)?.as_any_dictionary_opt()?;
        let keys = dictionary.keys().as_primitive_opt::<Int32Type>()?;
        let decided = self.decided(dictionary.values(), batch.num_rows())?;
        let passes = |row: usize| {
            if keys.is_valid(row) {
                usize::try_from(keys.value(row))
                    .is_ok_and(|key| key < decided.passes.len() && decided.passes.value(key))
            } else {
                decided.null_passes
            }
        };
        Some(BooleanArray::new(BooleanBuffer::collect_bool(keys.len(), passes), None))
    }

    fn decided(&self, dictionary: &ArrayRef, rows: usize) -> Option<Arc<Decided>> {
        // Streams that share a dictionary wait for the first, which decides it.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let identity = Arc::downgrade(dictionary);
        if let Some(decided) = known.iter().find(|decided| decided.dictionary.ptr_eq(&identity)) {
            return Some(Arc::clone(decided));
        }
        if dictionary.len() > rows.saturating_mul(VALUES_A_ROW) {
            return None;
        }
        let passes = |values: ArrayRef| {
            let values = RecordBatch::try_new(SchemaRef::clone(&self.schema), vec![values]).ok()?;
            self.expression.passes(&values).ok()
        };
        let null = passes(new_null_array(self.schema.field(0).data_type(), 1))?;
        let of_values = passes(Arc::clone(dictionary))?;
        let decided =
            Arc::new(Decided { dictionary: identity, passes: of_values.values().clone(), null_passes: null.value(0) });
        // The address of a freed dictionary is not used again while a weak reference to it exists.
        known.retain(|decided| decided.dictionary.strong_count() > 0);
        known.push(Arc::clone(&decided));
        Some(decided)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{DictionaryArray, Int32Array, Int64Array, StringArray};

    use super::*;

    const FILTERS: [&str; 9] = [
        "city = 'Oslo'",
        "city <> 'Oslo' AND amount > 1",
        "city IS NULL",
        "city IS NOT NULL AND amount IS NULL",
        "city LIKE '%o' OR city IS NULL",
        "city IN ('Oslo', 'Rome') AND amount < 3 AND city < 'P'",
        "length(city) = 4 OR amount = 2",
        "CAST(city AS BIGINT) > 5 AND amount > 100",
        "coalesce(city, 'Rome') = 'Rome'",
    ];

    fn table(values: StringArray, keys: Vec<Option<i32>>) -> RecordBatch {
        let cities = DictionaryArray::new(Int32Array::from(keys), Arc::new(values));
        let amounts: Int64Array = (0..cities.len()).map(|row| (row % 5 != 0).then_some(row as i64 % 4)).collect();
        RecordBatch::try_from_iter([("city", Arc::new(cities) as ArrayRef), ("amount", Arc::new(amounts))]).unwrap()
    }

    /// The same filter over the same rows as plain text.
    fn plain(filter: &str, batch: &RecordBatch, schema: &Schema) -> Result<BooleanArray, ExprError> {
        let cities = cast(batch.column(0), &DataType::Utf8).unwrap();
        let batch = RecordBatch::try_from_iter([("city", cities), ("amount", Arc::clone(batch.column(1)))]).unwrap();
        Expression::compile_filter(filter, schema).unwrap().passes(&batch)
    }

    #[test]
    fn decides_dictionaries_as_it_decides_rows() {
        let schema =
            Schema::new(vec![Field::new("city", DataType::Utf8, true), Field::new("amount", DataType::Int64, true)]);
        let values = || StringArray::from(vec![Some("Oslo"), Some("Rome"), None, Some("Lima"), Some("")]);
        let keys = |rows: i32| (0..rows).map(|row| (row % 7 != 3).then_some(row % 5)).collect::<Vec<_>>();
        let batches = [
            table(values(), keys(100)),
            table(values(), vec![]),
            table(values(), keys(1)),
            table(StringArray::from(Vec::<&str>::new()), vec![None; 9]),
            table(StringArray::from_iter_values((0..2000).map(|value| value.to_string())), keys(9)),
        ];
        for text in FILTERS {
            let filter = Expression::compile_filter(text, &schema).unwrap();
            let filter = Filter::bind(&filter, &schema).unwrap();
            for batch in batches.iter().chain(&batches) {
                match (filter.passes(batch), plain(text, batch, &schema)) {
                    (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{text}"),
                    (found, expected) => assert_eq!(found.is_err(), expected.is_err(), "{text}"),
                }
            }
        }
    }

    #[test]
    fn a_dictionary_is_decided_once() {
        let schema =
            Schema::new(vec![Field::new("city", DataType::Utf8, true), Field::new("amount", DataType::Int64, true)]);
        let filter = Expression::compile_filter("city = 'Oslo' AND amount > 1", &schema).unwrap();
        let filter = Filter::bind(&filter, &schema).unwrap();
        let known = || filter.conditions[0].by_value.as_ref().unwrap().known.lock().unwrap().clone();
        let batch = table(StringArray::from(vec!["Oslo", "Rome"]), vec![Some(0), Some(1), None]);
        filter.passes(&batch).unwrap();
        let first = known();
        filter.passes(&batch.slice(1, 2)).unwrap();
        assert!(first.len() == 1 && Arc::ptr_eq(&first[0], &known()[0]));
        drop(batch);
        filter.passes(&table(StringArray::from(vec!["Lima"]), vec![Some(0)])).unwrap();
        assert_eq!(known().len(), 1);
    }
}
