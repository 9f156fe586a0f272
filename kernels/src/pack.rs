//! Packing: documents, each a list of tokens, concatenated and cut into sequences of a fixed length.
//!
//! No token is lost or repeated: a document that does not fit the rest of a sequence continues in the next one. Only the
//! last sequence of a row group is padded.

use std::{iter, mem, sync::Arc};

use arrow::{
    array::{
        Array, ArrayRef, ArrowPrimitiveType, AsArray, FixedSizeListArray, PrimitiveArray, RecordBatch, UInt64Array,
    },
    datatypes::{ArrowNativeType, DataType, Field, Int32Type, Int64Type, Schema, SchemaRef, UInt64Type},
    error::ArrowError,
};

use crate::error::KernelError;

/// The column of the sequences that numbers the documents of each, from 0; −1 marks padding.
pub const DOCUMENT_IDS: &str = "document_ids";

/// The column of the sequences with each token's place in the part of its document that the sequence holds, from 0.
pub const POSITION_IDS: &str = "position_ids";

/// How documents are packed.
#[derive(Clone, Debug)]
pub struct Packing {
    /// The output's name.
    pub name: String,
    /// Tokens of a sequence.
    pub length: usize,
    /// The token after each document, if there is one.
    pub separator: Option<i64>,
    /// The token that fills the last sequence.
    pub padding: i64,
    /// The name of a column with the number of the document that begins each sequence, if there is one.
    pub row_ids: Option<String>,
}

/// Packs the documents of a row group, in file order.
#[derive(Debug)]
pub struct Packer {
    packing: Arc<Packing>,
    schema: SchemaRef,
    tokens: Tokens,
    documents: Vec<i32>,
    positions: Vec<i32>,
    /// The document that begins each sequence.
    first_rows: Vec<u64>,
    /// The number of the next document in the unfinished sequence.
    document: i32,
}

/// Tokens that are not returned yet.
#[derive(Debug)]
enum Tokens {
    Int32(Vec<i32>),
    Int64(Vec<i64>),
}

// === impl Packing ===

impl Packing {
    /// The columns of the sequences, for lists of this type; none if packing does not apply to it.
    pub fn schema(&self, lists: &DataType) -> Option<Schema> {
        let DataType::List(item) = lists else { return None };
        if !matches!(item.data_type(), DataType::Int32 | DataType::Int64) {
            return None;
        }
        let length = i32::try_from(self.length).ok()?;
        let column = |name: &str, token: DataType| {
            let item = Arc::new(Field::new("item", token, false));
            Field::new(name, DataType::FixedSizeList(item, length), false)
        };
        let mut fields = vec![
            column(&self.name, item.data_type().clone()),
            column(DOCUMENT_IDS, DataType::Int32),
            column(POSITION_IDS, DataType::Int32),
        ];
        fields.extend(self.row_ids.as_ref().map(|name| Field::new(name, DataType::UInt64, false)));
        Some(Schema::new(fields))
    }

    /// The tokens of documents, separators included.
    pub fn token_count(&self, documents: &ArrayRef) -> u64 {
        let separators = if self.separator.is_some() { documents.len() } else { 0 };
        let tokens = documents.as_list_opt::<i32>().map_or(0, |lists| {
            let offsets = lists.value_offsets();
            offsets.last().zip(offsets.first()).map_or(0, |(end, start)| end - start)
        });
        tokens.as_usize() as u64 + separators as u64
    }

    /// The sequences of a row group with this number of tokens.
    pub fn sequence_count(&self, tokens: u64) -> u64 {
        tokens.div_ceil(self.length.max(1) as u64)
    }
}

// === impl Packer ===

impl Packer {
    /// An empty packer whose sequences have the columns of [`Packing::schema`].
    pub fn new(packing: Arc<Packing>, schema: SchemaRef) -> Self {
        let is_long = matches!(schema.fields().first().map(|field| field.data_type()),
            Some(DataType::FixedSizeList(item, _)) if item.data_type() == &DataType::Int64);
        let tokens = if is_long { Tokens::Int64(Vec::new()) } else { Tokens::Int32(Vec::new()) };
        let (documents, positions, first_rows) = (Vec::new(), Vec::new(), Vec::new());
        Self { packing, schema, tokens, documents, positions, first_rows, document: 0 }
    }

