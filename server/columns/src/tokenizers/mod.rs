//! The tokenizers that the operator has named (`--tokenizer`).
//!
//! A file is read when the configuration is, at the start and at a reload, and never for a request: clients name tokenizers,
//! not paths. The digest of its content is part of the plans that name it. This module has no access to plans and rows.

mod column;
mod error;
mod patterns;

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read as _},
    path::Path,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use forebay_media::{TOKENIZER_BYTES_MAX, Tokenizer, TokenizerError};
use forebay_runtime::{error::near_names, state::short_digest};

pub use column::{TokenColumn, Tokens};
pub use error::TokensError;
pub use patterns::check_patterns;

/// A tokenizer with its name. Cheap to clone.
#[derive(Clone, Debug)]
pub struct NamedTokenizer {
    name: String,
    digest: String,
    tokenizer: Arc<Tokenizer>,
}

/// Why a file has no tokenizer.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerFileError {
    /// It cannot be read.
    #[error("cannot read it: {0}")]
    Read(#[from] io::Error),
    /// It is too large.
    #[error("it has more than {TOKENIZER_BYTES_MAX} bytes, which no tokenizer.json has: name another file")]
    TooLarge,
    /// It is not a tokenizer.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
}

/// No tokenizer has the name.
#[derive(Debug, thiserror::Error)]
#[error("no tokenizer \"{name}\": {near}; the operator of the server adds one with --tokenizer NAME=FILE")]
pub struct UnknownTokenizer {
    name: String,
    near: String,
}

/// The tokenizers of a server, by name.
#[derive(Debug)]
pub struct Tokenizers {
    named: RwLock<BTreeMap<String, NamedTokenizer>>,
    /// Changes whenever a tokenizer does.
    generation: AtomicU64,
}

// === impl NamedTokenizer ===

impl NamedTokenizer {
    /// Reads a tokenizer from its file.
    pub fn read(name: &str, path: &Path) -> Result<Self, TokenizerFileError> {
        let mut json = Vec::new();
        File::open(path)?.take(TOKENIZER_BYTES_MAX + 1).read_to_end(&mut json)?;
        if json.len() as u64 > TOKENIZER_BYTES_MAX {
            return Err(TokenizerFileError::TooLarge);
        }
        let tokenizer = Arc::new(Tokenizer::parse(&json)?);
        Ok(Self { name: name.to_owned(), digest: short_digest(&[&json]), tokenizer })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The digest of its file.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.tokenizer
    }
}

// === impl Tokenizers ===

impl Tokenizers {
    /// These tokenizers.
    pub fn new(tokenizers: Vec<NamedTokenizer>) -> Self {
        Self { named: RwLock::new(by_name(tokenizers)), generation: AtomicU64::new(0) }
    }

    /// Replaces the tokenizers. Streams in progress use those that they were compiled with.
    pub fn replace(&self, tokenizers: Vec<NamedTokenizer>) {
        let new = by_name(tokenizers);
        let mut named = self.named.write().unwrap_or_else(PoisonError::into_inner);
        let is_same = named.len() == new.len()
            && named
                .iter()
                .zip(&new)
                .all(|((name, one), (other_name, other))| name == other_name && one.digest == other.digest);
        if !is_same {
            *named = new;
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// A number that changes with every replacement by others.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The tokenizer of a name.
    pub fn get(&self, name: &str) -> Result<NamedTokenizer, UnknownTokenizer> {
        let named = self.named.read().unwrap_or_else(PoisonError::into_inner);
        named.get(name).cloned().ok_or_else(|| {
            let near = near_names(name, named.keys().map(String::as_str));
            UnknownTokenizer { name: name.to_owned(), near }
        })
    }
}

fn by_name(tokenizers: Vec<NamedTokenizer>) -> BTreeMap<String, NamedTokenizer> {
    tokenizers.into_iter().map(|tokenizer| (tokenizer.name.clone(), tokenizer)).collect()
}
