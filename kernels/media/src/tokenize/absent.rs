//! The model of a build without tokenizers, which cannot exist.

use super::error::TokenizerError;

#[derive(Clone, Debug)]
pub(super) enum Model {}

impl Model {
    pub(super) fn parse(_json: &[u8]) -> Result<Self, TokenizerError> {
        Err(TokenizerError::NotBuilt)
    }

    pub(super) fn added_tokens(&self) -> usize {
        match *self {}
    }

    pub(super) fn truncate(&mut self, _max_length: u32, _is_left: bool) -> Result<(), TokenizerError> {
        match *self {}
    }

    pub(super) fn ids(&self, _text: &str, _add_special_tokens: bool) -> Result<Vec<u32>, String> {
        match *self {}
    }
}
