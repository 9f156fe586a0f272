use arrow::{
    array::{
        Array, AsArray, BooleanArray, DictionaryArray, FixedSizeListArray, Float64Array, Int32Array, Int64Array,
        LargeStringArray, ListArray, NullArray, StringArray, StringViewArray, StructArray,
    },
    datatypes::{Int8Type, Int32Type, Int64Type},
    ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions},
};
use arrow_ipc::CompressionType;
use forebay_runtime::cpu_pool::CpuError;

use super::*;

const BYTES_MAX: u64 = 1 << 30;

/// A table with every kind of layout.
fn table() -> RecordBatch {
    let words: DictionaryArray<Int8Type> = [Some("ab"), None, Some("c"), Some("ab")].into_iter().collect();
    let lists =
        ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), None]), None, Some(vec![]), None]);
    let pairs = FixedSizeListArray::from_iter_primitive::<Int64Type, _, _>(
        [Some([Some(1), Some(2)]), None, Some([None, Some(4)]), Some([Some(5), Some(6)])],
        2,
    );
    let inner: ArrayRef = Arc::new(Float64Array::from(vec![Some(1.5), None, Some(3.0), Some(4.0)]));
    let named = StructArray::from(vec![(Arc::new(Field::new("f", DataType::Float64, true)), inner)]);
    let columns: [(&str, ArrayRef); 10] = [
        ("x", Arc::new(Int64Array::from(vec![Some(1), None, Some(3), Some(4)]))),
        ("word", Arc::new(words)),
        ("text", Arc::new(StringArray::from(vec![Some("é"), None, Some(""), Some("long enough to be elsewhere")]))),
        ("large", Arc::new(LargeStringArray::from(vec!["a", "b", "c", "d"]))),
        ("view", Arc::new(StringViewArray::from(vec![Some("short"), None, Some("too long to be within"), Some("")]))),
        ("flag", Arc::new(BooleanArray::from(vec![Some(true), None, Some(false), Some(true)]))),
        ("lists", Arc::new(lists)),
        ("pairs", Arc::new(pairs)),
        ("named", Arc::new(named)),
        ("nothing", Arc::new(NullArray::new(4))),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

/// The messages of a client: the header of the schema, then dictionaries and batches.
fn sent(batches: &[RecordBatch], codec: Option<CompressionType>) -> (Vec<u8>, Vec<FlightData>) {
    let options = IpcWriteOptions::default().try_with_compression(codec).unwrap();
    let (generator, mut tracker) = (IpcDataGenerator::default(), DictionaryTracker::new(false));
    let schema = generator.schema_to_bytes_with_dictionary_tracker(&batches[0].schema(), &mut tracker, &options);
    let mut context = IpcWriteContext::default();
    let mut messages = Vec::new();
    for batch in batches {
        let (dictionaries, batch) = generator.encode(batch, &mut tracker, &options, &mut context).unwrap();
        messages.extend(dictionaries.into_iter().chain([batch]).map(|encoded| FlightData {
            data_header: encoded.ipc_message.into(),
            data_body: encoded.arrow_data.into(),
            ..FlightData::default()
        }));
    }
    (schema.ipc_message, messages)
}

fn decoder(schema: &[u8]) -> Decoder {
    let schema = read_schema(schema).unwrap();
    let columns = (0..schema.fields().len()).collect();
    Decoder::new(Arc::new(schema), columns)
}

/// Decodes messages up to the first error. Returns the batches.
fn decode(decoder: &mut Decoder, messages: &[FlightData]) -> Result<Vec<RecordBatch>, MessageError> {
    let mut batches = Vec::new();
    for data in messages {
        match decoder.check(data, BYTES_MAX)? {
            MessageKind::Empty => {}
            MessageKind::Dictionary { .. } => decoder.dictionary(data)?,
            MessageKind::Batch { .. } => batches.push(decoder.batch(data)?),
        }
    }
    Ok(batches)
}

/// Whether Arrow's reader panicked.
fn is_panic(error: &MessageError) -> bool {
    let panic = CpuError::Panicked("|".to_owned()).of_damage();
    error.to_string().starts_with(panic.split('|').next().unwrap())
}

/// Deterministic corruption, by a linear congruential generator.
struct Corruption(u64);

impl Corruption {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % end
    }

    /// Overwrites a few bytes with extreme lengths and offsets.
    fn apply(&mut self, bytes: &mut [u8]) {
        if bytes.is_empty() {
            return;
        }
        for _ in 0..=self.below(3) {
            let start = self.below(bytes.len());
            let byte = [0, 1, 0x7f, 0x80, 0xff, self.0 as u8][self.below(6)];
            let width = [1, 1, 2, 4, 8][self.below(5)];
            bytes.iter_mut().skip(start).take(width).for_each(|target| *target = byte);
        }
    }
}

