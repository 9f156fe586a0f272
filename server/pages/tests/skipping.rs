//! Pages of which no row is read are passed over by their headers: damage to their bodies goes unnoticed.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::{ops::Range, sync::Arc};

use arrow::{
    array::{ArrayRef, Int64Array, RecordBatch},
    datatypes::DataType,
};
use bytes::Bytes;
use forebay_pages::{Codec, Column, ColumnChunk, ColumnReader, Form, Physical};
use parquet::{
    arrow::{
        ArrowWriter,
        arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions},
    },
    basic::{Compression, Encoding, ZstdLevel},
    file::{
        metadata::PageIndexPolicy,
        properties::{WriterProperties, WriterVersion},
    },
};

const ROWS: usize = 1000;
const PAGE_ROWS: usize = 100;

/// Some values repeat, so that compressed pages are smaller.
fn value(row: usize) -> Option<i64> {
    (row % 7 != 3).then_some((row * 7919 % 600) as i64)
}

/// A chunk of ten pages, and the ranges of the pages in it.
fn written(version: WriterVersion, has_dictionary: bool, encoding: Encoding) -> (Vec<u8>, Vec<(usize, usize)>) {
    let values: ArrayRef = Arc::new((0..ROWS).map(value).collect::<Int64Array>());
    let batch = RecordBatch::try_from_iter_with_nullable([("x", values, true)]).unwrap();
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_writer_version(version)
        .set_dictionary_enabled(has_dictionary)
        .set_encoding(encoding)
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_write_batch_size(PAGE_ROWS)
        .build();
    let mut file = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut file, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let file = Bytes::from(file);
    let options = ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Required);
    let metadata = ArrowReaderMetadata::load(&file, options).unwrap();
    let (start, length) = metadata.metadata().row_group(0).column(0).byte_range();
    let (start, length) = (start as usize, length as usize);
    let pages = metadata.metadata().offset_index().unwrap()[0][0].page_locations().iter().map(|page| {
        let first = page.offset as usize - start;
        (first, first + page.compressed_page_size as usize)
    });
    (file[start..start + length].to_vec(), pages.collect())
}

fn open(chunk: Vec<u8>) -> ColumnReader {
    let column = Column {
        physical: Physical::Int64,
        codec: Codec::Zstd,
        is_optional: true,
        rows: ROWS,
        data_type: DataType::Int64,
        form: Form::Values,
    };
    ColumnChunk::open(&chunk.into(), column).unwrap().reader()
}

fn expected(rows: Range<usize>) -> ArrayRef {
    Arc::new(rows.map(value).collect::<Int64Array>())
}

fn damage(chunk: &mut [u8], (start, end): (usize, usize)) {
    // The header is at most half of a page.
    chunk[start + (end - start) / 2..end].fill(0xa5);
}

#[test]
fn pages_without_rows_to_read_are_not_decompressed() {
    for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
        for (has_dictionary, encoding) in
            [(true, Encoding::PLAIN), (false, Encoding::PLAIN), (false, Encoding::DELTA_BINARY_PACKED)]
        {
            let case = format!("{version:?}, {encoding}, dictionary {has_dictionary}");
            let (chunk, pages) = written(version, has_dictionary, encoding);
            assert_eq!(pages.len(), ROWS / PAGE_ROWS, "{case}");
            // Rows 430 to 560 are in pages 4 and 5.
            let mut damaged = chunk.clone();
            pages.iter().enumerate().filter(|(page, _)| ![4, 5].contains(page)).for_each(|(_, range)| {
                damage(&mut damaged, *range);
            });
            let mut reader = open(damaged);
            reader.skip(430).unwrap();
            assert_eq!(&reader.read(130).unwrap(), &expected(430..560), "{case}");
            // Damage to a page is noticed once its rows are read.
            for (page, range) in pages.iter().enumerate() {
                let mut damaged = chunk.clone();
                damage(&mut damaged, *range);
                let (mut reader, first) = (open(damaged), page * PAGE_ROWS);
                reader.skip(first).unwrap();
                let read = reader.read(PAGE_ROWS);
                assert!(
                    read.is_err() || read.unwrap().as_ref() != expected(first..first + PAGE_ROWS).as_ref(),
                    "{case}, page {page}"
                );
            }
        }
    }
}
