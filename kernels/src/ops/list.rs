//! What ops do to lists, beside what they do to the elements.

use super::ngram::Ngram;
use super::pad::Pad;
use super::step::Step;

/// What becomes of a column's lists.
#[derive(Clone, Debug)]
pub(crate) struct ListSteps {
    /// Elements of a list that are looked at, from its first.
    pub(crate) limit: usize,
    /// Null lists are empty ones (`fill_null`).
    pub(crate) fills_null_lists: bool,
    /// Changes of the lists, each with the steps over the elements behind it.
    pub(crate) changes: Vec<(ListChange, Vec<Step>)>,
}

/// A change that looks at more than one element.
#[derive(Clone, Debug)]
pub(crate) enum ListChange {
    /// At most so many elements of each list are kept.
    First(usize),
    Ngram(Ngram),
    Pad(Pad),
}

impl Default for ListSteps {
    fn default() -> Self {
        Self { limit: usize::MAX, fills_null_lists: false, changes: Vec::new() }
    }
}