    /// Adds documents, which `row_ids` number, and returns the sequences that are full.
    pub fn push(&mut self, documents: &ArrayRef, row_ids: Option<&UInt64Array>) -> Result<RecordBatch, KernelError> {
        let lists = documents.as_list_opt::<i32>().ok_or_else(|| self.type_error(documents.data_type()))?;
        let (length, separator) = (self.packing.length, self.packing.separator);
        let offsets = lists.value_offsets();
        let ends = |row: usize| offsets[row].as_usize()..offsets[row + 1].as_usize();
        let with_separator = usize::from(separator.is_some());
        match (&mut self.tokens, lists.values().data_type()) {
            (Tokens::Int32(tokens), DataType::Int32) => {
                let values = lists.values().as_primitive::<Int32Type>().values();
                (0..lists.len()).for_each(|row| {
                    tokens.extend_from_slice(&values[ends(row)]);
                    // The plan is checked to have a separator of the output's dtype.
                    tokens.extend(separator.map(|token| token as i32));
                });
            }
            (Tokens::Int64(tokens), DataType::Int64) => {
                let values = lists.values().as_primitive::<Int64Type>().values();
                (0..lists.len()).for_each(|row| {
                    tokens.extend_from_slice(&values[ends(row)]);
                    tokens.extend(separator);
                });
            }
            (_, found) => return Err(self.type_error(found)),
        }
        for row in 0..lists.len() {
            let row_id = row_ids.map_or(0, |ids| ids.value(row));
            self.place(ends(row).len() + with_separator, length, row_id);
        }
        self.take(self.documents.len() / length * length)
    }

    /// The last sequence, padded; none if the sequences before have every token.
    pub fn finish(&mut self) -> Result<Option<RecordBatch>, KernelError> {
        let unused = match self.documents.len() {
            0 => return Ok(None),
            tokens => self.packing.length - tokens,
        };
        let padding = self.packing.padding;
        match &mut self.tokens {
            Tokens::Int32(tokens) => tokens.extend(iter::repeat_n(padding as i32, unused)),
            Tokens::Int64(tokens) => tokens.extend(iter::repeat_n(padding, unused)),
        }
        self.documents.extend(iter::repeat_n(-1, unused));
        self.positions.extend(iter::repeat_n(0, unused));
        self.document = 0;
        self.take(self.packing.length).map(Some)
    }

    /// Bytes that the packer holds.
    pub fn bytes(&self) -> usize {
        let tokens = match &self.tokens {
            Tokens::Int32(tokens) => tokens.capacity() * size_of::<i32>(),
            Tokens::Int64(tokens) => tokens.capacity() * size_of::<i64>(),
        };
        tokens
            + (self.documents.capacity() + self.positions.capacity()) * size_of::<i32>()
            + self.first_rows.capacity() * size_of::<u64>()
    }

    /// Numbers the tokens of a document.
    fn place(&mut self, mut tokens: usize, length: usize, row_id: u64) {
        while tokens > 0 {
            let used = self.documents.len() % length;
            if used == 0 {
                self.document = 0;
                self.first_rows.push(row_id);
            }
            let part = tokens.min(length - used);
            self.documents.extend(iter::repeat_n(self.document, part));
            // A sequence has at most i32::MAX tokens: its length is that of a fixed-size list.
            self.positions.extend((0..part).map(|position| position as i32));
            tokens -= part;
            if tokens == 0 {
                self.document += 1;
            }
        }
    }

    /// The first tokens, as whole sequences.
    fn take(&mut self, tokens: usize) -> Result<RecordBatch, KernelError> {
        let length = self.packing.length;
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.schema.fields().len());
        let (documents, positions) = (head(&mut self.documents, tokens), head(&mut self.positions, tokens));
        columns.push(match &mut self.tokens {
            Tokens::Int32(values) => sequences::<Int32Type>(head(values, tokens), length),
            Tokens::Int64(values) => sequences::<Int64Type>(head(values, tokens), length),
        }?);
        columns.push(sequences::<Int32Type>(documents, length)?);
        columns.push(sequences::<Int32Type>(positions, length)?);
        let first_rows = head(&mut self.first_rows, tokens / length);
        if self.packing.row_ids.is_some() {
            columns.push(Arc::new(PrimitiveArray::<UInt64Type>::from(first_rows)));
        }
        RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(|source| self.arrow_error(source))
    }

    fn type_error(&self, found: &DataType) -> KernelError {
        let expected = self.schema.fields().first().map_or(DataType::Null, |field| field.data_type().clone());
        KernelError::ColumnType { column: self.packing.name.clone(), expected, found: found.clone() }
    }

    fn arrow_error(&self, source: ArrowError) -> KernelError {
        KernelError::Arrow { what: "pack output", name: self.packing.name.clone(), source }
    }
}

/// Removes the first values; the rest keeps no more memory than it needs.
fn head<T: Copy>(values: &mut Vec<T>, count: usize) -> Vec<T> {
    let rest = values.split_off(count);
    mem::replace(values, rest)
}

fn sequences<T: ArrowPrimitiveType>(values: Vec<T::Native>, length: usize) -> Result<ArrayRef, KernelError>
where
    PrimitiveArray<T>: From<Vec<T::Native>>,
{
    let item = Arc::new(Field::new("item", T::DATA_TYPE, false));
    let (width, values) = (i32::try_from(length).unwrap_or(i32::MAX), Arc::new(PrimitiveArray::<T>::from(values)));
    let lists = FixedSizeListArray::try_new(item, width, values, None);
    let error = |source| KernelError::Arrow { what: "pack output", name: String::new(), source };
    Ok(Arc::new(lists.map_err(error)?))
}

