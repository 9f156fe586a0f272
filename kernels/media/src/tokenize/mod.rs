//! Tokens: text → lists of token ids, by a `tokenizer.json` of Hugging Face.
//!
//! The crate `tokenizers` defines the result, so the ids equal those of the Python package of the same version
//! (`Tokenizer.encode(text).ids`). Truncation and padding that the file configures do not apply: the op decides. A null is
//! a null list. Nothing here is parallel: the caller divides the rows.
//!
//! Without the feature `text` every tokenizer is refused.

#[cfg(not(feature = "text"))]
mod absent;
mod error;
#[cfg(feature = "text")]
mod hugging_face;
#[cfg(test)]
#[cfg(feature = "text")]
mod tests;

use std::{
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use arrow::{
    array::{Array, ArrayRef, AsArray, Int32Array, LargeStringArray, ListArray, StringArray, StringViewArray},
    buffer::{NullBuffer, OffsetBuffer},
    compute::cast,
    datatypes::{DataType, Field},
};

pub use error::{TokenProblem, TokenizerError};

#[cfg(not(feature = "text"))]
use absent::Model;
#[cfg(feature = "text")]
use hugging_face::Model;

/// The most bytes of a `tokenizer.json`.
pub const TOKENIZER_BYTES_MAX: u64 = 256 << 20;

/// Bytes of memory that are reserved for the tokenization of one byte of text: the text in original and normalized form
/// with an alignment per byte, its pieces, and its tokens. Prose takes about 150; text in which every character is a piece,
/// such as a run of punctuation, about 570. Only a normalizer that makes text several times longer exceeds it.
pub const SCRATCH_BYTES_PER_BYTE: u64 = 600;

/// A tokenizer.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    model: Model,
}

/// How texts become tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tokenization {
    /// The most tokens of a text, special ones included; none: no limit.
    pub max_length: Option<u32>,
    /// What happens to longer texts.
    pub truncation: Truncation,
    /// Whether the special tokens of the tokenizer's post-processor are added.
    pub add_special_tokens: bool,
}

/// What happens to a text of more than the most tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truncation {
    /// The last tokens are dropped.
    Right,
    /// The first tokens are dropped.
    Left,
    /// It is an error.
    Error,
}

/// A tokenizer with the parameters of an op.
#[derive(Debug)]
pub struct TextEncoder {
    model: Model,
    tokenization: Tokenization,
}

// === impl Tokenizer ===

impl Tokenizer {
    /// Whether this build has tokenizers.
    pub const IS_BUILT: bool = cfg!(feature = "text");

    /// Reads the content of a `tokenizer.json`.
    pub fn parse(json: &[u8]) -> Result<Self, TokenizerError> {
        let parsed = catch_unwind(AssertUnwindSafe(|| Model::parse(json)));
        let parsed =
            parsed.unwrap_or_else(|_| Err(TokenizerError::Damaged("its parts contradict each other".to_owned())));
        parsed.map(|model| Self { model })
    }

    /// The tokenizer with the parameters of an op.
    #[cfg_attr(
        not(feature = "text"),
        expect(unreachable_code, unused_mut, unused_variables, reason = "there is no model in such a build")
    )]
    pub fn encoder(&self, tokenization: Tokenization) -> Result<TextEncoder, TokenizerError> {
        let mut model = self.model.clone();
        if let Some(max_length) = tokenization.max_length {
            let added = self.model.added_tokens();
            if (max_length as usize) < added {
                return Err(TokenizerError::MaxLength { max_length, added });
            }
            match tokenization.truncation {
                Truncation::Right => model.truncate(max_length, false)?,
                Truncation::Left => model.truncate(max_length, true)?,
                Truncation::Error => {}
            }
        }
        Ok(TextEncoder { model, tokenization })
    }
}

// === impl TextEncoder ===

impl TextEncoder {
    /// The type of the result.
    pub fn data_type() -> DataType {
        DataType::List(Arc::new(Field::new("item", DataType::Int32, false)))
    }

