//! Chunks of pages whose headers fit their bodies, and whose bodies are arbitrary bytes.

use arbitrary::{Result, Unstructured};
use forebay_pages::{Codec, Column, Form};

use super::chunk::{StoredChunk, codecs, types};

/// A page header's fields in Thrift's compact protocol: the number, and an integer or the fields of a struct.
enum Header {
    Number(u8, i32),
    True(u8),
    Fields(u8, Vec<Header>),
}

pub(super) fn chunk(bytes: &mut Unstructured<'_>) -> Result<StoredChunk> {
    let (physical, data_type) = types(bytes)?;
    let is_optional = bytes.arbitrary()?;
    // Bodies are stored as they are: only uncompressed pages of version 2 may have a codec.
    let codec = if bytes.ratio(1_u8, 8)? { codecs(bytes)? } else { Codec::Uncompressed };
    let (mut chunk, mut rows) = (Vec::new(), 0);
    let has_dictionary = bytes.arbitrary()?;
    if has_dictionary {
        let body = body(bytes)?;
        let fields = vec![Header::Number(1, bytes.int_in_range(0..=300)?), Header::Number(2, encoding(bytes)?)];
        page(&mut chunk, 2, &body, Header::Fields(7, fields));
    }
    for _ in 0..bytes.int_in_range(1..=4)? {
        let values: u16 = *bytes.choose(&[1, 8, 9, 64, 200, 1000])?;
        rows += usize::from(values);
        if codec != Codec::Uncompressed || bytes.arbitrary()? {
            version_2(&mut chunk, bytes, values, is_optional)?;
        } else {
            version_1(&mut chunk, bytes, values, is_optional)?;
        }
    }
    let column = Column { physical, codec, is_optional, rows, data_type, form: Form::Values };
    let has_dictionary_offset = has_dictionary && bytes.ratio(7_u8, 8)?;
    Ok(StoredChunk { bytes: chunk.into(), column, has_dictionary_offset })
}

fn version_1(chunk: &mut Vec<u8>, bytes: &mut Unstructured<'_>, values: u16, is_optional: bool) -> Result<()> {
    let mut stored = Vec::new();
    if is_optional {
        let levels = levels(bytes, values)?;
        stored.extend((levels.len() as u32).to_le_bytes());
        stored.extend(levels);
    }
    let fields = vec![
        Header::Number(1, values.into()),
        Header::Number(2, encoding(bytes)?),
        Header::Number(3, *bytes.choose(&[3, 3, 3, 4])?),
        Header::Number(4, 3),
    ];
    stored.extend(body(bytes)?);
    page(chunk, 0, &stored, Header::Fields(5, fields));
    Ok(())
}

fn version_2(chunk: &mut Vec<u8>, bytes: &mut Unstructured<'_>, values: u16, is_optional: bool) -> Result<()> {
    let mut stored = if is_optional { levels(bytes, values)? } else { Vec::new() };
    let nulls = if is_optional { bytes.int_in_range(0..=values)? } else { 0 };
    let mut fields = vec![
        Header::Number(1, values.into()),
        Header::Number(2, nulls.into()),
        Header::Number(3, values.into()),
        Header::Number(4, encoding(bytes)?),
        Header::Number(5, stored.len() as i32),
        Header::Number(6, 0),
    ];
    if bytes.arbitrary()? {
        fields.push(Header::True(7));
    }
    stored.extend(body(bytes)?);
    page(chunk, 3, &stored, Header::Fields(8, fields));
    Ok(())
}

/// Definition levels: a run of valid rows, or arbitrary bytes.
fn levels(bytes: &mut Unstructured<'_>, values: u16) -> Result<Vec<u8>> {
    if bytes.ratio(2_u8, 3)? {
        let mut levels = Vec::new();
        varint(&mut levels, u64::from(values) << 1);
        levels.push(1);
        return Ok(levels);
    }
    let length = bytes.int_in_range(0..=24)?;
    Ok(bytes.bytes(length.min(bytes.len()))?.to_vec())
}

/// Mostly encodings that exist.
fn encoding(bytes: &mut Unstructured<'_>) -> Result<i32> {
    bytes.choose(&[0, 2, 3, 5, 6, 7, 8, 9, 0, 8, 4, 1, 10]).copied()
}

fn body(bytes: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let length: u16 = *bytes.choose(&[8, 0, 1, 33, 64, 128, 500, 2000, 9000])?;
    let repeats = bytes.int_in_range(0..=64)?;
    // A short body fills a long page by repetition.
    let unit = bytes.bytes(repeats.min(bytes.len()))?.to_vec();
    let filler = if unit.is_empty() { vec![0] } else { unit };
    Ok(filler.into_iter().cycle().take(usize::from(length)).collect())
}

fn page(chunk: &mut Vec<u8>, kind: i32, body: &[u8], details: Header) {
    let size = body.len() as i32;
    let fields = [Header::Number(1, kind), Header::Number(2, size), Header::Number(3, size), details];
    encode(chunk, &fields);
    chunk.extend_from_slice(body);
}

fn encode(into: &mut Vec<u8>, fields: &[Header]) {
    let mut last = 0;
    for field in fields {
        let (id, kind) = match field {
            Header::True(id) => (*id, 1),
            Header::Number(id, _) => (*id, 5),
            Header::Fields(id, _) => (*id, 12),
        };
        into.push((id - last) << 4 | kind);
        last = id;
        match field {
            Header::True(_) => {}
            Header::Number(_, number) => varint(into, u64::from(((number << 1) ^ (number >> 31)) as u32)),
            Header::Fields(_, fields) => encode(into, fields),
        }
    }
    into.push(0);
}

fn varint(into: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        into.push(number as u8 | 0x80);
        number >>= 7;
    }
    into.push(number as u8);
}
