use arrow::{
    array::{Array, ArrayRef, Int64Array, StringDictionaryBuilder},
    datatypes::Int32Type,
    ipc::{MessageHeader, root_as_message},
};
use arrow_flight::encode::{DictionaryHandling, FlightDataEncoderBuilder};
use forebay_proto::{Encoding, encode};
use futures::{TryStreamExt, stream};

use super::*;

const ROWS: u64 = 3;

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

fn record_batch() -> RecordBatch {
    let mut words = StringDictionaryBuilder::<Int32Type>::new();
    words.extend(["a", "b", "a"].map(Some));
    let columns: [(&str, ArrayRef); 2] =
        [("number", Arc::new(Int64Array::from(vec![1, 2, 3]))), ("word", Arc::new(words.finish()))];
    RecordBatch::try_from_iter(columns).unwrap()
}

/// Returns Flight messages as a server sends them: the schema, then a batch with each of the headers.
fn messages(headers: &[BatchHeader], encoding: Encoding) -> Vec<FlightData> {
    let batches = headers.iter().map(|_| Ok(record_batch())).collect::<Vec<_>>();
    let encoder = FlightDataEncoderBuilder::new()
        .with_dictionary_handling(DictionaryHandling::Resend)
        .build(stream::iter(batches));
    let mut messages: Vec<FlightData> = block_on(encoder.try_collect()).unwrap();
    // A dictionary precedes each batch, without a header.
    let kind = |message: &FlightData| root_as_message(&message.data_header).unwrap().header_type();
    let batches = messages.iter_mut().filter(|message| kind(message) == MessageHeader::RecordBatch);
    for (message, header) in batches.zip(headers) {
        let header = BatchHeader { checksum: header.checksum ^ xxh3_64(&message.data_body), ..*header };
        message.app_metadata = encode(&header, encoding).into();
    }
    messages
}

fn header(step: u64, last: bool) -> BatchHeader {
    BatchHeader { epoch: 4, step, position: step * ROWS, rows: ROWS, last, ..Default::default() }
}

fn read(messages: Vec<FlightData>, may_be_empty: bool) -> Vec<Result<Batch>> {
    let messages = stream::iter(messages.into_iter().map(Ok));
    block_on(BatchStream::new(messages, &"grpc://test:1".into(), may_be_empty, true).collect())
}

/// Returns the number of batches before the stream's error, and the error's reason.
fn reason(headers: &[BatchHeader]) -> (usize, HeaderError) {
    let mut outcome = read(messages(headers, Encoding::Protobuf), false);
    match outcome.pop().unwrap() {
        Err(Error::Header { reason, .. }) => (outcome.len(), reason),
        other => panic!("{other:?}"),
    }
}

#[test]
fn reads_a_whole_stream_in_either_encoding_from_any_step() {
    for encoding in [Encoding::Json, Encoding::Protobuf] {
        for first in [0, 7] {
            let headers = [header(first, false), header(first + 1, false), header(first + 2, true)];
            let batches: Vec<Batch> =
                read(messages(&headers, encoding), false).into_iter().map(Result::unwrap).collect();
            assert_eq!(batches.iter().map(|batch| batch.header.step - first).collect::<Vec<_>>(), [0, 1, 2]);
            assert!(batches.iter().all(|batch| batch.data.num_rows() == 3 && batch.data.column(1).len() == 3));
        }
    }
}

#[test]
fn a_stream_without_its_last_batch_is_truncated() {
    let outcome = read(messages(&[header(5, false), header(6, false)], Encoding::Protobuf), false);
    assert!(matches!(outcome[..], [Ok(_), Ok(_), Err(Error::Truncated { batches: 2, next_step: 7 })]), "{outcome:?}");
    let outcome = read(messages(&[], Encoding::Protobuf), false);
    assert!(matches!(outcome[..], [Err(Error::Truncated { batches: 0, next_step: 0 })]), "{outcome:?}");
}

#[test]
fn a_rank_without_rows_ends_without_batches() {
    assert!(read(messages(&[], Encoding::Protobuf), true).is_empty());
    let outcome = read(messages(&[header(0, false)], Encoding::Protobuf), true);
    assert!(matches!(outcome[..], [Ok(_), Err(Error::Truncated { .. })]), "{outcome:?}");
}

#[test]
fn mismatched_headers_end_the_stream() {
    let checksum = BatchHeader { checksum: 1, ..header(1, true) };
    let cases = [
        (vec![header(0, false), header(2, true)], 1, HeaderError::Step { expected: 1 }),
        (vec![header(0, false), header(0, true)], 1, HeaderError::Step { expected: 1 }),
        (vec![header(0, true), header(1, true)], 1, HeaderError::AfterLast),
        (vec![BatchHeader { rows: 2, ..header(0, true) }], 0, HeaderError::Rows { header: 2, batch: 3 }),
        (
            vec![BatchHeader { padding_rows: 4, ..header(0, true) }],
            0,
            HeaderError::Padding { padding_rows: 4, rows: 3 },
        ),
        (
            vec![header(0, false), BatchHeader { epoch: 5, ..header(1, true) }],
            1,
            HeaderError::Epoch { expected: 4, found: 5 },
        ),
    ];
    for (headers, batches, expected) in cases {
        assert_eq!(reason(&headers), (batches, expected));
    }
    assert!(matches!(reason(&[header(0, false), checksum]), (1, HeaderError::Checksum { .. })));
}

#[test]
fn rejects_a_corrupt_body_before_decoding() {
    let mut messages = messages(&[header(0, true)], Encoding::Json);
    let body = &mut messages.last_mut().unwrap().data_body;
    let mut bytes = body.to_vec();
    bytes[0] ^= 0xff;
    *body = bytes.into();
    let outcome = read(messages, false);
    assert!(
        matches!(outcome[..], [Err(Error::Header { step: 0, reason: HeaderError::Checksum { .. } })]),
        "{outcome:?}"
    );
}

#[test]
fn rejects_missing_and_malformed_headers() {
    let mut messages = messages(&[header(0, true)], Encoding::Json);
    messages.last_mut().unwrap().app_metadata = bytes::Bytes::new();
    let outcome = read(messages.clone(), false);
    assert!(matches!(outcome[..], [Err(Error::Header { reason: HeaderError::Missing, .. })]), "{outcome:?}");
    messages.last_mut().unwrap().app_metadata = "{\"stop\": 1}".into();
    let outcome = read(messages, false);
    assert!(matches!(outcome[..], [Err(Error::Message { .. })]), "{outcome:?}");
}

#[test]
fn keeps_the_servers_status() {
    let sent = messages(&[header(0, false)], Encoding::Protobuf);
    let failed = Err(Status::aborted("snapshot changed"));
    let stream = stream::iter(sent.into_iter().map(Ok).chain([failed]));
    let outcome: Vec<_> = block_on(BatchStream::new(stream, &"grpc://test:1".into(), false, true).collect());
    let [Ok(_), Err(error)] = &outcome[..] else { panic!("{outcome:?}") };
    assert_eq!((error.code(), error.to_string()), (Some(tonic::Code::Aborted), "ABORTED: snapshot changed".to_owned()));
}
