//! The compiled form of a chain: how a column becomes tiles, the steps over them, and the shape of the result.
//!
//! The steps of a chain over lists apply to the elements; [`CompiledChain::list`] holds the changes of the lists
//! themselves.

use std::sync::Arc;

use arrow::{array::ArrayRef, datatypes::DataType, error::ArrowError};

use crate::{
    domain::{Domain, Number},
    error::OpProblem,
    ops::{
        cross::Cross,
        decimal::{self, DecimalVocab},
        fill_null::Fill,
        group_scales::ScaleIndex,
        list::ListSteps,
        lookup::LookupTable,
        step::{Encoder, Step},
    },
    vector::{cast::Rounding, collected::Collected, mapped::SharedTables},
};

/// A compiled chain.
#[derive(Clone, Debug)]
pub(crate) struct CompiledChain {
    /// The position of the column among the program's inputs.
    pub(crate) input: usize,
    /// The position of the chain's mapped dictionary in a workspace.
    pub(crate) slot: usize,
    /// The dictionaries that builders have mapped.
    pub(crate) tables: SharedTables,
    pub(crate) head: Head,
    /// The steps over the head's tiles, which hold rows or the elements of lists.
    pub(crate) steps: Vec<Step>,
    /// The changes of the lists, for columns of lists.
    pub(crate) list: Option<ListSteps>,
    /// The domain of the result.
    pub(crate) domain: Domain,
    /// The type that gives the result its meaning: the column's, until an op changes the values.
    pub(crate) meaning: DataType,
    /// The number of values per row.
    pub(crate) shape: RowShape,
    /// The number of distinct indices, if the last op produces indices.
    pub(super) cardinality: Option<u64>,
    /// How the output rounds the result.
    pub(crate) rounding: Rounding,
    /// The value of the first `fill_null` while the chain still holds a column's decimals: steps have it as a double
    /// only.
    pub(crate) filled: Option<Box<Fill>>,
    /// What the error of a null result says to do; without it, to fill nulls.
    pub(crate) null_advice: Option<Arc<str>>,
}

/// How a column becomes tiles.
#[derive(Clone, Debug)]
pub(crate) enum Head {
    /// Loads a column of numbers.
    Numbers,
    /// Turns a column of text or bytes into integers.
    Encoded(Encoder),
    /// Keeps text or bytes, so there are no tiles.
    Strings { fill: Option<String> },
    /// Looks up decimals among the keys of a table or in a vocabulary.
    Decimals(DecimalVocab),
    /// Hashes several columns together.
    Tuple(Tuple),
    /// Scales values by what was learned of the group of their row.
    Grouped(Arc<Grouped>),
    /// Looks up the column in a table.
    Joined(Arc<Joined>),
}

/// The columns that `cross` hashes together.
#[derive(Clone, Debug)]
pub(crate) struct Tuple {
    /// One chain per component, each yielding the component's hash.
    pub(crate) parts: Vec<CompiledChain>,
    pub(crate) cross: Cross,
}

/// A value, and the columns that tell the group of its row.
#[derive(Debug)]
pub(crate) struct Grouped {
    /// Yields the value.
    pub(crate) value: CompiledChain,
    /// For each column, yields the position of its value, from 1; 0 if no group has it.
    pub(crate) keys: Vec<CompiledChain>,
    pub(crate) index: ScaleIndex,
}

/// A `lookup` or an encoding, with the rest of its chain already applied to the table's rows.
#[derive(Debug)]
pub(crate) struct Joined {
    /// Yields the position of a key's row in `rows`; 0, a null, if the key is absent.
    pub(crate) front: CompiledChain,
    /// Chooses among several rows of a key.
    pub(crate) fold: Option<RowFold>,
    pub(crate) rows: JoinedRows,
    /// The same rows as stored, if they are decimals and the rest of the chain keeps their values.
    pub(crate) decimals: Option<ArrayRef>,
    /// The table, whose keys other programs share; none of an encoding.
    pub(crate) _table: Option<Arc<LookupTable>>,
}

/// The fold of a row: each key has a row of the table per fold.
#[derive(Debug)]
pub(crate) struct RowFold {
    /// Yields the fold, from 0.
    pub(crate) chain: CompiledChain,
    pub(crate) count: i64,
}

