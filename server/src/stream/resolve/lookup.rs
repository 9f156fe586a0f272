//! The tables of a plan's lookups: their snapshots are chosen and become part of the plan, and their rows are read once.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use arrow::{
    array::{Array, ArrayRef, AsArray, Float64Array, RecordBatch},
    compute::{cast, concat},
    datatypes::{DataType, Float64Type, Schema},
    row::{RowConverter, SortField},
    util::display::array_value_to_string,
};
use forebay_kernels::{LookupTable, Prefix};
use forebay_proto::v1;

use crate::stream::{StreamError, Streams, decode::decode};
use crate::{
    catalog::Snapshot,
    error::near_names,
    plan::{self, Lookup, PlanError, Tables},
    scan::{self, Projection},
};

/// Uncompressed bytes of a table's columns that a lookup reads: it is held in memory whole.
const TABLE_BYTES_MAX: u64 = 256 << 20;

impl Streams {
    /// The canonical plan with the snapshots of its tables written in, and the tables.
    pub(crate) async fn with_tables(&self, mut plan: v1::Plan) -> Result<(v1::Plan, Tables), StreamError> {
        let (mut chosen, mut tables) = (HashMap::new(), Tables::default());
        let lookups = plan::lookups(&plan)?;
        if lookups.is_empty() {
            return Ok((plan, tables));
        }
        for (path, lookup) in &lookups {
            if lookup.snapshot.is_empty() && !chosen.contains_key(&lookup.table) {
                let dataset = self.catalog.dataset(&lookup.table);
                let dataset = dataset.map_err(|error| PlanError::field(format!("{path}.table"), error.to_string()))?;
                let snapshot = dataset.present().await?;
                chosen.insert(lookup.table.clone(), snapshot.digest().to_owned());
            }
        }
        plan::pin(&mut plan, |table| chosen.get(table));
        let mut read: HashMap<(Lookup, String), ArrayRef> = HashMap::new();
        let mut keys: HashMap<Lookup, ArrayRef> = HashMap::new();
        for (path, lookup) in plan::lookups(&plan)? {
            let of_key = Lookup { column: lookup.key.clone(), ..lookup.clone() };
            let table =
                async |field: &str, column: &str| self.table_column(&format!("{path}.{field}"), &lookup, column).await;
            if !keys.contains_key(&of_key) {
                let values = table("key", &lookup.key).await?;
                let checked = self.cpu.run({
                    let (path, lookup, values) = (format!("{path}.key"), lookup.clone(), Arc::clone(&values));
                    move || check_unique(&path, &lookup, &values)
                });
                checked.await??;
                keys.insert(of_key.clone(), values);
            }
            let column = (of_key.clone(), lookup.column.clone());
            if !read.contains_key(&column) {
                read.insert(column.clone(), table("columns", &lookup.column).await?);
            }
            if let (Some(keys), Some(values)) = (keys.get(&of_key), read.get(&column)) {
                let (keys, values) = (Arc::clone(keys), Arc::clone(values));
                let table = LookupTable { table: lookup.table.clone(), key: lookup.key.clone(), keys, values };
                tables.insert(lookup, Arc::new(table));
            }
        }
        Ok((plan, tables))
    }

    /// A whole column of a table in the type that it is stored in: what its values mean decides what they are compared with. Text
    /// comes as Utf8, and no column in a dictionary.
    async fn table_column(&self, path: &str, lookup: &Lookup, column: &str) -> Result<ArrayRef, StreamError> {
        let snapshot = self.catalog.dataset(&lookup.table)?.pinned(&lookup.snapshot).await?;
        let stored = snapshot.wide_schema();
        let Ok(index) = stored.index_of(column) else {
            let near = near_names(column, stored.fields().iter().map(|field| field.name().as_str()));
            return Err(PlanError::UnknownColumn { path: path.to_owned(), column: column.to_owned(), near }.into());
        };
        let projection = Projection::new(&snapshot, vec![index]);
        let bytes = projection.row_bytes(&snapshot).saturating_mul(snapshot.row_count());
        if bytes > TABLE_BYTES_MAX {
            let reason = format!(
                "column \"{column}\" of dataset \"{}\" has about {bytes} bytes, and a lookup holds its table in memory, up to \
                 {TABLE_BYTES_MAX} bytes a column: join such a table beforehand",
                lookup.table
            );
            return Err(PlanError::field(path, reason).into());
        }
        check_type(path, column, stored)?;
        let mut pieces = vec![self.values(RecordBatch::new_empty(Arc::clone(projection.schema()))).await?];
        for group in snapshot.row_groups() {
            for chunk in self.chunks(&snapshot, group, &projection).await? {
                pieces.push(self.values(chunk).await?);
            }
        }
        let pieces: Vec<&dyn Array> = pieces.iter().map(AsRef::as_ref).collect();
        Ok(concat(&pieces)?)
    }

