//! Rows of a record batch → the bytes that a run copies to the device: its columns as stored, their validity, the
//! offsets of the outputs, and the places of the rows.
//!
//! Columns of types that the device does not read (text, decimals) are converted to numbers by the CPU first. A
//! dictionary is mapped once for its chunk; one that is no longer than the rows is copied as keys and a table.

use std::{ops::Range, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, AsArray},
    buffer::{Buffer, NullBuffer},
    compute::take,
    datatypes::DataType,
    error::ArrowError,
};

use super::{
    fault::NO_FAULT_BYTE,
    generate::Generated,
    layout::{DeviceColumn, Form, Launch, NOTHING},
    shape::reader,
};
use crate::{
    compile::{chain::CompiledChain, program::Program},
    error::KernelError,
    execute::{mapped::is_worth_mapping, source},
    vector::mapped::is_same,
};

/// For each feed, the dictionary seen last: one of a chunk serves all of the chunk's batches.
#[derive(Debug, Default)]
pub(crate) struct MappedTables(Vec<Option<MappedTable>>);

/// A dictionary, and its values as numbers once enough rows used it.
#[derive(Debug)]
struct MappedTable {
    dictionary: ArrayRef,
    rows: usize,
    numbers: Option<ArrayRef>,
}

/// The destination of a run's rows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target<'a> {
    /// Consecutive rows, starting at this one.
    From(usize),
    /// One row of the output for each row of the run.
    Places(&'a [u32]),
}

/// One run, ready to be copied to the device.
#[derive(Debug)]
pub(crate) struct Load {
    pub(crate) launch: Launch,
    pieces: Vec<(usize, Piece)>,
    len: usize,
}

#[derive(Debug)]
enum Piece {
    Borrowed(Buffer),
    Owned(Vec<u8>),
}

/// A load under construction.
#[derive(Debug, Default)]
struct LoadBuilder {
    pieces: Vec<(usize, Piece)>,
    len: usize,
}

impl Load {
    /// Prepares rows of a batch with the columns `inputs`. `offsets` has the start of each device output.
    pub(crate) fn new(
        program: &Program,
        generated: &Generated,
        inputs: &[ArrayRef],
        rows: Range<usize>,
        target: Target<'_>,
        offsets: &[usize],
        mapped: &mut MappedTables,
    ) -> Result<Self, KernelError> {
        mapped.0.resize_with(generated.feeds.len(), || None);
        let mut builder = LoadBuilder::default();
        let header = generated.feeds.len() * DeviceColumn::BYTES;
        builder.len = header;
        let outputs: Vec<u8> = offsets.iter().flat_map(|offset| (*offset as u64).to_le_bytes()).collect();
        let outputs = builder.push(Piece::Owned(outputs));
        let (first_row, places) = match target {
            Target::From(row) => (row, NOTHING),
            Target::Places(places) => {
                let bytes = places.iter().flat_map(|place| place.to_le_bytes()).collect();
                (0, builder.push(Piece::Owned(bytes)))
            }
        };
        let mut columns = Vec::with_capacity(header);
        for (feed, mapped) in generated.feeds.iter().zip(&mut mapped.0) {
            let column = &program.input_columns()[feed.input];
            let expected = &program.input_types[feed.input];
            let added =
                builder.column(&feed.front, expected, &inputs[feed.input], &rows, mapped).map_err(|source| {
                    KernelError::Arrow { what: "copy to the device column", name: column.clone(), source }
                })?;
            let found = || KernelError::ColumnType {
                column: column.clone(),
                expected: program.input_types[feed.input].clone(),
                found: inputs[feed.input].data_type().clone(),
            };
            added.ok_or_else(found)?.write(&mut columns);
        }
        builder.pieces.push((0, Piece::Owned(columns)));
        let faults = builder.push(Piece::Owned(vec![NO_FAULT_BYTE; generated.chain_count * size_of::<u64>()]));
        let launch = Launch {
            rows: rows.len() as u64,
            first_row: first_row as u64,
            groups: generated.groups,
            chains: generated.chains,
            outputs,
            places,
            faults,
            group_count: generated.group_count,
            unused: 0,
        };
        Ok(Self { launch, pieces: builder.pieces, len: builder.len })
    }

    /// The range of the run's fault words, which are at its end.
    pub(crate) fn faults(&self) -> Range<usize> {
        self.launch.faults as usize..self.len
    }

    /// The size of the run in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Copies the run to `to`, which has the same length.
    pub(crate) fn write(&self, to: &mut [u8]) {
        for (place, piece) in &self.pieces {
            let bytes = piece.bytes();
            to[*place..place + bytes.len()].copy_from_slice(bytes);
        }
    }
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Borrowed(buffer) => buffer.as_slice(),
            Self::Owned(bytes) => bytes,
        }
    }
}

