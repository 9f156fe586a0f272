//! Which decoder reads a column chunk: `forebay_pages`, or the Parquet library and why. Decided from the footer; chunks
//! whose page headers contradict it are left to the library too.

use std::fmt;

use arrow::datatypes::DataType;
use forebay_catalog::{RowGroup, Snapshot};
use forebay_pages::{Codec, Column, Form, Physical};
use parquet::{
    basic::{Compression, Encoding, Type},
    file::metadata::{ColumnChunkMetaData, ParquetMetaData},
    schema::types::ColumnDescriptor,
};

use super::projection::Projection;

/// Why the Parquet library decodes a column chunk.
#[derive(Clone, Debug, PartialEq)]
pub enum LibraryReason {
    /// Its column is a list, a map or a struct, or has several levels of nulls.
    Nested,
    /// It stores timestamps of 96 bits.
    Int96,
    /// It stores values of a fixed number of bytes, such as decimals.
    FixedLength,
    /// The codec of its pages.
    Codec(Compression),
    /// The Arrow type of its values, which are stored differently.
    Type(DataType),
    /// It is read as keys and has no dictionary.
    Keys,
    /// The encoding of some of its pages.
    Encoding(Encoding),
}

impl fmt::Display for LibraryReason {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Nested => write!(formatter, "nested"),
            Self::Int96 => write!(formatter, "INT96"),
            Self::FixedLength => write!(formatter, "fixed length"),
            Self::Codec(codec) => write!(formatter, "codec {codec}"),
            Self::Type(data_type) => write!(formatter, "type {data_type}"),
            Self::Keys => write!(formatter, "keys without a dictionary"),
            Self::Encoding(encoding) => write!(formatter, "encoding {encoding}"),
        }
    }
}

impl Projection {
    /// Why the Parquet library decodes columns of a row group, by their index in the projection; the page reader
    /// decodes the others.
    pub fn library_columns(&self, snapshot: &Snapshot, row_group: &RowGroup) -> Vec<(usize, LibraryReason)> {
        let Ok(view) = self.view(snapshot, row_group) else { return Vec::new() };
        let metadata = &view.metadata;
        let mut found: Vec<(usize, LibraryReason)> = Vec::new();
        self.each_chunk(snapshot, row_group, |column, leaf, _| {
            let root = metadata.metadata().file_metadata().schema_descr().get_column_root_idx(leaf);
            let data_type = metadata.schema().field(root).data_type();
            let place = (row_group.index_in_file, leaf);
            // The first reason of a column with several leaves.
            if found.last().is_none_or(|(last, _)| *last != column)
                && let Err(reason) = described(metadata.metadata(), place, data_type, view.keys(root))
            {
                found.push((column, reason));
            }
        });
        found
    }
}

/// The description of a column chunk (row group, leaf) for the page reader, or why the Parquet library reads it.
pub(super) fn described(
    metadata: &ParquetMetaData,
    (row_group, leaf): (usize, usize),
    data_type: &DataType,
    is_keyed: bool,
) -> Result<Column, LibraryReason> {
    let (group, leaves) = (metadata.row_group(row_group), metadata.file_metadata().schema_descr());
    let (chunk, stored) = (group.column(leaf), leaves.column(leaf));
    if stored.max_rep_level() > 0 || stored.max_def_level() > 1 || !leaves.get_column_root(leaf).is_primitive() {
        return Err(LibraryReason::Nested);
    }
    let (data_type, form) = match data_type {
        DataType::Dictionary(keys, values) if **keys == DataType::Int32 && (is_text(values) || is_keyed) => {
            (values.as_ref(), Form::Keys)
        }
        data_type if is_keyed => (data_type, Form::Keys),
        data_type => (data_type, Form::Values),
    };
    let (physical, codec) = (physical(&stored)?, codec(chunk)?);
    let rows = usize::try_from(group.num_rows()).unwrap_or(0);
    let is_optional = stored.max_def_level() == 1;
    let column = Column { physical, codec, is_optional, rows, data_type: data_type.clone(), form };
    let has_dictionary = has_dictionary(chunk);
    if !column.is_typed() {
        return Err(LibraryReason::Type(column.data_type));
    }
    if !column.has_reader(has_dictionary) {
        return Err(LibraryReason::Keys);
    }
    match page_encodings(chunk, physical).into_iter().find(|encoding| !reads(&column, *encoding, has_dictionary)) {
        Some(encoding) => Err(LibraryReason::Encoding(encoding)),
        None => Ok(column),
    }
}

fn physical(stored: &ColumnDescriptor) -> Result<Physical, LibraryReason> {
    Ok(match stored.physical_type() {
        Type::BOOLEAN => Physical::Boolean,
        Type::INT32 => Physical::Int32,
        Type::INT64 => Physical::Int64,
        Type::FLOAT => Physical::Float,
        Type::DOUBLE => Physical::Double,
        Type::BYTE_ARRAY => Physical::ByteArray,
        Type::INT96 => return Err(LibraryReason::Int96),
        Type::FIXED_LEN_BYTE_ARRAY => return Err(LibraryReason::FixedLength),
    })
}

