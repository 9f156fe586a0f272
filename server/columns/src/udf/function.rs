//! A described function: calls it with columns, in batches that are bounded and spread over its processes.

use std::{ops::Range, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, RecordBatch},
    buffer::Buffer,
    compute::{CastOptions, cast_with_options, concat},
    datatypes::{DataType, FieldRef, Schema, SchemaRef},
    error::ArrowError,
};
use arrow_ipc::{
    reader::{StreamDecoder, StreamReader},
    writer::StreamWriter,
};
use forebay_runtime::budget::{Budget, Reservation};
use futures::future;
use tokio::sync::Semaphore;

use super::{call::Channel, error::UdfError};

/// Rows for which a call is worth another process: a call costs about as much as some hundred rows of a simple function.
const CALL_ROWS_MIN: usize = 1024;

/// The most bytes of the arguments of a call, as far as their sizes are even; a single row may be larger.
const CALL_BYTES_MAX: usize = 64 << 20;

/// A function whose types and digest are known.
#[derive(Debug)]
pub struct Function {
    channel: Channel,
    digest: String,
    arguments: SchemaRef,
    returns: FieldRef,
    processes: usize,
    /// For calls at once.
    permits: Arc<Semaphore>,
}

/// A column that a function returned, and its memory.
#[derive(Debug)]
pub struct Values {
    /// One value per row.
    pub array: ArrayRef,
    /// The memory of the values.
    pub held: Vec<Reservation>,
}

