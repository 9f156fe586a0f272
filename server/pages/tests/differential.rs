//! Column chunks as the Parquet library writes them, and damaged ones: this crate gives the library's values, or both
//! refuse.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

#[path = "differential/chunks.rs"]
mod chunks;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use arrow::{
    array::{Array, ArrayRef, BooleanArray},
    buffer::BooleanBuffer,
    compute::{cast, concat, filter},
};
use forebay_pages::{ColumnChunk, Form, PageError};

use crate::chunks::{Chunk, Numbers};

/// Reads a chunk in pieces of random sizes; `None` if the crate leaves it to the library.
fn own(chunk: &Chunk, form: Form, numbers: &mut Numbers) -> Option<Result<ArrayRef, PageError>> {
    let opened = ColumnChunk::open(&chunk.bytes(), chunk.column(form))?;
    Some(values(&opened, numbers))
}

/// All values, read in pieces of random sizes.
fn values(chunk: &Arc<ColumnChunk>, numbers: &mut Numbers) -> Result<ArrayRef, PageError> {
    let (column, mut reader) = (chunk.column(), chunk.reader());
    let (mut arrays, mut read) = (Vec::new(), 0);
    let size = 1 + numbers.below(column.rows.max(1) * 2);
    while read < column.rows {
        let array = reader.read(size)?;
        assert_eq!(array.len(), size.min(column.rows - read));
        read += array.len();
        arrays.push(cast(&array, &column.data_type).unwrap());
    }
    assert_eq!(reader.read(1).unwrap().len(), 0);
    let arrays: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
    Ok(concat(&arrays).unwrap())
}

#[test]
fn reads_what_the_library_writes() {
    let mut read = [0; 2];
    for seed in 0..600 {
        let mut numbers = Numbers::new(seed);
        let chunk = Chunk::random(&mut numbers);
        let expected = chunk.library().unwrap();
        for (place, form) in [Form::Values, Form::Keys].into_iter().enumerate() {
            let Some(found) = own(&chunk, form, &mut numbers) else { continue };
            assert_eq!(&found.unwrap(), &expected, "seed {seed}, {form:?}, {chunk:?}");
            read[place] += 1;
        }
    }
    // Booleans are read as values only.
    assert!(read[0] > 350 && read[1] > 150, "{read:?} chunks were read");
}

#[test]
fn skipped_rows_do_not_change_the_others() {
    for seed in 1000..1400 {
        let mut numbers = Numbers::new(seed);
        let chunk = Chunk::random(&mut numbers);
        for form in [Form::Values, Form::Keys] {
            let column = chunk.column(form);
            let Some(opened) = ColumnChunk::open(&chunk.bytes(), column.clone()) else { continue };
            let mut reader = opened.reader();
            let expected = chunk.library().unwrap();
            let (mut row, mut is_read) = (0, false);
            while row < column.rows {
                let rows = (1 + numbers.below(column.rows)).min(column.rows - row);
                if is_read {
                    let found = cast(&reader.read(rows).unwrap(), &column.data_type).unwrap();
                    assert_eq!(&found, &expected.slice(row, rows), "seed {seed}, row {row}, {chunk:?}");
                } else {
                    reader.skip(rows).unwrap();
                }
                (row, is_read) = (row + rows, !is_read);
            }
        }
    }
}

/// Sparse, dense and empty selections, in runs of any length.
#[test]
fn selected_rows_equal_those_of_all_rows() {
    for seed in 8000..8400 {
        let mut numbers = Numbers::new(seed);
        let chunk = Chunk::random(&mut numbers);
        for form in [Form::Values, Form::Keys] {
            let column = chunk.column(form);
            let Some(opened) = ColumnChunk::open(&chunk.bytes(), column.clone()) else { continue };
            let (mut reader, expected, mut row) = (opened.reader(), chunk.library().unwrap(), 0);
            while row < column.rows {
                let rows = (1 + numbers.below(column.rows)).min(column.rows - row);
                let (run, share) = (1 + numbers.below(60), numbers.below(11));
                let runs: Vec<bool> = (0..rows.div_ceil(run)).map(|_| numbers.below(10) < share).collect();
                let selected = BooleanBuffer::collect_bool(rows, |row| runs[row / run]);
                let found = cast(&reader.read_selected(&selected).unwrap(), &column.data_type).unwrap();
                let expected = filter(&expected.slice(row, rows), &BooleanArray::new(selected, None)).unwrap();
                assert_eq!(&found, &expected, "seed {seed}, row {row}, {chunk:?}");
                row += rows;
            }
            assert_eq!(reader.read_selected(&BooleanBuffer::new_set(3)).unwrap().len(), 0);
        }
    }
}

