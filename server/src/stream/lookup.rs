//! The tables of a plan's lookups: their snapshots are chosen and become part of the plan, and their rows are read once.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use arrow::{
    array::{Array, ArrayRef, AsArray, RecordBatch},
    compute::{cast, concat},
    datatypes::{DataType, Float64Type, Int64Type, Schema, UInt64Type},
};
use forebay_kernels::{LookupTable, Prefix, VocabValues};
use forebay_proto::v1;

use super::{StreamError, Streams};
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
    pub(super) async fn with_tables(&self, mut plan: v1::Plan) -> Result<(v1::Plan, Tables), StreamError> {
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
        let mut keys: HashMap<Lookup, Arc<VocabValues>> = HashMap::new();
        for (path, lookup) in plan::lookups(&plan)? {
            let of_key = Lookup { column: lookup.key.clone(), ..lookup.clone() };
            let table =
                async |field: &str, column: &str| self.table_column(&format!("{path}.{field}"), &lookup, column).await;
            if !keys.contains_key(&of_key) {
                let values = table("key", &lookup.key).await?;
                keys.insert(of_key.clone(), Arc::new(unique(&format!("{path}.key"), &lookup, &values)?));
            }
            let column = (of_key.clone(), lookup.column.clone());
            if !read.contains_key(&column) {
                read.insert(column.clone(), table("columns", &lookup.column).await?);
            }
            if let (Some(keys), Some(values)) = (keys.get(&of_key), read.get(&column)) {
                let table = LookupTable { key: lookup.key.clone(), keys: Arc::clone(keys), values: Arc::clone(values) };
                tables.insert(lookup, Arc::new(table));
            }
        }
        Ok((plan, tables))
    }

    /// A whole column of a table, as chains hold its values.
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
        let prefix = prefix(path, column, stored)?;
        let mut pieces = vec![self.values(&prefix, RecordBatch::new_empty(Arc::clone(projection.schema()))).await?];
        for group in snapshot.row_groups() {
            for chunk in self.chunks(&snapshot, group, &projection).await? {
                pieces.push(self.values(&prefix, chunk).await?);
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
        let read = self.cpu.run(move || {
            let mut chunks = Vec::new();
            while let Some(chunk) = reader.next_chunk()? {
                chunks.push(chunk);
            }
            Ok(chunks)
        });
        read.await.map_err(|panic| scan::panicked(snapshot, group, projection.schema(), &panic))?
    }

    async fn values(&self, prefix: &Arc<Prefix>, chunk: RecordBatch) -> Result<ArrayRef, StreamError> {
        let prefix = Arc::clone(prefix);
        Ok(self.cpu.run(move || prefix.evaluate(&chunk)).await??)
    }
}

/// What turns a stored column into the values that chains hold.
fn prefix(path: &str, column: &str, stored: &Schema) -> Result<Arc<Prefix>, StreamError> {
    let data_type = stored.field_with_name(column)?.data_type();
    if data_type.is_nested() && !matches!(data_type, DataType::Dictionary(..)) {
        let reason = format!("column \"{column}\" is {data_type}, and a lookup takes single values");
        return Err(PlanError::field(path, reason).into());
    }
    let prefix = Prefix::compile(column, &[], stored);
    Ok(Arc::new(prefix.map_err(|error| PlanError::of_chain(path, error, stored))?))
}

/// The keys of a table, each there once.
fn unique(path: &str, lookup: &Lookup, values: &ArrayRef) -> Result<VocabValues, StreamError> {
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
    Ok(match values.data_type() {
        DataType::Utf8 => {
            let texts: Vec<String> = values.as_string::<i32>().iter().flatten().map(str::to_owned).collect();
            first_repeated(texts.iter()).map_or(Ok(()), |text| Err(refused(format!("has {text:?} twice"))))?;
            VocabValues::Strings(texts)
        }
        DataType::Int64 => {
            let numbers = values.as_primitive::<Int64Type>().values().to_vec();
            first_repeated(numbers.iter()).map_or(Ok(()), |number| Err(refused(format!("has {number} twice"))))?;
            VocabValues::Integers(numbers)
        }
        DataType::UInt64 => {
            let numbers = values.as_primitive::<UInt64Type>().values().to_vec();
            first_repeated(numbers.iter()).map_or(Ok(()), |number| Err(refused(format!("has {number} twice"))))?;
            VocabValues::Unsigned(numbers)
        }
        _ => {
            let numbers = cast(values, &DataType::Float64)?.as_primitive::<Float64Type>().values().to_vec();
            // One zero, one NaN.
            let bits: Vec<u64> =
                numbers.iter().map(|number| if number.is_nan() { f64::NAN } else { number + 0.0 }.to_bits()).collect();
            let repeated = first_repeated(bits.iter()).map(|bits| f64::from_bits(*bits));
            repeated.map_or(Ok(()), |number| Err(refused(format!("has {number} twice"))))?;
            VocabValues::Floats(numbers)
        }
    })
}

fn first_repeated<T: Eq + std::hash::Hash>(mut values: impl Iterator<Item = T>) -> Option<T> {
    let mut seen = HashSet::new();
    values.find_map(|value| seen.replace(value))
}