impl Function {
    pub(super) async fn describe(channel: Channel) -> Result<Self, UdfError> {
        let (described, schema) = channel.describe().await?;
        let invalid = |error: ArrowError| channel.protocol(error.to_string());
        // A schema is a stream without batches.
        let schema = StreamReader::try_new(schema.as_slice(), None).map_err(invalid)?.schema();
        let mut fields = schema.fields().to_vec();
        let count = described.arguments;
        let (Some(returns), true) = (fields.get(count).cloned(), count > 0 && fields.len() == count + 1) else {
            return Err(channel.protocol(format!("{count} arguments in a schema of {} fields", fields.len())));
        };
        fields.truncate(count);
        let permits = channel.socket.permits(described.processes);
        let arguments = Arc::new(Schema::new(fields));
        Ok(Self {
            channel,
            digest: described.digest,
            arguments,
            returns,
            processes: described.processes.max(1),
            permits,
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.channel.name
    }

    /// What identifies its source.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The type of its result.
    pub fn data_type(&self) -> &DataType {
        self.returns.data_type()
    }

    /// Its arguments.
    pub fn arguments(&self) -> &Schema {
        &self.arguments
    }

    /// Whether a column may be an argument of a type: of the same type, in another encoding of text, or a narrower
    /// number.
    pub fn accepts(column: &DataType, argument: &DataType) -> bool {
        use DataType as T;
        if let T::Dictionary(_, values) = column {
            return Self::accepts(values, argument);
        }
        let is_text = |data_type: &T| matches!(data_type, T::Utf8 | T::LargeUtf8 | T::Utf8View);
        let is_bytes = |data_type: &T| matches!(data_type, T::Binary | T::LargeBinary | T::BinaryView);
        let exact_bits = |data_type: &T| match data_type {
            T::Int8 | T::UInt8 => 8,
            T::Int16 | T::UInt16 => 16,
            T::Int32 | T::UInt32 => 32,
            T::Float16 => 11,
            T::Float32 => 24,
            T::Float64 => 53,
            _ => 64,
        };
        match (column, argument) {
            _ if column == argument => true,
            _ if is_text(column) && is_text(argument) || is_bytes(column) && is_bytes(argument) => true,
            (T::List(from) | T::LargeList(from), T::List(to) | T::LargeList(to)) => {
                Self::accepts(from.data_type(), to.data_type())
            }
            (T::FixedSizeList(from, width), T::FixedSizeList(to, other)) => {
                width == other && Self::accepts(from.data_type(), to.data_type())
            }
            (T::Timestamp(from, zone), T::Timestamp(to, other)) => from == to && zone.is_some() == other.is_some(),
            _ if column.is_integer() && argument.is_floating() => exact_bits(column) <= exact_bits(argument),
            _ if column.is_integer() && argument.is_integer() => {
                let is_wider = exact_bits(column) < exact_bits(argument);
                let is_same_sign = column.is_signed_integer() == argument.is_signed_integer();
                is_wider && (is_same_sign || argument.is_signed_integer())
            }
            _ if column.is_floating() && argument.is_floating() => exact_bits(column) < exact_bits(argument),
            _ => false,
        }
    }

    /// Computes the result for columns of one length. Fails as a whole if one call fails.
    pub async fn values(&self, columns: Vec<ArrayRef>, budget: &Budget) -> Result<Values, UdfError> {
        let rows = columns.first().map_or(0, Array::len);
        if rows == 0 {
            return Ok(Values { array: arrow::array::new_empty_array(self.data_type()), held: Vec::new() });
        }
        // Zero for a column of a type whose slices have no known size: its call is not divided by bytes.
        let sizes = columns.iter().map(|column| column.to_data().get_slice_memory_size().unwrap_or(0));
        let bytes = sizes.fold(0, usize::saturating_add);
        let parts = self.parts(rows, bytes);
        let calls = parts.into_iter().map(|part| {
            let columns: Vec<ArrayRef> = columns.iter().map(|column| column.slice(part.start, part.len())).collect();
            self.call(columns, budget)
        });
        let mut answered = future::try_join_all(calls).await?;
        if answered.len() == 1 {
            let (array, held) = answered.remove(0);
            return Ok(Values { array, held: vec![held] });
        }
        let (arrays, held): (Vec<ArrayRef>, Vec<Reservation>) = answered.into_iter().unzip();
        let joined =
            self.channel.cpu.run(move || concat(&arrays.iter().map(AsRef::as_ref).collect::<Vec<_>>())).await?;
        let array = joined.map_err(|error| self.channel.protocol(error.to_string()))?;
        Ok(Values { array, held })
    }

    /// The rows of each call: one per process, unless there are few rows or many bytes.
    fn parts(&self, rows: usize, bytes: usize) -> Vec<Range<usize>> {
        let count = rows.div_ceil(CALL_ROWS_MIN).min(self.processes).max(bytes.div_ceil(CALL_BYTES_MAX)).clamp(1, rows);
        (0..count).map(|part| rows * part / count..rows * (part + 1) / count).collect()
    }

    async fn call(&self, columns: Vec<ArrayRef>, budget: &Budget) -> Result<(ArrayRef, Reservation), UdfError> {
        // The semaphore is never closed.
        let _permit = self.permits.acquire().await;
        let rows = columns[0].len();
        let schema = Arc::clone(&self.arguments);
        let encoded = self.channel.cpu.run(move || encode(&schema, &columns)).await?;
        let encoded = encoded.map_err(|error| self.wrong(&error))?;
        let body = self.channel.call(&self.digest, &encoded, budget).await?;
        let returns = Arc::clone(&self.returns);
        let decoded = self.channel.cpu.run(move || decode(body.bytes, &returns, rows)).await?;
        Ok((decoded.map_err(|reason| self.channel.protocol(reason))?, body.held))
    }

    fn wrong(&self, error: &ArrowError) -> UdfError {
        UdfError::Result {
            name: self.channel.name.clone(),
            reason: format!("an argument cannot be converted: {error}"),
        }
    }
}

/// A batch of arguments in Arrow IPC; columns are converted to the types of the arguments.
fn encode(schema: &SchemaRef, columns: &[ArrayRef]) -> Result<Vec<u8>, ArrowError> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let converted = columns.iter().zip(schema.fields()).map(|(column, field)| {
        if column.data_type() == field.data_type() {
            return Ok(Arc::clone(column));
        }
        cast_with_options(column, field.data_type(), &options)
    });
    let batch = RecordBatch::try_new(Arc::clone(schema), converted.collect::<Result<_, _>>()?)?;
    let mut writer = StreamWriter::try_new(Vec::new(), schema)?;
    writer.write(&batch)?;
    writer.into_inner()
}

/// The column of a result, which is checked: the process is not trusted to keep the declaration.
fn decode(bytes: Vec<u8>, returns: &FieldRef, rows: usize) -> Result<ArrayRef, String> {
    let batch = StreamDecoder::new().decode(&mut Buffer::from_vec(bytes)).map_err(|error| error.to_string())?;
    let batch = batch.ok_or("its result has no batch")?;
    let [column] = batch.columns() else { return Err(format!("its result has {} columns", batch.num_columns())) };
    if column.len() != rows {
        return Err(format!("it returned {} values for {rows} rows", column.len()));
    }
    if column.data_type() != returns.data_type() {
        return Err(format!("it returned {}, but declares {}", column.data_type(), returns.data_type()));
    }
    Ok(Arc::clone(column))
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{Field, TimeUnit};

    use super::*;

    #[test]
    fn arguments_take_columns_that_convert_without_loss() {
        use DataType as T;
        let list = |item| T::List(Arc::new(Field::new("item", item, true)));
        let words = |keys| T::Dictionary(Box::new(keys), Box::new(T::Utf8));
        for (column, argument, is_accepted) in [
            (T::Utf8View, T::Utf8, true),
            (words(T::Int32), T::LargeUtf8, true),
            (T::Binary, T::Utf8, false),
            (T::Int32, T::Int64, true),
            (T::UInt32, T::Int64, true),
            (T::UInt32, T::Int32, false),
            (T::Int32, T::UInt64, false),
            (T::Int64, T::Int32, false),
            (T::Int32, T::Float64, true),
            (T::Int64, T::Float64, false),
            (T::Int16, T::Float32, true),
            (T::Float32, T::Float64, true),
            (T::Float64, T::Float32, false),
            (list(T::Float32), list(T::Float64), true),
            (T::Boolean, T::Int8, false),
            (T::Timestamp(TimeUnit::Second, None), T::Timestamp(TimeUnit::Millisecond, None), false),
        ] {
            assert_eq!(Function::accepts(&column, &argument), is_accepted, "{column} to {argument}");
        }
    }

    #[test]
    fn results_are_checked() {
        let returns: FieldRef = Arc::new(Field::new("result", DataType::Int64, true));
        let column: ArrayRef = Arc::new(arrow::array::Int64Array::from(vec![Some(1), None]));
        let schema = Arc::new(Schema::new(vec![Arc::clone(&returns)]));
        let encoded = encode(&schema, &[Arc::clone(&column)]).unwrap();
        assert_eq!(&decode(encoded.clone(), &returns, 2).unwrap(), &column);
        assert!(decode(encoded.clone(), &returns, 3).unwrap_err().contains("2 values for 3 rows"));
        let other: FieldRef = Arc::new(Field::new("result", DataType::Int32, true));
        assert!(decode(encoded.clone(), &other, 2).unwrap_err().contains("declares Int32"));
        for damaged in [Vec::new(), encoded[..encoded.len() / 2].to_vec(), vec![7; 40]] {
            assert!(decode(damaged, &returns, 2).is_err());
        }
    }
}
