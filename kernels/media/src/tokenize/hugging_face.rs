//! The tokenizer of the crate `tokenizers`.

use tokenizers::{
    ModelWrapper, PostProcessor as _, Tokenizer, TruncationDirection, TruncationParams,
    utils::parallelism::set_parallelism,
};

use super::error::TokenizerError;

#[derive(Clone, Debug)]
pub(super) struct Model(Tokenizer);

impl Model {
    pub(super) fn parse(json: &[u8]) -> Result<Self, TokenizerError> {
        // Threads are the caller's.
        set_parallelism(false);
        let mut tokenizer =
            Tokenizer::from_bytes(json).map_err(|error| TokenizerError::Damaged(shortened(&error.to_string())))?;
        match tokenizer.get_model() {
            ModelWrapper::BPE(model) if model.dropout.is_some_and(|share| share > 0.0) => {
                return Err(TokenizerError::Random("dropout"));
            }
            ModelWrapper::Unigram(model) if model.alpha.is_some_and(|alpha| alpha > 0.0) => {
                return Err(TokenizerError::Random("alpha"));
            }
            _ => {}
        }
        let vocabulary = tokenizer.get_vocab(true);
        if let Some((token, id)) = vocabulary.into_iter().max_by_key(|(_, id)| *id)
            && i32::try_from(id).is_err()
        {
            return Err(TokenizerError::TokenId { token: shortened(&token), id });
        }
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None).map_err(|error| TokenizerError::Damaged(error.to_string()))?;
        Ok(Self(tokenizer))
    }

    /// The special tokens that are added to a text.
    pub(super) fn added_tokens(&self) -> usize {
        self.0.get_post_processor().map_or(0, |processor| processor.added_tokens(false))
    }

    pub(super) fn truncate(&mut self, max_length: u32, is_left: bool) -> Result<(), TokenizerError> {
        let direction = if is_left { TruncationDirection::Left } else { TruncationDirection::Right };
        let truncation = TruncationParams { max_length: max_length as usize, direction, ..TruncationParams::default() };
        let truncated = self.0.with_truncation(Some(truncation));
        truncated.map(|_| ()).map_err(|error| TokenizerError::Damaged(error.to_string()))
    }

    pub(super) fn ids(&self, text: &str, add_special_tokens: bool) -> Result<Vec<u32>, String> {
        let encoding = self.0.encode_fast(text, add_special_tokens).map_err(|error| shortened(&error.to_string()))?;
        Ok(encoding.get_ids().to_vec())
    }
}

/// The beginning of a text from a file that may be hostile.
fn shortened(text: &str) -> String {
    const CHARACTERS_MAX: usize = 200;
    text.chars().take(CHARACTERS_MAX).collect()
}