impl MappedTable {
    /// The values of a dictionary as numbers; none before enough rows used it for that to pay off, by the rule of the
    /// CPU's workspace.
    fn of<'a>(
        last: &'a mut Option<Self>,
        dictionary: &ArrayRef,
        rows: usize,
        front: &CompiledChain,
    ) -> Result<Option<&'a ArrayRef>, ArrowError> {
        let known = last.take().filter(|last| is_same(&last.dictionary, dictionary));
        let known = known.unwrap_or_else(|| Self { dictionary: Arc::clone(dictionary), rows: 0, numbers: None });
        let table = last.insert(known);
        table.rows += rows;
        if table.numbers.is_none() && !dictionary.is_empty() && is_worth_mapping(dictionary, table.rows) {
            table.numbers = numbers(front, dictionary)?;
        }
        Ok(table.numbers.as_ref())
    }
}

impl LoadBuilder {
    /// Adds bytes at a multiple of 16 and returns their offset.
    fn push(&mut self, piece: Piece) -> u64 {
        let place = self.len.next_multiple_of(16);
        self.len = place + piece.bytes().len();
        self.pieces.push((place, piece));
        place as u64
    }

    fn column(
        &mut self,
        front: &CompiledChain,
        expected: &DataType,
        array: &ArrayRef,
        rows: &Range<usize>,
        mapped: &mut Option<MappedTable>,
    ) -> Result<Option<DeviceColumn>, ArrowError> {
        if let Some(dictionary) = array.as_any_dictionary_opt() {
            if let Some(table) = MappedTable::of(mapped, dictionary.values(), rows.len(), front)? {
                let keys = dictionary.keys().slice(rows.start, rows.len());
                if table.len() > rows.len() {
                    let numbers = take(table, &keys, None)?;
                    return Ok(Some(self.plain(numbers.as_ref(), &(0..rows.len()), Form::Numbers)));
                }
                let keys = dictionary.normalized_keys();
                let keys: Vec<u8> = keys[rows.clone()].iter().flat_map(|key| (*key as u32).to_le_bytes()).collect();
                let all = 0..table.len();
                let (valid, first_valid_bit) = self.valid(dictionary.keys().nulls(), rows);
                // The table starts its own buffer, so its validity starts at bit 0.
                return Ok(Some(DeviceColumn {
                    valid,
                    first_valid_bit,
                    keys: self.push(Piece::Owned(keys)),
                    table_valid: self.valid(table.nulls(), &all).0,
                    table_rows: table.len() as u32,
                    ..self.plain(table.as_ref(), &all, Form::Keys)
                }));
            }
        } else if array.data_type() == expected && reader(&front.head, expected).is_some() {
            return Ok(Some(self.plain(array.as_ref(), rows, Form::Stored)));
        }
        let these = array.slice(rows.start, rows.len());
        let numbers = numbers(front, &these)?;
        Ok(numbers.map(|numbers| self.plain(numbers.as_ref(), &(0..rows.len()), Form::Numbers)))
    }

    /// The rows of an array of numbers, with their bytes as stored.
    fn plain(&mut self, array: &dyn Array, rows: &Range<usize>, form: Form) -> DeviceColumn {
        let data = array.to_data();
        let start = data.offset() + rows.start;
        let (bytes, first_value_bit) = match array.data_type().primitive_width() {
            Some(width) => (data.buffers()[0].slice_with_length(start * width, rows.len() * width), 0),
            None => (bits(&data.buffers()[0], start, rows.len()), (start % 8) as u32),
        };
        let (valid, first_valid_bit) = self.valid(array.nulls(), rows);
        let values = self.push(Piece::Borrowed(bytes));
        let nothing = (NOTHING, NOTHING);
        DeviceColumn {
            values,
            valid,
            keys: nothing.0,
            table_valid: nothing.1,
            form,
            first_value_bit,
            first_valid_bit,
            table_rows: 0,
        }
    }

    /// The offset of the rows' validity, and the bit of the first row; [`NOTHING`] if every row of the array is valid.
    fn valid(&mut self, nulls: Option<&NullBuffer>, rows: &Range<usize>) -> (u64, u32) {
        let Some(nulls) = nulls.filter(|nulls| nulls.null_count() > 0) else { return (NOTHING, 0) };
        let start = nulls.offset() + rows.start;
        let place = self.push(Piece::Borrowed(bits(nulls.inner().inner(), start, rows.len())));
        (place, (start % 8) as u32)
    }
}

/// The bytes that hold `len` bits from bit `start`.
fn bits(buffer: &Buffer, start: usize, len: usize) -> Buffer {
    buffer.slice_with_length(start / 8, (start % 8 + len).div_ceil(8))
}

/// Converts a whole array to the numbers that the CPU would load into its tiles; `None` if the chain cannot read it.
fn numbers(front: &CompiledChain, array: &ArrayRef) -> Result<Option<ArrayRef>, ArrowError> {
    let rows = 0..array.len();
    match source::Feed::of(front, array, &rows, &mut []) {
        Ok(feed) => Ok(Some(feed.collect(rows).into_array())),
        Err(unreadable) => unreadable.source.map_or(Ok(None), Err),
    }
}
