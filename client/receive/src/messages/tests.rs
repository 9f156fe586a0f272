use proptest::prelude::*;

use super::*;

/// A message with fields in the order of `FlightData`: descriptor, metadata, header, body.
fn encoded(metadata: &[u8], header: &[u8], body: &[u8]) -> Vec<u8> {
    let mut fields = field(1, b"a descriptor");
    fields.extend(field(DATA_HEADER, metadata));
    fields.extend(field(APP_METADATA, header));
    fields.extend(field(DATA_BODY, body));
    framed(&fields)
}

fn field(number: u64, bytes: &[u8]) -> Vec<u8> {
    let mut encoded = varint(number << 3 | LENGTH);
    encoded.extend(varint(bytes.len() as u64));
    encoded.extend(bytes);
    encoded
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

fn framed(fields: &[u8]) -> Vec<u8> {
    let length = u32::try_from(fields.len()).unwrap();
    [&[0][..], &length.to_be_bytes(), fields].concat()
}

/// Metadata, header and body.
type Fields = (Vec<u8>, Vec<u8>, Vec<u8>);

/// Reads pieces that end at these offsets.
fn read(bytes: &[u8], cuts: &[usize]) -> Result<Vec<Fields>, ReceiveError> {
    let mut reader = MessageReader::new(Arc::default());
    let mut found = Vec::new();
    let mut start = 0;
    for &end in cuts.iter().chain([&bytes.len()]) {
        let mut piece = &bytes[start.min(end)..end];
        start = start.max(end);
        while let Some(message) = reader.read(&mut piece)? {
            let body = message.body.as_ref().map(|body| body.received().to_vec()).unwrap_or_default();
            found.push((message.metadata, message.header, body));
        }
        assert!(piece.is_empty());
    }
    if reader.is_between() { Ok(found) } else { Err(cut()) }
}

#[test]
fn messages_are_read_from_pieces_of_any_size() {
    let parts = (b"metadata".to_vec(), b"header".to_vec(), vec![9; 1000]);
    let one = encoded(&parts.0, &parts.1, &parts.2);
    let both = [one.clone(), framed(&[]), one.clone()].concat();
    let expected = vec![parts.clone(), Default::default(), parts];
    for size in [1, 2, 3, 7, 64, 500, both.len()] {
        let cuts: Vec<usize> = (size..both.len()).step_by(size).collect();
        assert_eq!(read(&both, &cuts).as_ref(), Ok(&expected), "pieces of {size} bytes");
    }
    for end in 1..one.len() {
        assert!(read(&one[..end], &[]).is_err(), "the first {end} bytes");
    }
}

#[test]
fn unknown_fields_of_every_type_are_skipped_and_the_last_of_a_field_counts() {
    let mut fields = [varint(9 << 3 | VARINT), varint(u64::MAX)].concat();
    fields.extend([varint(10 << 3 | EIGHT_BYTES), vec![1; 8], varint(11 << 3 | FOUR_BYTES), vec![1; 4]].concat());
    fields.extend([field(12, b"unknown"), field(DATA_BODY, b"first"), field(DATA_HEADER, b"m")].concat());
    fields.extend([field(DATA_BODY, b"second"), field(APP_METADATA, b"")].concat());
    let expected = vec![(b"m".to_vec(), Vec::new(), b"second".to_vec())];
    assert_eq!(read(&framed(&fields), &[]), Ok(expected));
}

#[test]
fn lengths_and_types_that_contradict_each_other_are_errors() {
    let long = [varint(DATA_BODY << 3 | LENGTH), varint(u64::from(u32::MAX))].concat();
    let endless = [varint(9 << 3 | VARINT), vec![0xff; 12]].concat();
    for (fields, words) in [
        (long, "longer than it"),
        (endless, "more than 64 bits"),
        (varint(DATA_BODY << 3 | VARINT), "another type"),
        (varint(7), "another type"),
        (varint(9 << 3 | 3), "wire type 3"),
        (varint(9 << 3 | EIGHT_BYTES), "within a field"),
        (vec![0x80], "within a field"),
    ] {
        let error = read(&framed(&fields), &[]).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    let compressed = [&[1][..], &framed(b"")[1..]].concat();
    assert!(read(&compressed, &[]).unwrap_err().to_string().contains("compressed"));
}

proptest! {
    #[test]
    fn no_input_panics_or_reads_more_than_it_has(mut bytes: Vec<u8>, is_short: bool, cuts: [usize; 3]) {
        if is_short && bytes.len() > 5 {
            // A prefix that the bytes can fulfil.
            bytes[..4].fill(0);
        }
        let mut cuts = cuts.map(|cut| cut % (bytes.len() + 1));
        cuts.sort_unstable();
        let whole = read(&bytes, &[]);
        prop_assert_eq!(whole, read(&bytes, &cuts));
    }

    #[test]
    fn any_parts_survive(metadata: Vec<u8>, header: Vec<u8>, body: Vec<u8>, cut: usize) {
        let bytes = encoded(&metadata, &header, &body);
        let found = read(&bytes, &[cut % bytes.len()]).unwrap();
        prop_assert_eq!(found, vec![(metadata, header, body)]);
    }
}