    async fn chunks(
        &self,
        snapshot: &Arc<Snapshot>,
        group: &crate::catalog::RowGroup,
        projection: &Projection,
    ) -> Result<Vec<RecordBatch>, StreamError> {
        let mut reader = scan::open(snapshot, group, projection, 0, &self.cpu, &self.budget).await?;
        let read = move || {
            let mut chunks = Vec::new();
            while let Some(chunk) = reader.next_chunk()? {
                chunks.push(chunk);
            }
            Ok(chunks)
        };
        decode(&self.cpu, snapshot, group, projection.schema(), read).await?
    }

    /// The only column of a chunk. Row groups may come in different encodings of text.
    async fn values(&self, chunk: RecordBatch) -> Result<ArrayRef, StreamError> {
        let plain = self.cpu.run(move || cast(chunk.column(0), &plain_type(chunk.column(0).data_type())));
        Ok(plain.await??)
    }
}

/// A type without a dictionary, and with text in one encoding.
fn plain_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Dictionary(_, values) => plain_type(values),
        DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
        other => other.clone(),
    }
}

/// Refuses columns that no chain reads.
fn check_type(path: &str, column: &str, stored: &Schema) -> Result<(), StreamError> {
    let data_type = stored.field_with_name(column)?.data_type();
    if data_type.is_nested() && !matches!(data_type, DataType::Dictionary(..)) {
        let reason = format!("column \"{column}\" is {data_type}, and a lookup takes single values");
        return Err(PlanError::field(path, reason).into());
    }
    Prefix::compile(column, &[], stored).map_err(|error| PlanError::of_chain(path, error, stored))?;
    Ok(())
}

/// Refuses keys of which one is null or there twice.
fn check_unique(path: &str, lookup: &Lookup, values: &ArrayRef) -> Result<(), StreamError> {
    let refused = |what: String| {
        let (key, table) = (&lookup.key, &lookup.table);
        PlanError::field(
            path,
            format!("column \"{key}\" of dataset \"{table}\" {what}: a lookup needs a key that is unique"),
        )
    };
    if values.null_count() > 0 {
        return Err(refused(format!("has {} nulls", values.null_count())).into());
    }
    let place = if let Some(texts) = values.as_string_opt::<i32>() {
        first_repeated(texts.iter())
    } else {
        let comparable = one_zero_and_one_nan(values)?;
        let converter = RowConverter::new(vec![SortField::new(comparable.data_type().clone())])?;
        first_repeated(converter.convert_columns(&[comparable])?.iter())
    };
    let Some(place) = place else { return Ok(()) };
    let value = match values.as_string_opt::<i32>() {
        Some(texts) => format!("{:?}", texts.value(place)),
        None => array_value_to_string(values, place)?,
    };
    Err(refused(format!("has {value} twice")).into())
}

/// Floats as float64 with one zero and one NaN, which is how they are compared; other values as they are.
fn one_zero_and_one_nan(values: &ArrayRef) -> Result<ArrayRef, StreamError> {
    if !values.data_type().is_floating() {
        return Ok(Arc::clone(values));
    }
    let wide = cast(values, &DataType::Float64)?;
    let numbers = wide.as_primitive::<Float64Type>().values().iter();
    Ok(Arc::new(Float64Array::from_iter_values(numbers.map(
        |number| {
            if number.is_nan() { f64::NAN } else { number + 0.0 }
        },
    ))))
}

fn first_repeated<T: Eq + std::hash::Hash>(mut values: impl Iterator<Item = T>) -> Option<usize> {
    let mut seen = HashSet::new();
    values.position(|value| !seen.insert(value))
}