/// The result of the chain for each row of a table, after a leading null.
#[derive(Debug)]
pub(crate) enum JoinedRows {
    Numbers(Collected),
    Strings(ArrayRef),
}

/// The number of values per row, and their layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowShape {
    Single,
    List,
    /// This many values, each in its own column.
    Columns(usize),
    /// One index, laid out as this many columns.
    OneHot(usize),
    /// `n` indices, each laid out as `size` columns.
    OneHots {
        n: usize,
        size: usize,
    },
    /// A list of indices, laid out as this many columns.
    MultiHot(usize),
}

/// A chain that does not compile.
#[derive(Debug)]
pub(crate) enum ChainProblem {
    /// No op and no numeric output reads the column's type.
    Type,
    /// The op at this position (from 0) is invalid.
    Op(usize, OpProblem),
    /// The input lacks a column that an op needs.
    Column(String),
    /// Arrow cannot read a lookup table.
    Table(ArrowError),
}

impl ChainProblem {
    /// The problem of the op at this position.
    pub(super) fn at(self, position: usize) -> Self {
        if let Self::Op(_, problem) = self { Self::Op(position, problem) } else { self }
    }

    /// The problem of ops that are counted from this position.
    pub(super) fn after(self, position: usize) -> Self {
        if let Self::Op(rest, problem) = self { Self::Op(position + rest, problem) } else { self }
    }
}

impl CompiledChain {
    /// The number of output columns that the chain fills; `None` for lists.
    pub(crate) fn width(&self) -> Option<usize> {
        match self.shape {
            RowShape::Single => Some(1),
            RowShape::List => None,
            RowShape::Columns(width) | RowShape::OneHot(width) | RowShape::MultiHot(width) => Some(width),
            RowShape::OneHots { n, size } => Some(n * size),
        }
    }

    /// The chain that takes this one's results, computed for a table, by the position that the table's front yields.
    pub(super) fn of_joined(self, joined: Joined) -> Self {
        Self {
            input: joined.front.input,
            slot: joined.front.slot,
            tables: SharedTables::default(),
            head: Head::Joined(Arc::new(joined)),
            steps: Vec::new(),
            list: None,
            ..self
        }
    }

    /// Whether the chain is of several columns of its rows.
    pub(super) fn reads_other_columns(&self) -> bool {
        matches!(self.head, Head::Tuple(_) | Head::Grouped(_))
    }

    /// The kind of number that the chain yields.
    pub(crate) fn number(&self) -> Number {
        if let Domain::Number(number) = self.domain { number } else { Number::Int }
    }

    /// Whether a step turns values that are not null into nulls.
    pub(crate) fn maps_to_null(&self) -> bool {
        self.steps.iter().any(|step| step.op().maps_to_null())
    }

    /// Whether the chain holds the decimals of a column or of its lists, unchanged except for filled nulls.
    pub(crate) fn is_decimals(&self) -> bool {
        let is_changed = self.list.as_ref().is_some_and(|list| !list.changes.is_empty());
        matches!(self.head, Head::Numbers) && !is_changed && decimal::scale(&self.meaning).is_some()
    }

    /// The chain's current values in words, for error messages.
    pub(super) fn words(&self) -> &'static str {
        match self.shape {
            RowShape::List => "lists",
            RowShape::Columns(_) => "several columns",
            _ => self.domain.words(),
        }
    }

    /// Appends a step: over the head's tiles, or over the result of the last change of the lists.
    pub(super) fn push_step(&mut self, step: Step) {
        self.last_steps().push(step);
    }

    /// The steps that the next one follows.
    pub(super) fn last_steps(&mut self) -> &mut Vec<Step> {
        match self.list.as_mut().and_then(|list| list.changes.last_mut()) {
            Some((_, steps)) => steps,
            None => &mut self.steps,
        }
    }

    /// Marks the chain's values as integers computed by an op.
    pub(super) fn set_indices(&mut self) {
        self.domain = Domain::Number(Number::Int);
        self.meaning = DataType::Int64;
        self.rounding = Rounding::Fractions;
    }
}
