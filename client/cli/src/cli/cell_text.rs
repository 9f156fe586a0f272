//! Values as cells of a table: binary values, long texts and lists are shortened.

use std::fmt::Write as _;

use arrow::{
    array::{Array, ArrayRef, AsArray},
    datatypes::DataType,
    error::ArrowError,
    util::display::{ArrayFormatter, FormatOptions},
};

/// Bytes of a binary value that a cell shows.
const BYTES_SHOWN: usize = 8;

/// Characters of a text that a cell shows.
const LETTERS_SHOWN: usize = 200;

/// Elements of a list, and fields of a struct, that a cell shows.
const ITEMS_SHOWN: usize = 4;

/// Nesting that a cell shows.
const DEPTH_MAX: usize = 6;

/// Formats a value; an empty text for null.
pub(crate) fn cell(column: &ArrayRef, row: usize) -> Result<String, ArrowError> {
    if column.is_null(row) { Ok(String::new()) } else { value(column, row, 0) }
}

/// Replaces control characters and marks of direction, which would act on the terminal, by their escapes.
pub(crate) fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for letter in text.chars() {
        if forebay_proto::is_active(letter) {
            plain.extend(letter.escape_default());
        } else {
            plain.push(letter);
        }
    }
    plain
}

fn value(column: &ArrayRef, row: usize, depth: usize) -> Result<String, ArrowError> {
    if column.is_null(row) {
        return Ok("null".to_owned());
    }
    if depth > DEPTH_MAX {
        return Ok("…".to_owned());
    }
    Ok(match column.data_type() {
        DataType::Binary => binary(column.as_binary::<i32>().value(row)),
        DataType::LargeBinary => binary(column.as_binary::<i64>().value(row)),
        DataType::BinaryView => binary(column.as_binary_view().value(row)),
        DataType::FixedSizeBinary(_) => binary(column.as_fixed_size_binary().value(row)),
        DataType::Utf8 => text(column.as_string::<i32>().value(row)),
        DataType::LargeUtf8 => text(column.as_string::<i64>().value(row)),
        DataType::Utf8View => text(column.as_string_view().value(row)),
        DataType::List(_) => list(&column.as_list::<i32>().value(row), depth)?,
        DataType::LargeList(_) => list(&column.as_list::<i64>().value(row), depth)?,
        DataType::FixedSizeList(..) => list(&column.as_fixed_size_list().value(row), depth)?,
        DataType::Struct(fields) => {
            let columns = column.as_struct().columns();
            let named = fields.iter().zip(columns).take(ITEMS_SHOWN);
            let shown =
                named.map(|(field, column)| Ok(format!("{}: {}", text(field.name()), value(column, row, depth + 1)?)));
            format!("{{{}}}", items(shown.collect::<Result<_, ArrowError>>()?, fields.len(), "fields"))
        }
        DataType::Map(..) => {
            let entries = column.as_map().value(row);
            let [keys, values] = entries.columns() else { return Ok("{…}".to_owned()) };
            let shown = (0..entries.len().min(ITEMS_SHOWN))
                .map(|entry| Ok(format!("{}: {}", value(keys, entry, depth + 1)?, value(values, entry, depth + 1)?)));
            format!("{{{}}}", items(shown.collect::<Result<_, ArrowError>>()?, entries.len(), "entries"))
        }
        DataType::Dictionary(..) => {
            let dictionary = column.as_any_dictionary();
            match dictionary.normalized_keys().get(row) {
                Some(key) => value(dictionary.values(), *key, depth)?,
                None => String::new(),
            }
        }
        _ => {
            let options = FormatOptions::default().with_display_error(true);
            text(&ArrayFormatter::try_new(column.as_ref(), &options)?.value(row).to_string())
        }
    })
}

/// Formats a binary value: `<784 B: 89504e47…>`.
fn binary(bytes: &[u8]) -> String {
    let mut shown = format!("<{} B: ", bytes.len());
    for byte in &bytes[..bytes.len().min(BYTES_SHOWN)] {
        // Writing to a String cannot fail.
        let _ = write!(shown, "{byte:02x}");
    }
    if bytes.is_empty() {
        return "<0 B>".to_owned();
    }
    shown + if bytes.len() > BYTES_SHOWN { "…>" } else { ">" }
}

