//! Column chunks: the server's page reader and the Parquet library give the same values bit for bit, or both refuse.

mod assembled;
mod chunk;
mod library;
mod written;

use arbitrary::Unstructured;
use arrow::{
    array::{Array, ArrayRef, new_empty_array},
    compute::{cast, concat},
};
use forebay_pages::{ColumnChunk, Form, PageError};

use self::chunk::StoredChunk;
use crate::{panics, server::exclusive};

/// Panics of the library on pages that it could read.
const LIBRARY_FAULTS: [&str; 1] = [
    // A page of strings that has bytes but no values.
    "attempt to divide by zero",
];

/// Refusals of pages that the library reads. No writer stores such pages.
const STRICTER: [&str; 10] = [
    // A null count that contradicts the levels.
    "declares another number of nulls than the page has",
    // Streams of `BYTE_STREAM_SPLIT` of which the library reads bytes of the next one.
    "streams of different lengths",
    // The library skips an empty run of levels, and ends at one of indices.
    "has an empty run",
    // The library drops the high bits of the length of a run.
    "a run of more than 2^62 values",
    // The library does not check the width of indices of a page of nulls.
    "declares indices of",
    // The library leaves the rest of the declared size as it is.
    "decompresses to less than",
    // The library leaves lengths unused.
    "has another number of lengths than strings",
    // The library takes the whole previous string as the prefix.
    "a string has a negative length",
    "shares more bytes with the previous one than that has",
    // The library checks the values that indices refer to.
    "a dictionary has fewer values than its header declares",
];

/// The bytes are choices that make up a column chunk, and damage to it.
///
/// # Panics
/// If the readers disagree, or if the page reader panics.
pub fn pages(data: &[u8]) {
    let _exclusive = exclusive();
    panics::watch();
    let mut bytes = Unstructured::new(data);
    let Some(chunk) = StoredChunk::of(&mut bytes) else { return };
    let steps = steps(&mut bytes, chunk.column.rows);
    let read = [Form::Values, Form::Keys].map(|form| {
        let read = |steps: &[usize]| panics::caught(|| read(&chunk, form, steps));
        [read(&[]), read(&steps)].map(|read| read.unwrap_or_else(|panic| panic!("{chunk:?} panics: {panic}")))
    });
    if read.iter().flatten().all(Option::is_none) {
        return;
    }
    let expected = panics::caught(|| library::read(&chunk)).and_then(|read| read.map_err(|error| error.to_string()));
    for [whole, in_steps] in read {
        check(&chunk, whole.as_ref(), &expected);
        if let Some(read) = &in_steps
            && let Ok(expected) = &expected
        {
            check(&chunk, Some(read), &Ok(passed(expected, &steps)));
        }
    }
}

/// The row counts to read and to pass over, alternately.
fn steps(bytes: &mut Unstructured<'_>, rows: usize) -> Vec<usize> {
    let mut steps = vec![bytes.int_in_range(0..=rows).unwrap_or(0)];
    while !bytes.is_empty() && steps.len() < 8 {
        steps.push(bytes.int_in_range(1..=rows.max(1)).unwrap_or(1));
    }
    steps
}

/// The rows that the page reader reads: all without steps, and else those of every other step. `None` if it leaves the
/// chunk to the library.
fn read(chunk: &StoredChunk, form: Form, steps: &[usize]) -> Option<Result<ArrayRef, PageError>> {
    let column = chunk.column_as(form);
    let opened = ColumnChunk::open(&chunk.bytes, column.clone())?;
    let mut reader = opened.reader();
    let mut arrays = vec![new_empty_array(&column.data_type)];
    let all = [column.rows];
    for (step, rows) in (if steps.is_empty() { &all } else { steps }).iter().enumerate() {
        let done = if step % 2 == 0 {
            reader.read(*rows).map(|array| {
                arrays.push(cast(&array, &column.data_type).expect("values of the column's type"));
            })
        } else {
            reader.skip(*rows)
        };
        if let Err(error) = done {
            return Some(Err(error));
        }
    }
    Some(Ok(joined(&arrays)))
}

/// The rows of every other step.
fn passed(rows: &ArrayRef, steps: &[usize]) -> ArrayRef {
    let (mut arrays, mut row) = (vec![rows.slice(0, 0)], 0);
    for (step, count) in steps.iter().enumerate() {
        let count = (*count).min(rows.len() - row);
        if step % 2 == 0 {
            arrays.push(rows.slice(row, count));
        }
        row += count;
    }
    joined(&arrays)
}

fn joined(arrays: &[ArrayRef]) -> ArrayRef {
    let arrays: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
    concat(&arrays).expect("arrays of one type")
}

/// Checks what the page reader gives, if it reads the chunk, against what the library gives.
fn check(chunk: &StoredChunk, found: Option<&Result<ArrayRef, PageError>>, expected: &Result<ArrayRef, String>) {
    match (found, expected) {
        (None, _) | (Some(Err(_)), Err(_)) => {}
        (Some(Ok(found)), Ok(expected)) => assert!(
            found.as_ref() == expected.as_ref(),
            "other values of {chunk:?}\n  page reader {found:?}\n  library {expected:?}"
        ),
        (Some(Ok(_)), Err(refusal)) => {
            let is_known = LIBRARY_FAULTS.iter().any(|known| refusal.contains(known));
            assert!(is_known, "only the library refuses {chunk:?}: {refusal}");
        }
        (Some(Err(refusal)), Ok(_)) => {
            let refusal = refusal.to_string();
            let is_known = STRICTER.iter().any(|known| refusal.contains(known));
            assert!(is_known, "only the page reader refuses {chunk:?}: {refusal}");
        }
    }
}