/// Readers that share a chunk read the same values, one behind the other.
#[test]
fn readers_share_a_chunk() {
    for seed in 7000..7200 {
        let mut numbers = Numbers::new(seed);
        let chunk = Chunk::random(&mut numbers);
        for form in [Form::Values, Form::Keys] {
            let column = chunk.column(form);
            let Some(opened) = ColumnChunk::open(&chunk.bytes(), column.clone()) else { continue };
            let expected = chunk.library().unwrap();
            let mut readers = [column.rows / 2, column.rows / 3].map(|skipped| (opened.reader(), skipped));
            for (reader, skipped) in &mut readers {
                reader.skip(*skipped).unwrap();
            }
            for turn in 0..2 * column.rows.div_ceil(100) {
                let (reader, row) = &mut readers[turn % 2];
                let found = cast(&reader.read(100).unwrap(), &column.data_type).unwrap();
                assert_eq!(&found, &expected.slice(*row, (column.rows - *row).min(100)), "seed {seed}, {chunk:?}");
                *row += found.len();
            }
        }
    }
}

/// A chunk whose pages are decompressed has the same values, and one that is damaged is refused before it is read.
#[test]
fn unpacked_chunks_have_the_same_values() {
    let (mut read, mut refused) = (0, 0);
    for seed in 9000..9600 {
        let mut numbers = Numbers::new(seed);
        let chunk = Chunk::random(&mut numbers);
        let is_damaged = seed % 2 == 0;
        let chunk = if is_damaged { chunk.damaged(&mut numbers) } else { chunk };
        for form in [Form::Values, Form::Keys] {
            let Some(opened) = ColumnChunk::open(&chunk.bytes(), chunk.column(form)) else { continue };
            let unpacked = match opened.unpacked() {
                Err(_) if is_damaged => {
                    refused += 1;
                    continue;
                }
                unpacked => unpacked.unwrap(),
            };
            let [expected, found] = [&opened, &unpacked].map(|chunk| {
                let found = catch_unwind(AssertUnwindSafe(|| values(chunk, &mut Numbers::new(seed))));
                found.map(|found| found.map_err(|error| error.to_string())).map_err(|_| ())
            });
            assert_eq!(found, expected, "seed {seed}, {form:?}, {chunk:?}");
            assert!(unpacked.unpacked_bytes() <= opened.unpacked_bytes(), "seed {seed}");
            read += 1;
        }
    }
    assert!(read > 400 && refused > 30, "{read} chunks were read, {refused} refused");
}

#[test]
fn damaged_bytes_are_refused_or_read_alike() {
    let (mut refused, mut alike, mut counted, mut wrong) = (0, 0, 0, Vec::new());
    std::panic::set_hook(Box::new(|_| {}));
    for seed in 2000..6000 {
        let mut numbers = Numbers::new(seed);
        let chunk = Chunk::random(&mut numbers).damaged(&mut numbers);
        for form in [Form::Values, Form::Keys] {
            let found = catch_unwind(AssertUnwindSafe(|| own(&chunk, form, &mut numbers)));
            let Some(found) = found.unwrap_or_else(|_| fail(&format!("seed {seed}, {chunk:?} panicked"))) else {
                continue;
            };
            // The library may panic: its callers turn that into an error.
            let expected = catch_unwind(AssertUnwindSafe(|| chunk.library()));
            match (found, expected) {
                (Err(_), _) => refused += 1,
                (Ok(found), Ok(Ok(expected))) if found.as_ref() == expected.as_ref() => alike += 1,
                (Ok(_), Ok(Ok(_))) => wrong.push(format!("seed {seed}, {chunk:?}: other values")),
                // Levels say which values are null: headers of pages of version 2 repeat it.
                (Ok(_), Ok(Err(source))) if is_of_null_count(&source.to_string()) => counted += 1,
                (Ok(_), refusal) => {
                    let reason = refusal.map_or_else(|_| "a panic".to_owned(), |error| format!("{:?}", error.err()));
                    wrong.push(format!("seed {seed}, {chunk:?}: only the library refuses: {reason}"));
                }
            }
        }
    }
    if !wrong.is_empty() {
        fail(&wrong.join("\n"));
    }
    let _ = std::panic::take_hook();
    assert!(refused > 500 && alike > 500, "{refused} refused, {alike} alike");
    assert!((1..=60).contains(&counted), "{counted} with another number of nulls in the header");
}

/// Whether the library refuses a page for the number of nulls in its header.
fn is_of_null_count(reason: &str) -> bool {
    ["more nulls than values in page", "insufficient values read from column", "out of range integral type conversion"]
        .iter()
        .any(|refusal| reason.contains(refusal))
}

/// Fails although the panic hook is silent.
#[expect(clippy::panic, reason = "a failed test")]
fn fail(reason: &str) -> ! {
    let _ = std::panic::take_hook();
    panic!("{reason}");
}