fn text(text: &str) -> String {
    match text.char_indices().nth(LETTERS_SHOWN) {
        Some((end, _)) => plain(&text[..end]) + "…",
        None => plain(text),
    }
}

/// Formats a list: `[1.5, 2.0, 0.0, 1.0, … 784 values]`.
fn list(values: &ArrayRef, depth: usize) -> Result<String, ArrowError> {
    // One more than is shown needs no less space than its number.
    let shown = if values.len() == ITEMS_SHOWN + 1 { values.len() } else { values.len().min(ITEMS_SHOWN) };
    let shown = (0..shown).map(|item| value(values, item, depth + 1)).collect::<Result<_, ArrowError>>()?;
    Ok(format!("[{}]", items(shown, values.len(), "values")))
}

fn items(mut shown: Vec<String>, count: usize, kind: &str) -> String {
    if count > shown.len() {
        shown.push(format!("… {count} {kind}"));
    }
    shown.join(", ")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::{
        array::{
            BinaryArray, DictionaryArray, FixedSizeBinaryArray, FixedSizeListArray, Int32Array, ListArray, StringArray,
            StructArray, TimestampMicrosecondArray,
        },
        datatypes::{Float32Type, Int32Type},
    };

    use super::*;

    fn cells(column: impl Array + 'static) -> Vec<String> {
        let column: ArrayRef = Arc::new(column);
        (0..column.len()).map(|row| cell(&column, row).unwrap()).collect()
    }

    #[test]
    fn binary_values_show_their_size_and_beginning() {
        let image = [b"\x89PNG\r\n\x1a\n".as_slice(), &[0; 776]].concat();
        let column = BinaryArray::from(vec![Some(&image[..]), None, Some(b""), Some(b"\x00\xff")]);
        assert_eq!(cells(column), ["<784 B: 89504e470d0a1a0a…>", "", "<0 B>", "<2 B: 00ff>"]);
        let fixed = FixedSizeBinaryArray::try_from_iter([[1_u8; 16]].into_iter()).unwrap();
        assert_eq!(cells(fixed), ["<16 B: 0101010101010101…>"]);
    }

    #[test]
    fn long_texts_are_cut_and_control_characters_escaped() {
        let column = StringArray::from(vec!["é".repeat(1_000_000).as_str(), "a\nb\u{1b}[2J"]);
        let shown = cells(column);
        assert_eq!((shown[0].chars().count(), shown[1].as_str()), (LETTERS_SHOWN + 1, "a\\nb\\u{1b}[2J"));
    }

    #[test]
    fn lists_show_their_first_elements_and_length() {
        let rows =
            [Some((0..784).map(Some).collect()), Some(vec![Some(1), None]), None, Some(vec![]), Some(vec![None; 5])];
        let lists = ListArray::from_iter_primitive::<Int32Type, _, _>(rows);
        assert_eq!(
            cells(lists),
            ["[0, 1, 2, 3, … 784 values]", "[1, null]", "", "[]", "[null, null, null, null, null]"]
        );
        let matrix = FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>([Some([Some(0.5); 8])], 8);
        assert_eq!(cells(matrix), ["[0.5, 0.5, 0.5, 0.5, … 8 values]"]);
    }

    #[test]
    fn structs_dictionaries_and_times_show_their_values() {
        let field = |name: &str, values: ArrayRef| {
            (Arc::new(arrow::datatypes::Field::new(name, values.data_type().clone(), true)), values)
        };
        let fields: Vec<_> =
            (0..6).map(|number| field(&format!("f{number}"), Arc::new(Int32Array::from(vec![number])))).collect();
        assert_eq!(cells(StructArray::from(fields)), ["{f0: 0, f1: 1, f2: 2, f3: 3, … 6 fields}"]);
        let texts = DictionaryArray::<Int32Type>::from_iter([Some("b"), None, Some("a"), Some("b")]);
        assert_eq!(cells(texts), ["b", "", "a", "b"]);
        let times = TimestampMicrosecondArray::from(vec![-1, i64::MAX]);
        let shown = cells(times);
        assert!(shown[0].starts_with("1969-12-31T23:59:59") && !shown[1].is_empty(), "{shown:?}");
    }
}
