//! Changes of lists, in addition to the steps over their elements.

use super::{
    ngram::Ngram,
    pad::{Pad, Side},
    step::Step,
};

/// The changes of a column's lists.
#[derive(Clone, Debug)]
pub(crate) struct ListSteps {
    /// The number of elements that are read of each list, which is cut at a side.
    pub(crate) limit: (usize, Side),
    /// The number of elements that every list has (`bytes`).
    pub(crate) exact: Option<usize>,
    /// Whether null lists become empty lists (`fill_null`).
    pub(crate) fills_null_lists: bool,
    /// Changes of the lists, each with the steps over the elements after it.
    pub(crate) changes: Vec<(ListChange, Vec<Step>)>,
}

/// A change that depends on more than one element.
#[derive(Clone, Debug)]
pub(crate) enum ListChange {
    /// Keeps at most this many elements of each list, which is cut at a side.
    Cut(usize, Side),
    Ngram(Ngram),
    Pad(Pad),
}

impl Default for ListSteps {
    fn default() -> Self {
        Self { limit: (usize::MAX, Side::Right), exact: None, fills_null_lists: false, changes: Vec::new() }
    }
}