fn codec(chunk: &ColumnChunkMetaData) -> Result<Codec, LibraryReason> {
    Ok(match chunk.compression() {
        Compression::UNCOMPRESSED => Codec::Uncompressed,
        Compression::SNAPPY => Codec::Snappy,
        Compression::ZSTD(_) => Codec::Zstd,
        Compression::LZ4_RAW => Codec::Lz4Raw,
        Compression::GZIP(_) => Codec::Gzip,
        Compression::BROTLI(_) => Codec::Brotli,
        codec => return Err(LibraryReason::Codec(codec)),
    })
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary)
}

fn is_dictionary(encoding: Encoding) -> bool {
    matches!(encoding, Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY)
}

fn has_dictionary(chunk: &ColumnChunkMetaData) -> bool {
    chunk.dictionary_page_offset().is_some() || chunk.encodings().any(is_dictionary)
}

/// The encodings that data pages certainly have. Without the writer's statistics, those of levels and of the dictionary
/// are among the declared ones.
fn page_encodings(chunk: &ColumnChunkMetaData, physical: Physical) -> Vec<Encoding> {
    if let Some(pages) = chunk.page_encoding_stats_mask() {
        return pages.encodings().collect();
    }
    let is_of_others = |encoding: &Encoding| match encoding {
        Encoding::PLAIN => has_dictionary(chunk),
        Encoding::RLE => physical != Physical::Boolean,
        encoding => *encoding as i32 == BIT_PACKED,
    };
    chunk.encodings().filter(|encoding| !is_of_others(encoding)).collect()
}

/// An encoding of levels that is no longer written.
const BIT_PACKED: i32 = 4;

/// Whether the page reader reads data pages of an encoding.
fn reads(column: &Column, encoding: Encoding, has_dictionary: bool) -> bool {
    forebay_pages::Encoding::numbered(encoding as i64).is_some_and(|encoding| column.reads(encoding, has_dictionary))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parquet::{
        file::metadata::{FileMetaData, RowGroupMetaData},
        schema::{parser::parse_message_type, types::SchemaDescriptor},
    };

    use super::*;

    /// The decision for a column of a schema whose footer declares these encodings, without statistics of pages.
    fn decided(
        column: &str,
        data_type: &DataType,
        encodings: &[Encoding],
        codec: Compression,
    ) -> Result<Form, LibraryReason> {
        let message = parse_message_type(&format!("message m {{ {column} }}")).unwrap();
        let schema = Arc::new(SchemaDescriptor::new(Arc::new(message)));
        let chunk = ColumnChunkMetaData::builder(schema.column(0)).set_encodings(encodings.to_vec());
        let chunk = chunk.set_compression(codec).set_num_values(9).build().unwrap();
        let group = RowGroupMetaData::builder(Arc::clone(&schema)).set_num_rows(9);
        let group = group.set_column_metadata(vec![chunk]).build().unwrap();
        let metadata = ParquetMetaData::new(FileMetaData::new(1, 9, None, None, schema, None), vec![group]);
        described(&metadata, (0, 0), data_type, false).map(|column| column.form)
    }

    #[test]
    fn footers_decide_the_decoder() {
        use DataType as T;
        use Encoding as E;
        let keys = T::Dictionary(Box::new(T::Int32), Box::new(T::Utf8));
        let list = T::new_list(T::Int32, true);
        let none = Compression::UNCOMPRESSED;
        let (plain, split): (&[E], &[E]) = (&[E::PLAIN, E::RLE], &[E::BYTE_STREAM_SPLIT, E::RLE]);
        let (keyed, deltas): (&[E], &[E]) = (&[E::PLAIN, E::RLE_DICTIONARY, E::RLE], &[E::DELTA_BYTE_ARRAY]);
        let cases = [
            ("optional int32 x;", &T::Int32, plain, none, Ok(Form::Values)),
            ("optional float x;", &T::Float32, split, none, Ok(Form::Values)),
            ("required boolean x;", &T::Boolean, &[E::RLE], none, Ok(Form::Values)),
            ("optional binary x (STRING);", &keys, keyed, none, Ok(Form::Keys)),
            ("required int96 x;", &T::Int64, plain, none, Err(LibraryReason::Int96)),
            ("required fixed_len_byte_array(9) x;", &T::Binary, plain, none, Err(LibraryReason::FixedLength)),
            ("optional int32 x;", &T::Decimal32(9, 2), plain, none, Err(LibraryReason::Type(T::Decimal32(9, 2)))),
            ("required double x;", &T::Float64, plain, Compression::LZ4, Err(LibraryReason::Codec(Compression::LZ4))),
            ("required boolean x;", &T::Boolean, split, none, Err(LibraryReason::Encoding(E::BYTE_STREAM_SPLIT))),
            ("optional int64 x;", &T::Int64, deltas, none, Err(LibraryReason::Encoding(E::DELTA_BYTE_ARRAY))),
            ("repeated int32 x;", &list, plain, none, Err(LibraryReason::Nested)),
            ("optional group a { optional int32 x; }", &T::Int32, plain, none, Err(LibraryReason::Nested)),
        ];
        for (column, data_type, encodings, codec, expected) in cases {
            assert_eq!(decided(column, data_type, encodings, codec), expected, "{column}, {data_type}, {encodings:?}");
        }
        assert_eq!(LibraryReason::Encoding(E::DELTA_BYTE_ARRAY).to_string(), "encoding DELTA_BYTE_ARRAY");
        assert_eq!(LibraryReason::Codec(Compression::LZ4).to_string(), "codec LZ4");
    }
}