    /// The tokens of each text; `fill` takes the place of null. An error has the index of its row.
    pub fn encode(&self, texts: &ArrayRef, fill: Option<&str>) -> Result<ListArray, (usize, TokenProblem)> {
        let texts = Texts::of(texts).map_err(|problem| (0, problem))?;
        let (mut tokens, mut ends) = (Vec::new(), vec![0]);
        for row in 0..texts.len() {
            if let Some(text) = texts.get(row).or(fill) {
                self.append(text, &mut tokens).map_err(|problem| (row, problem))?;
            }
            ends.push(i32::try_from(tokens.len()).map_err(|_| (row, TokenProblem::TooMany))?);
        }
        let nulls = texts.nulls().filter(|_| fill.is_none()).cloned();
        let field = Arc::new(Field::new("item", DataType::Int32, false));
        let tokens = Arc::new(Int32Array::from(tokens));
        ListArray::try_new(field, OffsetBuffer::new(ends.into()), tokens, nulls)
            .map_err(|error| (0, TokenProblem::Failed(error.to_string())))
    }

    fn append(&self, text: &str, tokens: &mut Vec<i32>) -> Result<(), TokenProblem> {
        let encoded = catch_unwind(AssertUnwindSafe(|| self.model.ids(text, self.tokenization.add_special_tokens)));
        let ids = encoded.unwrap_or_else(|_| Err("it panicked".to_owned())).map_err(TokenProblem::Failed)?;
        if let Some(max_length) = self.tokenization.max_length
            && ids.len() > max_length as usize
        {
            return Err(TokenProblem::TooLong { tokens: ids.len(), max_length });
        }
        tokens.reserve(ids.len());
        for id in ids {
            tokens.push(i32::try_from(id).map_err(|_| TokenProblem::TokenId(id))?);
        }
        Ok(())
    }
}

/// Whether a column is text, plain or in a dictionary.
pub fn is_text(data_type: &DataType) -> bool {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => true,
        DataType::Dictionary(_, values) => is_text(values),
        _ => false,
    }
}

/// Divides texts into runs of rows with at most `bytes_max` bytes each, and returns the bytes of each run. A single
/// longer text is a run.
pub fn text_runs(texts: &ArrayRef, bytes_max: u64) -> Vec<(Range<usize>, u64)> {
    let Ok(texts) = Texts::of(texts) else { return Vec::new() };
    let (mut runs, mut start, mut bytes) = (Vec::new(), 0, 0);
    for row in 0..texts.len() {
        let length = texts.get(row).map_or(0, |text| text.len() as u64);
        if row > start && bytes + length > bytes_max {
            runs.push((start..row, bytes));
            (start, bytes) = (row, 0);
        }
        bytes += length;
    }
    if start < texts.len() {
        runs.push((start..texts.len(), bytes));
    }
    runs
}

/// A column of text.
enum Texts {
    Utf8(StringArray),
    LargeUtf8(LargeStringArray),
    Utf8View(StringViewArray),
}

impl Texts {
    fn of(array: &ArrayRef) -> Result<Self, TokenProblem> {
        Ok(match array.data_type() {
            DataType::Utf8 => Self::Utf8(array.as_string().clone()),
            DataType::LargeUtf8 => Self::LargeUtf8(array.as_string().clone()),
            DataType::Utf8View => Self::Utf8View(array.as_string_view().clone()),
            _ => {
                let views = cast(array, &DataType::Utf8View);
                let views = views.map_err(|error| TokenProblem::Failed(error.to_string()))?;
                Self::Utf8View(views.as_string_view().clone())
            }
        })
    }

    fn array(&self) -> &dyn Array {
        match self {
            Self::Utf8(array) => array,
            Self::LargeUtf8(array) => array,
            Self::Utf8View(array) => array,
        }
    }

    fn len(&self) -> usize {
        self.array().len()
    }

    fn nulls(&self) -> Option<&NullBuffer> {
        self.array().nulls()
    }

    fn get(&self, row: usize) -> Option<&str> {
        if self.array().is_null(row) {
            return None;
        }
        Some(match self {
            Self::Utf8(array) => array.value(row),
            Self::LargeUtf8(array) => array.value(row),
            Self::Utf8View(array) => array.value(row),
        })
    }
}