#[cfg(test)]
mod tests {
    use arrow::array::ListArray;
    use proptest::prelude::*;

    use super::*;

    fn lists(documents: &[Vec<i32>]) -> ArrayRef {
        let item = Arc::new(Field::new("item", DataType::Int32, false));
        let offsets = arrow::buffer::OffsetBuffer::from_lengths(documents.iter().map(Vec::len));
        let values = PrimitiveArray::<Int32Type>::from(documents.concat());
        Arc::new(ListArray::new(item, offsets, Arc::new(values), None))
    }

    fn packer(length: usize, separator: Option<i64>, documents: &ArrayRef) -> Packer {
        let row_ids = Some("__row_id".to_owned());
        let packing = Arc::new(Packing { name: "tokens".to_owned(), length, separator, padding: 99, row_ids });
        let schema = Arc::new(packing.schema(documents.data_type()).unwrap());
        Packer::new(packing, schema)
    }

    fn column(batch: &RecordBatch, name: &str) -> Vec<i32> {
        batch[name].as_fixed_size_list().values().as_primitive::<Int32Type>().values().to_vec()
    }

    /// The columns of all sequences, from documents pushed in parts of `part` documents.
    fn packed(
        documents: &[Vec<i32>],
        length: usize,
        separator: Option<i64>,
        part: usize,
    ) -> (Vec<i32>, Vec<i32>, Vec<i32>, Vec<u64>) {
        let mut packer = packer(length, separator, &lists(documents));
        let mut batches = Vec::new();
        let mut first = 0;
        for part in documents.chunks(part) {
            let ids = UInt64Array::from_iter_values(first..first + part.len() as u64);
            first += part.len() as u64;
            batches.push(packer.push(&lists(part), Some(&ids)).unwrap());
        }
        batches.extend(packer.finish().unwrap());
        let all = |name: &str| batches.iter().flat_map(|batch| column(batch, name)).collect();
        let ids = batches.iter().flat_map(|batch| batch["__row_id"].as_primitive::<UInt64Type>().values().to_vec());
        (all("tokens"), all(DOCUMENT_IDS), all(POSITION_IDS), ids.collect())
    }

    #[test]
    fn documents_continue_in_the_next_sequence() {
        let documents = [vec![1, 2, 3], vec![], vec![4], vec![5, 6, 7, 8, 9, 10]];
        let (tokens, ids, positions, first) = packed(&documents, 4, Some(0), 2);
        assert_eq!(tokens, [1, 2, 3, 0, 0, 4, 0, 5, 6, 7, 8, 9, 10, 0, 99, 99]);
        assert_eq!(ids, [0, 0, 0, 0, 0, 1, 1, 2, 0, 0, 0, 0, 0, 0, -1, -1]);
        assert_eq!(positions, [0, 1, 2, 3, 0, 0, 1, 0, 0, 1, 2, 3, 0, 1, 0, 0]);
        assert_eq!(first, [0, 1, 3, 3]);
        let (tokens, ids, ..) = packed(&documents, 4, None, 4);
        assert_eq!(tokens, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 99, 99]);
        assert_eq!(ids, [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, -1, -1]);
    }

    #[test]
    fn empty_documents_make_no_sequence() {
        let documents = [vec![], vec![]];
        assert_eq!(packed(&documents, 4, None, 1).0, Vec::<i32>::new());
        assert_eq!(packed(&documents, 4, Some(7), 1).0, [7, 7, 99, 99]);
    }

    #[test]
    fn only_lists_of_integers_are_packed() {
        let packing = Packing { name: "t".to_owned(), length: 8, separator: None, padding: 0, row_ids: None };
        let list = |item| DataType::List(Arc::new(Field::new("item", item, false)));
        assert!(packing.schema(&list(DataType::Int64)).is_some());
        assert!(packing.schema(&list(DataType::Float32)).is_none());
        assert!(packing.schema(&DataType::Int32).is_none());
    }

    proptest! {
        /// Any way to cut the documents into chunks gives the same sequences, with every token once.
        #[test]
        fn chunks_do_not_matter(
            documents in prop::collection::vec(prop::collection::vec(0..50_i32, 0..20), 0..40),
            length in 1..17_usize,
            part in 1..9_usize,
            separator in prop::option::of(60..70_i64),
        ) {
            let whole = packed(&documents, length, separator, documents.len().max(1));
            prop_assert_eq!(&packed(&documents, length, separator, part), &whole);
            let end = separator.map(|token| token as i32);
            let expected: Vec<i32> =
                documents.iter().flat_map(|document| document.iter().copied().chain(end)).collect();
            prop_assert_eq!(&whole.0[..expected.len()], &expected[..]);
            prop_assert!(whole.0.len() - expected.len() < length);
            let all = lists(&documents);
            let packer = packer(length, separator, &all);
            let tokens = packer.packing.token_count(&all);
            prop_assert_eq!(packer.packing.sequence_count(tokens), (whole.0.len() / length) as u64);
        }
    }
}
