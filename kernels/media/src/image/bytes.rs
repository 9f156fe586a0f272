//! Columns of encoded images: bytes, or structs with a field `bytes`, as Hugging Face's datasets store images.

use arrow::{
    array::{
        Array, ArrayRef, AsArray, BinaryArray, BinaryViewArray, FixedSizeBinaryArray, LargeBinaryArray, StructArray,
    },
    compute::cast,
    datatypes::{DataType, Field},
    error::ArrowError,
};

/// The field of a struct that holds the image.
const BYTES_FIELD: &str = "bytes";

/// Encoded images.
#[derive(Clone, Debug)]
pub enum ImageBytes {
    /// Bytes.
    Binary(BinaryArray),
    /// Bytes with long offsets.
    LargeBinary(LargeBinaryArray),
    /// Bytes as views.
    BinaryView(BinaryViewArray),
    /// Bytes of one length.
    FixedSizeBinary(FixedSizeBinaryArray),
}

// === impl ImageBytes ===

impl ImageBytes {
    /// The type of the bytes in a column of images; none for other columns.
    pub fn data_type(column: &DataType) -> Option<DataType> {
        match column {
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
                Some(column.clone())
            }
            DataType::Dictionary(_, values) => Self::data_type(values),
            DataType::Struct(fields) => {
                let field = fields.iter().find(|field| field.name() == BYTES_FIELD)?;
                Self::data_type(Field::data_type(field)).filter(|_| !matches!(field.data_type(), DataType::Struct(_)))
            }
            _ => None,
        }
    }

    /// The bytes of a column of images, as an array of the type that [`Self::data_type`] returns.
    pub fn array(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
        if let Some(structs) = column.as_any().downcast_ref::<StructArray>() {
            let field = structs.column_by_name(BYTES_FIELD);
            let field = field.ok_or_else(|| ArrowError::SchemaError("the images lack the field bytes".to_owned()))?;
            let bytes = Self::array(field)?;
            let Some(nulls) = structs.nulls() else { return Ok(bytes) };
            // A null struct may have bytes below it.
            let is_null = arrow::array::BooleanArray::new(!nulls.inner(), None);
            return arrow::compute::nullif(&bytes, &is_null);
        }
        match column.data_type() {
            DataType::Dictionary(_, values) => cast(column, values),
            _ => Ok(ArrayRef::clone(column)),
        }
    }

    /// The images of a column.
    pub fn of(column: &ArrayRef) -> Result<Self, ArrowError> {
        let array = Self::array(column)?;
        Ok(match array.data_type() {
            DataType::Binary => Self::Binary(array.as_binary().clone()),
            DataType::LargeBinary => Self::LargeBinary(array.as_binary().clone()),
            DataType::FixedSizeBinary(_) => Self::FixedSizeBinary(array.as_fixed_size_binary().clone()),
            _ => Self::BinaryView(cast(&array, &DataType::BinaryView)?.as_binary_view().clone()),
        })
    }

    fn as_array(&self) -> &dyn Array {
        match self {
            Self::Binary(array) => array,
            Self::LargeBinary(array) => array,
            Self::BinaryView(array) => array,
            Self::FixedSizeBinary(array) => array,
        }
    }

    /// The number of images.
    pub fn len(&self) -> usize {
        self.as_array().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of an image; none if it is null.
    pub fn get(&self, row: usize) -> Option<&[u8]> {
        if self.as_array().is_null(row) {
            return None;
        }
        Some(match self {
            Self::Binary(array) => array.value(row),
            Self::LargeBinary(array) => array.value(row),
            Self::BinaryView(array) => array.value(row),
            Self::FixedSizeBinary(array) => array.value(row),
        })
    }
}
