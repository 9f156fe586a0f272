//! Random column chunks of every type, encoding, codec and page form, written by the Parquet library.

use std::{fmt, sync::Arc};

use arrow::{
    array::{ArrayRef, BinaryArray, BooleanArray, Int64Array, RecordBatch, StringArray, new_empty_array},
    compute::{cast, concat},
    datatypes::{DataType, Field, Schema, TimeUnit},
};
use bytes::Bytes;
use forebay_pages::{Codec, Column, Form, Physical};
use parquet::{
    arrow::{ArrowWriter, arrow_reader::ParquetRecordBatchReaderBuilder},
    basic::{Compression, Encoding, ZstdLevel},
    errors::ParquetError,
    file::properties::{WriterProperties, WriterVersion},
};

/// A reproducible sequence of numbers.
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 8
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())].clone()
    }
}

/// A file of one column in one row group.
pub(crate) struct Chunk {
    file: Bytes,
    rows: usize,
    is_optional: bool,
    physical: Physical,
    data_type: DataType,
    codec: Codec,
    written: String,
}

impl fmt::Debug for Chunk {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        write!(formatter, "{} rows of {}, {}", self.rows, self.data_type, self.written)
    }
}

const CODECS: [(Codec, Compression); 4] = [
    (Codec::Uncompressed, Compression::UNCOMPRESSED),
    (Codec::Snappy, Compression::SNAPPY),
    (Codec::Lz4Raw, Compression::LZ4_RAW),
    (Codec::Gzip, Compression::UNCOMPRESSED),
];

fn types() -> Vec<(Physical, DataType)> {
    vec![
        (Physical::Boolean, DataType::Boolean),
        (Physical::Int32, DataType::Int32),
        (Physical::Int32, DataType::Date32),
        (Physical::Int32, DataType::Int8),
        (Physical::Int32, DataType::UInt16),
        (Physical::Int64, DataType::Int64),
        (Physical::Int64, DataType::UInt64),
        (Physical::Int64, DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))),
        (Physical::Float, DataType::Float32),
        (Physical::Double, DataType::Float64),
        (Physical::ByteArray, DataType::Utf8),
        (Physical::ByteArray, DataType::Binary),
        (Physical::ByteArray, DataType::LargeUtf8),
    ]
}

