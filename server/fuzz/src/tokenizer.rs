//! Files of tokenizers, which clients may send in a plan, and the texts of a table.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, StringArray};
use forebay_media::{TextEncoder, Tokenization, Tokenizer, Truncation};

use crate::repeated::written_out;

/// A text that is encoded in addition to that of the input.
const TEXT: &str = "Zwölf Boxkämpfer\u{a0}jagen  Viktor\u{301} 👩‍👩‍👧 שלום 日本語\t\0 don't";

/// The first byte selects the parameters. The rest is a file, a zero byte and a text, or a file alone. Repetitions are
/// written out.
///
/// # Panics
/// If an invariant is violated, as every target does.
pub fn tokenizer(data: &[u8]) {
    let written = written_out(data);
    let Some((choice, rest)) = written.split_first() else { return };
    let end = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
    let text = String::from_utf8_lossy(rest.get(end + 1..).unwrap_or_default());
    let Ok(parsed) = Tokenizer::parse(&rest[..end]) else { return };
    let truncation = [Truncation::Right, Truncation::Left, Truncation::Error][usize::from(choice % 3)];
    let max_length = (choice & 4 > 0).then_some(u32::from(choice >> 4));
    let tokenization = Tokenization { max_length, truncation, add_special_tokens: choice & 8 > 0 };
    let Ok(encoder) = parsed.encoder(tokenization) else { return };
    let texts: ArrayRef = Arc::new(StringArray::from(vec![Some(text.as_ref()), None, Some(TEXT), Some("")]));
    let first = encoder.encode(&texts, None);
    assert_eq!(first, encoder.encode(&texts, None), "a second encoding has other tokens");
    let Ok(lists) = first else { return };
    assert_eq!(lists.data_type(), &TextEncoder::data_type());
    assert_eq!((lists.len(), lists.null_count(), lists.is_null(1)), (4, 1, true));
    let longest = lists.iter().flatten().map(|list| list.len()).max();
    if let (Some(max_length), Some(longest)) = (max_length, longest) {
        assert!(longest <= max_length as usize, "{longest} tokens, max_length is {max_length}");
    }
}
