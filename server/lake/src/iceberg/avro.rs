//! Typed access to the records of Avro files, the format of manifests.

use apache_avro::{Reader, types::Value};

/// An Avro file: its key-value pairs and its records.
pub(super) struct AvroFile<'a> {
    reader: Reader<'a, &'a [u8]>,
}

/// The fields of a record.
#[derive(Clone, Copy)]
pub(super) struct AvroRecord<'a>(&'a [(String, Value)]);

// === impl AvroFile ===

impl<'a> AvroFile<'a> {
    pub(super) fn open(bytes: &'a [u8]) -> Result<Self, String> {
        Ok(Self { reader: Reader::new(bytes).map_err(|source| source.to_string())? })
    }

    /// The text of a key in the header.
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        self.reader.user_metadata().get(key).and_then(|value| std::str::from_utf8(value).ok())
    }

    /// Calls a function with each record.
    pub(super) fn each(self, mut visit: impl FnMut(AvroRecord<'_>) -> Result<(), String>) -> Result<(), String> {
        for (index, value) in self.reader.enumerate() {
            let named = |reason: String| format!("record {index}: {reason}");
            match value.map_err(|source| named(source.to_string()))? {
                Value::Record(fields) => visit(AvroRecord(&fields)).map_err(named)?,
                _ => return Err(named("it is not a record".to_owned())),
            }
        }
        Ok(())
    }
}

// === impl AvroRecord ===

impl<'a> AvroRecord<'a> {
    /// The value of a field; `None` if it is null or the record does not have it.
    pub(super) fn value(&self, name: &str) -> Option<&'a Value> {
        self.0.iter().find(|(known, _)| known == name).and_then(|(_, value)| present(value))
    }

    /// The values of all fields, in order.
    pub(super) fn values(&self) -> impl Iterator<Item = Option<&'a Value>> {
        self.0.iter().map(|(_, value)| present(value))
    }

    /// An integer of any width.
    pub(super) fn integer(&self, name: &str) -> Result<Option<i64>, String> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::Int(value)) => Ok(Some(i64::from(*value))),
            Some(Value::Long(value)) => Ok(Some(*value)),
            Some(_) => Err(format!("field \"{name}\" is not an integer")),
        }
    }

    pub(super) fn required_integer(&self, name: &str) -> Result<i64, String> {
        self.integer(name)?.ok_or_else(|| format!("it has no \"{name}\""))
    }

    /// A list of integers, empty if there is none.
    pub(super) fn integers(&self, name: &str) -> Result<Vec<i32>, String> {
        let wrong = || format!("field \"{name}\" is not a list of integers");
        let items = match self.value(name) {
            None => return Ok(Vec::new()),
            Some(Value::Array(items)) => items,
            Some(_) => return Err(wrong()),
        };
        let item = |item: &Value| match present(item) {
            Some(Value::Int(value)) => Ok(*value),
            // Some writers have 64 bits.
            Some(Value::Long(value)) => i32::try_from(*value).map_err(|_| wrong()),
            _ => Err(wrong()),
        };
        items.iter().map(item).collect()
    }

    /// An integer that counts something.
    pub(super) fn count(&self, name: &str) -> Result<u64, String> {
        let value = self.required_integer(name)?;
        u64::try_from(value).map_err(|_| format!("field \"{name}\" is {value}"))
    }

    pub(super) fn text(&self, name: &str) -> Result<Option<&'a str>, String> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::String(value)) => Ok(Some(value)),
            Some(_) => Err(format!("field \"{name}\" is not text")),
        }
    }

    pub(super) fn required_text(&self, name: &str) -> Result<&'a str, String> {
        self.text(name)?.ok_or_else(|| format!("it has no \"{name}\""))
    }

    pub(super) fn required_record(&self, name: &str) -> Result<AvroRecord<'a>, String> {
        match self.value(name) {
            Some(Value::Record(fields)) => Ok(AvroRecord(fields)),
            _ => Err(format!("it has no record \"{name}\"")),
        }
    }
}

/// The value within unions; `None` if it is null.
fn present(value: &Value) -> Option<&Value> {
    match value {
        Value::Null => None,
        Value::Union(_, value) => present(value),
        value => Some(value),
    }
}
