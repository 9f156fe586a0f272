//! The rows of an epoch that draws them, instead of reading each once: by class, or by weight.

use std::sync::Arc;

use super::{
    balanced::{Balanced, ClassRowDraws},
    weighted::{WeightRowDraws, Weighted},
};
use crate::{error::StreamError, rows::passing::Passing};

/// How often an epoch draws each row of each row group.
#[derive(Clone, Debug)]
pub(crate) enum Drawn {
    /// As many of each class, or in proportion to weights of classes.
    Classes(Arc<Balanced>),
    /// In proportion to the weight of each row.
    Weights(Arc<Weighted>),
}

/// The draws of the rows of a row group, which are read in order.
pub(crate) enum RowDraws {
    Classes(ClassRowDraws),
    Weights(WeightRowDraws),
}

impl RowDraws {
    /// Those of a row group, from its first row on.
    pub(crate) fn new(drawn: &Drawn, row_group: usize) -> Self {
        match drawn {
            Drawn::Classes(balanced) => Self::Classes(ClassRowDraws::new(balanced, row_group)),
            Drawn::Weights(weighted) => Self::Weights(WeightRowDraws::new(weighted, row_group)),
        }
    }

    /// The draws of each of the next passing rows.
    pub(crate) fn next(&mut self, passing: &Passing) -> Result<Vec<u64>, StreamError> {
        match self {
            Self::Classes(draws) => draws.next(passing),
            Self::Weights(draws) => draws.next(passing),
        }
    }
}
