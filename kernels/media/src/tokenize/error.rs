//! Why a tokenizer cannot be used, and why a text has no tokens.

/// Why a tokenizer cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenizerError {
    /// The feature is not built.
    #[error("this forebay-server was built without its feature `text`; `make build` builds it with every feature")]
    NotBuilt,
    /// It is not a `tokenizer.json`, or is of a later version.
    #[error("not a tokenizer.json that tokenizers 0.23 reads: {0}; save it again with Tokenizer.save(path)")]
    Damaged(String),
    /// Its tokens are random.
    #[error("its {0} makes tokens random, so that no epoch repeats: save it with {0} set to null")]
    Random(&'static str),
    /// A token id that lists of INT32 cannot hold.
    #[error(
        "token {token:?} has the id {id}, and token ids are INT32, at most 2147483647: number its vocabulary from 0"
    )]
    TokenId {
        /// The token.
        token: String,
        /// Its id.
        id: u32,
    },
    /// A length that special tokens alone exceed.
    #[error(
        "max_length is {max_length}, and the tokenizer adds {added} special token(s) to every text: set at least {added}"
    )]
    MaxLength {
        /// The length.
        max_length: u32,
        /// The special tokens.
        added: usize,
    },
}

/// Why a text has no tokens.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenProblem {
    /// It has more tokens than allowed.
    #[error(
        "the text has {tokens} tokens, and max_length is {max_length}: raise it, set truncation to RIGHT or LEFT, or \
         exclude long texts with a filter"
    )]
    TooLong {
        /// Its tokens.
        tokens: usize,
        /// The most tokens.
        max_length: u32,
    },
    /// The tokenizer failed.
    #[error("the tokenizer failed: {0}; Tokenizer.encode of the Python package fails for this text, too")]
    Failed(String),
    /// A token id that lists of INT32 cannot hold.
    #[error("the tokenizer gives the token id {0}, and token ids are INT32, at most 2147483647")]
    TokenId(u32),
    /// The lists have more tokens than Arrow counts.
    #[error("more than 2147483647 tokens in one part of a row group: use smaller row groups, or split the texts")]
    TooMany,
}