#[test]
fn decodes_every_layout_in_every_compression() {
    let table = table();
    for codec in [None, Some(CompressionType::LZ4_FRAME), Some(CompressionType::ZSTD)] {
        let (schema, messages) = sent(&[table.clone(), table.slice(1, 2), table.slice(0, 0)], codec);
        let batches = decode(&mut decoder(&schema), &messages).unwrap();
        assert_eq!(batches, [table.clone(), table.slice(1, 2), table.slice(0, 0)], "{codec:?}");
    }
}

#[test]
fn decodes_only_the_projected_columns() {
    let (schema, messages) = sent(&[table()], None);
    let schema = Arc::new(read_schema(&schema).unwrap());
    let mut decoder = Decoder::new(schema, vec![0, 2]);
    let batches = decode(&mut decoder, &messages).unwrap();
    assert_eq!(batches[0], table().project(&[0, 2]).unwrap());
    assert!(decoder.dictionaries.is_empty(), "the dictionary of another column is kept");
}

#[test]
fn replaces_dictionaries() {
    let words = |values: &[&str]| {
        let words: DictionaryArray<Int8Type> = values.iter().copied().map(Some).collect();
        RecordBatch::try_from_iter([("word", Arc::new(words) as ArrayRef)]).unwrap()
    };
    let (schema, messages) = sent(&[words(&["a", "b"]), words(&["c", "a"])], None);
    let mut decoder = decoder(&schema);
    let batches = decode(&mut decoder, &messages).unwrap();
    let texts = |batch: &RecordBatch| {
        let plain = arrow::compute::cast(batch.column(0), &DataType::Utf8).unwrap();
        plain.as_string::<i32>().iter().flatten().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(batches.iter().map(texts).collect::<Vec<_>>(), [["a", "b"], ["c", "a"]]);
    assert_eq!(decoder.dictionaries.values().next().unwrap().len(), 2);
}

#[test]
fn rejects_corrupt_messages_before_arrow_panics() {
    for codec in [None, Some(CompressionType::LZ4_FRAME), Some(CompressionType::ZSTD)] {
        let (schema, messages) = sent(&[table()], codec);
        let mut corruption = Corruption(7);
        let mut rejected = 0;
        for _ in 0..6000 {
            let mut corrupt = messages.clone();
            let victim = corruption.below(corrupt.len());
            let (mut header, mut body) = (corrupt[victim].data_header.to_vec(), corrupt[victim].data_body.to_vec());
            if corruption.below(4) > 0 {
                corruption.apply(&mut header);
            } else {
                corruption.apply(&mut body);
            }
            corrupt[victim] =
                FlightData { data_header: header.into(), data_body: body.into(), ..FlightData::default() };
            if let Err(error) = decode(&mut decoder(&schema), &corrupt) {
                rejected += 1;
                assert!(!is_panic(&error), "{error}");
            }
        }
        assert!(rejected > 1000, "{rejected}");
    }
}

#[test]
fn rejects_corrupt_schemas_before_arrow_panics() {
    let (schema, _) = sent(&[table()], None);
    let mut corruption = Corruption(3);
    let mut rejected = 0;
    for _ in 0..20_000 {
        let mut corrupt = schema.clone();
        corruption.apply(&mut corrupt);
        if let Err(error) = read_schema(&corrupt) {
            rejected += 1;
            assert!(!is_panic(&error), "{error}");
        }
    }
    assert!(rejected > 1000, "{rejected}");
}

#[test]
fn rejects_buffers_over_the_limit_or_their_declared_size() {
    let zeros = RecordBatch::try_from_iter([("x", Arc::new(Int64Array::from(vec![0; 1 << 20])) as ArrayRef)]).unwrap();
    for codec in [CompressionType::LZ4_FRAME, CompressionType::ZSTD] {
        let (schema, messages) = sent(std::slice::from_ref(&zeros), Some(codec));
        let decoder = decoder(&schema);
        assert!(messages[0].data_body.len() < 1 << 16);
        assert!(matches!(decoder.check(&messages[0], 1 << 22), Err(MessageError::TooLarge(_))));
        assert!(matches!(decoder.check(&messages[0], 1 << 24), Ok(MessageKind::Batch { .. })));
        // Smaller and larger declared sizes; the declared size is the first value in the body that is not zero.
        for declared in [1_i64 << 10, 1 << 22, 1 << 50, i64::MIN, -2] {
            let mut body = messages[0].data_body.to_vec();
            let index = body.windows(8).position(|bytes| bytes == (8_i64 << 20).to_le_bytes()).unwrap();
            body[index..index + 8].copy_from_slice(&declared.to_le_bytes());
            let data = FlightData { data_body: body.into(), ..messages[0].clone() };
            let error = decoder.check(&data, 1 << 24).and_then(|_| decoder.batch(&data)).unwrap_err();
            assert!(!is_panic(&error), "{codec:?} {declared}: {error}");
        }
    }
}

#[test]
fn rejects_invalid_text_keys_and_offsets() {
    let keys = Int32Array::from(vec![0, 1, 0]);
    let words = DictionaryArray::<Int32Type>::new(keys, Arc::new(StringArray::from(vec!["abc", "def"])));
    let plain = StringArray::from(vec!["abc", "def", "ghi"]);
    let columns: [(&str, ArrayRef); 2] = [("word", Arc::new(words)), ("text", Arc::new(plain))];
    let (schema, messages) = sent(&[RecordBatch::try_from_iter(columns).unwrap()], None);
    let corrupt = |message: usize, from: &[u8], to: &[u8]| {
        let mut messages = messages.clone();
        let mut body = messages[message].data_body.to_vec();
        let index = body.windows(from.len()).position(|bytes| bytes == from).unwrap();
        body[index..index + to.len()].copy_from_slice(to);
        messages[message].data_body = body.into();
        decode(&mut decoder(&schema), &messages).unwrap_err().to_string()
    };
    let key = corrupt(1, &[0, 0, 0, 0, 1, 0, 0, 0], &[9, 0, 0, 0]);
    assert!(key.contains("out of bounds") || key.contains("should be less"), "{key}");
    let text = corrupt(1, b"abcdef", b"\xff\xfe");
    assert!(text.to_lowercase().contains("utf"), "{text}");
    let offset = corrupt(1, &[3, 0, 0, 0, 6, 0, 0, 0], &[0xff, 0xff, 0xff, 0x7f]);
    assert!(offset.to_lowercase().contains("offset"), "{offset}");
}

#[test]
fn rejects_schemas_of_excessive_width() {
    let list = |item: DataType, size| DataType::FixedSizeList(Arc::new(Field::new("item", item, true)), size);
    let schema = |data_type: DataType| {
        let schema = Schema::new(vec![Field::new("a", data_type, true)]);
        let (generator, mut tracker) = (IpcDataGenerator::default(), DictionaryTracker::new(false));
        let options = IpcWriteOptions::default();
        read_schema(&generator.schema_to_bytes_with_dictionary_tracker(&schema, &mut tracker, &options).ipc_message)
    };
    assert!(schema(list(DataType::Float32, 4096)).is_ok());
    for hostile in [
        list(DataType::Int64, i32::MAX),
        list(list(list(DataType::Int8, 1 << 20), 1 << 20), 1 << 20),
        DataType::FixedSizeBinary(i32::MAX),
    ] {
        let rejected = schema(hostile).unwrap_err().to_string();
        assert!(rejected.contains("\"a\""), "{rejected}");
    }
}