/// Values of a type with the given number of distinct ones and share of nulls in percent.
fn values(numbers: &mut Numbers, rows: usize, distinct: usize, nulls: usize, data_type: &DataType) -> ArrayRef {
    let codes: Vec<Option<u64>> = (0..rows)
        .map(|_| {
            let code =
                (numbers.below(distinct) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> numbers.pick(&[58, 58, 50, 7]);
            (numbers.below(100) >= nulls).then_some(code)
        })
        .collect();
    match data_type {
        DataType::Boolean => {
            Arc::new(codes.iter().map(|code| code.map(|code| code % 2 == 1)).collect::<BooleanArray>())
        }
        DataType::Utf8 | DataType::LargeUtf8 => {
            let text: StringArray = codes.iter().map(|code| code.map(|code| format!("wört{}", code % 5000))).collect();
            cast(&text, data_type).unwrap()
        }
        DataType::Binary => {
            let bytes: Vec<Option<Vec<u8>>> = codes
                .iter()
                .map(|code| code.map(|code| code.to_le_bytes()[..(code % 9).min(8) as usize].to_vec()))
                .collect();
            Arc::new(bytes.iter().map(Option::as_deref).collect::<BinaryArray>())
        }
        DataType::Int8 => number(&codes, 100, data_type),
        DataType::UInt16 => number(&codes, 60_000, data_type),
        DataType::Int32 | DataType::Date32 => number(&codes, 1 << 31, &DataType::Int32).pipe(data_type),
        _ => number(&codes, i64::MAX as u64, &DataType::Int64).pipe(data_type),
    }
}

fn number(codes: &[Option<u64>], end: u64, data_type: &DataType) -> ArrayRef {
    let numbers: Int64Array = codes.iter().map(|code| code.map(|code| (code % end) as i64)).collect();
    cast(&numbers, data_type).unwrap()
}

trait Pipe {
    fn pipe(self, data_type: &DataType) -> ArrayRef;
}

impl Pipe for ArrayRef {
    fn pipe(self, data_type: &DataType) -> ArrayRef {
        cast(&self, data_type).unwrap()
    }
}

impl Chunk {
    pub(crate) fn random(numbers: &mut Numbers) -> Self {
        let (physical, data_type) = numbers.pick(&types());
        let rows = numbers.pick(&[1, 2, 7, 64, 257, 1000, 3001]);
        let nulls = numbers.pick(&[0, 0, 3, 50, 100]);
        let distinct = numbers.pick(&[1, 2, 17, 900]);
        let is_optional = nulls > 0 || numbers.below(2) == 0;
        let array = values(numbers, rows, distinct, nulls, &data_type);
        let (codec, mut compression) = numbers.pick(&CODECS);
        let codec = if codec == Codec::Gzip { Codec::Zstd } else { codec };
        if codec == Codec::Zstd {
            compression = Compression::ZSTD(ZstdLevel::try_new(1).unwrap());
        }
        let encoding = match physical {
            Physical::Boolean => numbers.pick(&[Encoding::PLAIN, Encoding::RLE]),
            Physical::Int32 | Physical::Int64 => {
                numbers.pick(&[Encoding::PLAIN, Encoding::DELTA_BINARY_PACKED, Encoding::BYTE_STREAM_SPLIT])
            }
            Physical::Float | Physical::Double => numbers.pick(&[Encoding::PLAIN, Encoding::BYTE_STREAM_SPLIT]),
            Physical::ByteArray => {
                numbers.pick(&[Encoding::PLAIN, Encoding::DELTA_LENGTH_BYTE_ARRAY, Encoding::DELTA_BYTE_ARRAY])
            }
        };
        let version = numbers.pick(&[WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0]);
        let has_dictionary = numbers.below(3) > 0;
        let (page_rows, dictionary_bytes) = (numbers.pick(&[1, 33, 500, 20_000]), numbers.pick(&[64, 2000, 1 << 20]));
        let properties = WriterProperties::builder()
            .set_compression(compression)
            .set_encoding(encoding)
            .set_writer_version(version)
            .set_dictionary_enabled(has_dictionary && physical != Physical::Boolean)
            .set_data_page_row_count_limit(page_rows)
            .set_write_batch_size(numbers.pick(&[1, 10, 1024]))
            .set_dictionary_page_size_limit(dictionary_bytes)
            .build();
        let field = Field::new("x", data_type.clone(), is_optional);
        let batch = RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![array]).unwrap();
        let mut file = Vec::new();
        let mut writer = ArrowWriter::try_new(&mut file, batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        let written = format!("{encoding}, {codec:?}, {version:?}, dictionary {has_dictionary} of {dictionary_bytes}");
        Self { file: file.into(), rows, is_optional, physical, data_type, codec, written }
    }

    /// Changes a few bytes of the column.
    pub(crate) fn damaged(mut self, numbers: &mut Numbers) -> Self {
        let (start, length) = self.range();
        let mut file = self.file.to_vec();
        for _ in 0..=numbers.below(3) {
            let at = start + numbers.below(length);
            file[at] = match numbers.below(4) {
                0 => file[at] ^ (1 << numbers.below(8)),
                1 => file[at].wrapping_add(1),
                _ => numbers.next() as u8,
            };
        }
        self.file = file.into();
        self
    }

    fn range(&self) -> (usize, usize) {
        let reader = ParquetRecordBatchReaderBuilder::try_new(self.file.clone()).unwrap();
        let (start, length) = reader.metadata().row_group(0).column(0).byte_range();
        (start as usize, length as usize)
    }

    pub(crate) fn bytes(&self) -> Bytes {
        let (start, length) = self.range();
        self.file.slice(start..start + length)
    }

    pub(crate) fn column(&self, form: Form) -> Column {
        Column {
            physical: self.physical,
            codec: self.codec,
            is_optional: self.is_optional,
            rows: self.rows,
            data_type: self.data_type.clone(),
            form,
        }
    }

    /// The values as the library reads them.
    pub(crate) fn library(&self) -> Result<ArrayRef, ParquetError> {
        let reader = ParquetRecordBatchReaderBuilder::try_new(self.file.clone())?.build()?;
        let mut arrays = vec![new_empty_array(&self.data_type)];
        for chunk in reader {
            arrays.push(Arc::clone(chunk?.column(0)));
        }
        let arrays: Vec<_> = arrays.iter().map(AsRef::as_ref).collect();
        let all = concat(&arrays)?;
        if all.len() == self.rows { Ok(all) } else { Err(ParquetError::General("rows are missing".to_owned())) }
    }
}
