//! A column chunk as the footer describes it, and which of its pages this crate reads.

use arrow::datatypes::{DataType, TimeUnit};
use bytes::Bytes;

use crate::header::{Encoding, Page, PageKind};

/// The largest uncompressed page that is read.
const PAGE_BYTES_MAX: usize = 256 << 20;

/// The most values of a page that is read: more are left to the library, which decodes them in pieces.
const PAGE_VALUES_MAX: usize = 1 << 24;

/// The same for encodings that are decoded a page at a time.
const WHOLE_PAGE_VALUES_MAX: usize = 1 << 21;

/// The type of stored values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "they are Parquet's names")]
pub enum Physical {
    Boolean,
    Int32,
    Int64,
    Float,
    Double,
    ByteArray,
}

/// How pages are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "they are Parquet's names")]
pub enum Codec {
    Uncompressed,
    Snappy,
    Zstd,
    Lz4Raw,
    Gzip,
    Brotli,
}

/// The form of the arrays that are returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Arrays of values.
    Values,
    /// Dictionary arrays with int32 keys. All pages must refer to the dictionary.
    Keys,
}

/// A column chunk as the footer describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// The stored type.
    pub physical: Physical,
    /// The codec of its pages.
    pub codec: Codec,
    /// Whether rows may be null.
    pub is_optional: bool,
    /// The rows of the row group, or of the pages that are read of it.
    pub rows: usize,
    /// The Arrow type of the values.
    pub data_type: DataType,
    /// The form of the result.
    pub form: Form,
}

impl Column {
    pub(crate) fn is_sized(&self, page: &Page) -> bool {
        let is_stored = self.codec == Codec::Uncompressed;
        page.uncompressed <= PAGE_BYTES_MAX
            && page.values <= PAGE_VALUES_MAX
            && (!is_stored || page.body.len() == page.uncompressed)
    }

    /// Whether a data page is of a form that this crate reads.
    pub(crate) fn is_read(&self, page: &Page, has_dictionary: bool) -> bool {
        let levels_fit = match page.kind {
            PageKind::Dictionary => false,
            PageKind::DataV1 { has_runs } => has_runs || !self.is_optional,
            PageKind::DataV2 { levels, .. } => {
                let has_levels = self.is_optional || levels == 0;
                has_levels && levels <= page.uncompressed.min(page.body.len())
            }
        };
        let is_small = page.values <= WHOLE_PAGE_VALUES_MAX;
        let is_encoding = match (page.encoding, self.physical) {
            (Encoding::Dictionary, physical) => has_dictionary && physical != Physical::Boolean,
            _ if self.form == Form::Keys => false,
            (Encoding::Plain, _) => true,
            (Encoding::Rle, physical) => physical == Physical::Boolean,
            (Encoding::DeltaBinaryPacked, Physical::Int32 | Physical::Int64)
            | (Encoding::DeltaLengthByteArray | Encoding::DeltaByteArray, Physical::ByteArray) => is_small,
            (Encoding::ByteStreamSplit, physical) => {
                is_small && !matches!(physical, Physical::Boolean | Physical::ByteArray)
            }
            _ => false,
        };
        levels_fit && is_encoding && self.is_sized(page) && self.is_typed()
    }

    /// Whether data pages of an encoding are read, if their sizes are within the limits.
    pub fn reads(&self, encoding: Encoding, has_dictionary: bool) -> bool {
        let kind = PageKind::DataV1 { has_runs: true };
        let page = Page { kind, encoding, values: 0, body: Bytes::new(), uncompressed: 0, checksum: None };
        self.is_read(&page, has_dictionary)
    }

    /// Whether there is a reader for the form.
    pub fn has_reader(&self, has_dictionary: bool) -> bool {
        match (self.form, self.physical) {
            (Form::Keys, physical) => has_dictionary && physical != Physical::Boolean,
            (Form::Values, _) => true,
        }
    }

    /// Whether values of the stored type are values of the Arrow type.
    pub fn is_typed(&self) -> bool {
        use DataType as T;
        match self.physical {
            Physical::Boolean => self.data_type == T::Boolean,
            Physical::Int32 => matches!(
                self.data_type,
                T::Int8
                    | T::Int16
                    | T::Int32
                    | T::UInt8
                    | T::UInt16
                    | T::UInt32
                    | T::Date32
                    | T::Time32(TimeUnit::Second | TimeUnit::Millisecond)
            ),
            Physical::Int64 => matches!(
                self.data_type,
                T::Int64
                    | T::UInt64
                    | T::Date64
                    | T::Time64(TimeUnit::Microsecond | TimeUnit::Nanosecond)
                    | T::Timestamp(..)
                    | T::Duration(_)
            ),
            Physical::Float => self.data_type == T::Float32,
            Physical::Double => self.data_type == T::Float64,
            Physical::ByteArray => {
                matches!(self.data_type, T::Utf8 | T::LargeUtf8 | T::Binary | T::LargeBinary)
            }
        }
    }
}
