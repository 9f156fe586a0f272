//! Fitting: the questions of each pass over the data, and writing the answers into the plan.
//!
//! An op learns from the output of the ops before it, so a chain with k learning ops takes k passes. Each pass answers
//! the first open question of every chain.

use std::collections::BTreeMap;

use forebay_kernels::{CompileError, Op};
use forebay_proto::{
    ops,
    v1::{self, fill_null::Fill as FillMessage, op::Op as OpMessage},
};

use super::{
    chain_start::{chain_start, skip_op},
    encodings,
    error::PlanError,
    group_scales,
    grouped_ops::{by, scales_mut},
    lookup::Tables,
    ops::{checked_op, kernel_op},
    path::chain_path,
};

/// Limit of the quantiles of a bucketize.
const QUANTILES_MAX: u32 = 65_536;

/// A statistic that an op needs of its input values.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// Indices of output, part and op.
    place: (usize, usize, usize),
    /// Name of the column.
    pub column: String,
    /// The ops before it, all fitted.
    pub prefix: Vec<Op>,
    /// The number of the first of these ops in the plan.
    pub first: usize,
    /// The statistic.
    pub statistic: Statistic,
    /// Path and name of the op, for errors.
    pub path: String,
}

impl Question {
    /// Returns the index of the output.
    pub fn output(&self) -> usize {
        self.place.0
    }

    /// Returns the name of the op.
    pub fn op_name(&self) -> &str {
        self.path.rsplit('.').next().unwrap_or_default()
    }

    /// Returns the path of the op's chain.
    pub fn chain_path(&self) -> &str {
        self.path.split(".ops[").next().unwrap_or_default()
    }

    /// Numbers the op of an error of its prefix as in the plan.
    pub fn renumbered(&self, mut error: CompileError) -> CompileError {
        (0..self.first).for_each(|_| skip_op(&mut error));
        error
    }
}

/// A statistic of a column's values; nulls and NaN are ignored.
#[derive(Clone, Debug, PartialEq)]
pub enum Statistic {
    /// The mean.
    Mean,
    /// The mean and the population's standard deviation.
    MeanAndDeviation,
    /// The smallest and the largest value.
    Range,
    /// The largest absolute value.
    MaxAbs,
    /// The median; the mean of the two middle values if their number is even.
    Median,
    /// The median, and the distance from the 25 % to the 75 % quantile, linear between values.
    MedianAndQuartiles,
    /// The most frequent value; the smallest of several.
    Mode,
    /// The inner edges of this many quantiles, linear between values.
    Quantiles(u32),
    /// Values by count descending, then ascending.
    Vocabulary {
        /// Values that occur less often are left out.
        min_count: u64,
        /// Limit of values; 0: no limit.
        max_size: u64,
        /// The name of the vocabulary, if several ops learn it together; otherwise empty.
        shared: String,
    },
    /// All values with their counts, ordered like a vocabulary.
    Counts,
    /// A statistic of the rows with the same values in some columns.
    OfGroups {
        /// The columns.
        by: Vec<String>,
        /// The mean and deviation, the range, or the median and quartiles.
        statistic: Box<Statistic>,
    },
    /// The smoothed means of a label for each value and fold.
    TargetMean {
        /// The column of the label.
        label: String,
        /// The number of folds, or 0.
        folds: u32,
        /// The seed of the folds.
        seed: u64,
        /// The weight of the mean of all rows.
        smoothing: f64,
    },
}

impl Statistic {
    /// Returns whether the statistic distinguishes the values of a column.
    pub fn is_counted(&self) -> bool {
        matches!(self, Self::Mode | Self::Vocabulary { .. } | Self::Counts | Self::TargetMean { .. })
    }

    /// Returns the columns that tell groups apart.
    pub fn by(&self) -> &[String] {
        if let Self::OfGroups { by, .. } = self { by } else { &[] }
    }

    /// Returns the name of a vocabulary that several ops learn together.
    pub fn shared(&self) -> Option<&str> {
        match self {
            Self::Vocabulary { shared, .. } if !shared.is_empty() => Some(shared),
            _ => None,
        }
    }

    /// Returns the statistic in words.
    pub fn words(&self) -> String {
        match self {
            Self::Mean => "mean".to_owned(),
            Self::MeanAndDeviation => "mean and deviation".to_owned(),
            Self::Range => "smallest and largest value".to_owned(),
            Self::MaxAbs => "largest absolute value".to_owned(),
            Self::Median => "median".to_owned(),
            Self::MedianAndQuartiles => "median and quartiles".to_owned(),
            Self::Mode => "most frequent value".to_owned(),
            Self::Quantiles(count) => format!("edges of {count} quantiles"),
            Self::Vocabulary { shared, .. } if shared.is_empty() => "vocabulary".to_owned(),
            Self::Vocabulary { shared, .. } => format!("vocabulary \"{shared}\""),
            Self::Counts => "count of each value".to_owned(),
            Self::OfGroups { by, statistic } => format!("{} for each {}", statistic.words(), by.join(" and ")),
            Self::TargetMean { label, .. } => format!("mean of {label} for each value"),
        }
    }
}

/// The answer to a question.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// A mean, a median, a mode or a largest absolute value.
    Number(f64),
    /// A mode of integers, or a median that a double does not hold.
    Integer(i64),
    /// An unsigned mode, or a median that a double and an `i64` do not hold.
    Unsigned(u64),
    /// A mode of decimals that a double does not hold.
    Decimal(String),
    /// A mode of text.
    Text(String),
    /// Mean and deviation, minimum and maximum, or median and interquartile range.
    Pair(f64, f64),
    /// Boundaries.
    Boundaries(Vec<f64>),
    /// Boundaries of integers that doubles do not hold.
    WholeBoundaries(Vec<i128>),
    /// A vocabulary.
    Values(v1::VocabValues),
    /// Values, and the count of each.
    Counts(v1::VocabValues, Vec<u64>),
    /// The shifts and divisors of groups.
    Scales(v1::Scales),
    /// Values, and the means of a label: rows of one per fold and one of all rows, the first for other values.
    Means(v1::VocabValues, Vec<f64>),
}

/// Returns path and name of the first op that is not fitted.
pub fn first_unlearned(plan: &v1::Plan) -> Result<Option<(String, &'static str)>, PlanError> {
    for (output_index, part_index, part) in chains(plan) {
        let path = chain_path(output_index, part_index);
        for (number, op) in part.ops.iter().enumerate() {
            if let Some((name, _)) = missing_statistic(op, &path, number)? {
                return Ok(Some((format!("{path}.ops[{number}]"), name)));
            }
        }
    }
    Ok(None)
}

/// Returns the number of passes of a fit: the largest number of learning ops in a chain.
pub fn pass_count(plan: &v1::Plan) -> Result<usize, PlanError> {
    let mut most = 0;
    for (output_index, part_index, part) in chains(plan) {
        let path = chain_path(output_index, part_index);
        let mut count = 0;
        for (number, op) in part.ops.iter().enumerate() {
            count += usize::from(missing_statistic(op, &path, number)?.is_some());
        }
        most = most.max(count);
    }
    Ok(most)
}

/// Returns the open questions of a canonical plan: the first of every chain. The ops of a shared vocabulary ask together, before the
/// others: none of them does until each is the first of its chain.
pub fn questions(plan: &v1::Plan, tables: &Tables) -> Result<Vec<Question>, PlanError> {
    let mut questions = Vec::new();
    for (output_index, part_index, part) in chains(plan) {
        let path = chain_path(output_index, part_index);
        let mut prefix = Vec::new();
        let (column, first) = chain_start(part, part.columns.first().map_or("", String::as_str));
        for (number, op) in part.ops.iter().enumerate().skip(first) {
            if let Some((name, statistic)) = missing_statistic(op, &path, number)? {
                let (place, path) = ((output_index, part_index, number), format!("{path}.ops[{number}].{name}"));
                questions.push(Question { place, column, prefix, first, statistic, path });
                break;
            }
            prefix.push(kernel_op(op, &path, number, tables)?);
        }
    }
    together(plan, questions)
}

/// Whether a canonical plan has open questions of shared vocabularies.
pub fn shares_vocabularies(plan: &v1::Plan) -> bool {
    shared_names(plan).next().is_some()
}

/// The name of the shared vocabulary of each op that has not learned it.
fn shared_names(plan: &v1::Plan) -> impl Iterator<Item = &str> {
    chains(plan).flat_map(|(_, _, part)| &part.ops).filter_map(|op| match &op.op {
        Some(OpMessage::Vocab(vocab)) if vocab.values.is_none() && !vocab.shared.is_empty() => {
            Some(vocab.shared.as_str())
        }
        _ => None,
    })
}

/// Leaves out the questions of shared vocabularies that some op cannot ask yet, and puts those of each one after another.
fn together(plan: &v1::Plan, mut questions: Vec<Question>) -> Result<Vec<Question>, PlanError> {
    let mut missing: BTreeMap<String, i64> = BTreeMap::new();
    for shared in shared_names(plan) {
        *missing.entry(shared.to_owned()).or_default() += 1;
    }
    for shared in questions.iter().filter_map(|question| question.statistic.shared()) {
        *missing.entry(shared.to_owned()).or_default() -= 1;
    }
    let waits = |question: &Question| question.statistic.shared().is_some_and(|shared| missing[shared] > 0);
    if let Some(first) = questions.first().filter(|_| questions.iter().all(waits)) {
        let shared = first.statistic.shared().unwrap_or_default();
        let reason = format!("an op that learns before another one of \"{shared}\" waits for it");
        return Err(PlanError::field(format!("{}.shared", first.path), reason));
    }
    questions.retain(|question| !waits(question));
    let name = |question: &Question| question.statistic.shared().map(str::to_owned);
    questions.sort_by_cached_key(|question| (name(question).is_none(), name(question)));
    Ok(questions)
}

/// Writes an answer into the op of its question.
pub fn learn(plan: &mut v1::Plan, question: &Question, answer: Answer) {
    let (output, part, number) = question.place;
    let op = plan.outputs.get_mut(output).and_then(|output| output.parts.get_mut(part));
    let Some(op) = op.and_then(|part| part.ops.get_mut(number)).and_then(|op| op.op.as_mut()) else { return };
    match (op, answer) {
        (op, Answer::Scales(learned)) => {
            if let Some(scales) = scales_mut(op) {
                *scales = Some(learned);
            }
        }
        (OpMessage::FillNull(fill), Answer::Number(value)) => fill.fill = Some(FillMessage::Value(value)),
        (OpMessage::FillNull(fill), Answer::Integer(value)) => fill.fill = Some(FillMessage::Integer(value)),
        (OpMessage::FillNull(fill), Answer::Unsigned(value)) => fill.fill = Some(FillMessage::Unsigned(value)),
        (OpMessage::FillNull(fill), Answer::Decimal(text)) => fill.fill = Some(FillMessage::Decimal(text)),
        (OpMessage::FillNull(fill), Answer::Text(text)) => fill.fill = Some(FillMessage::Text(text)),
        (OpMessage::Standardize(op), Answer::Pair(mean, std)) => (op.mean, op.std) = (Some(mean), Some(std)),
        (OpMessage::MinMax(op), Answer::Pair(min, max)) => (op.min, op.max) = (Some(min), Some(max)),
        (OpMessage::MaxAbs(op), Answer::Number(max_abs)) => op.max_abs = Some(max_abs),
        (OpMessage::Robust(op), Answer::Pair(center, scale)) => (op.center, op.scale) = (Some(center), Some(scale)),
        (OpMessage::Bucketize(op), Answer::Boundaries(boundaries)) => op.boundaries = boundaries,
        (OpMessage::Bucketize(op), Answer::WholeBoundaries(boundaries)) => {
            // Boundaries of an integer column all fit one of the two types.
            let integers: Result<Vec<i64>, _> = boundaries.iter().map(|edge| i64::try_from(*edge)).collect();
            match integers {
                Ok(integers) => op.integers = integers,
                Err(_) => op.unsigned = boundaries.iter().filter_map(|edge| u64::try_from(*edge).ok()).collect(),
            }
        }
        (OpMessage::Vocab(op), Answer::Values(values)) => op.values = Some(values),
        (OpMessage::CountEncode(op), Answer::Counts(values, counts)) => {
            (op.values, op.counts) = (Some(values), counts);
        }
        (OpMessage::TargetMean(op), Answer::Means(values, means)) => (op.values, op.means) = (Some(values), means),
        _ => debug_assert!(false, "the answer must match the op's question"),
    }
}

fn chains(plan: &v1::Plan) -> impl Iterator<Item = (usize, usize, &v1::Part)> {
    plan.outputs.iter().enumerate().flat_map(|(output_index, output)| {
        output.parts.iter().enumerate().map(move |(part_index, part)| (output_index, part_index, part))
    })
}

/// Returns the name of an op and the statistic that it still needs; none if it is fitted.
fn missing_statistic(op: &v1::Op, path: &str, number: usize) -> Result<Option<(&'static str, Statistic)>, PlanError> {
    let op = checked_op(op, path, number)?;
    if !ops::learns(op) {
        return Ok(None);
    }
    let path = format!("{path}.ops[{number}].{}", ops::name(op));
    group_scales::check(op, &path)?;
    let statistic = match op {
        OpMessage::FillNull(v1::FillNull { fill: Some(FillMessage::Stat(stat)) }) => match v1::Stat::try_from(*stat) {
            Ok(v1::Stat::Mean) => Statistic::Mean,
            Ok(v1::Stat::Median) => Statistic::Median,
            Ok(v1::Stat::Mode) => Statistic::Mode,
            Err(_) => return Err(PlanError::field(format!("{path}.stat"), "expected one of MEAN, MEDIAN, MODE")),
        },
        OpMessage::Standardize(_) => Statistic::MeanAndDeviation,
        OpMessage::MinMax(_) => Statistic::Range,
        OpMessage::MaxAbs(_) => Statistic::MaxAbs,
        OpMessage::Robust(_) => Statistic::MedianAndQuartiles,
        OpMessage::Bucketize(message) => {
            if !(2..=QUANTILES_MAX).contains(&message.quantiles) {
                let reason = format!("set boundaries, or quantiles between 2 and {QUANTILES_MAX} to learn them");
                return Err(PlanError::field(path, reason));
            }
            Statistic::Quantiles(message.quantiles)
        }
        OpMessage::Vocab(message) => Statistic::Vocabulary {
            min_count: message.min_count,
            max_size: message.max_size,
            shared: message.shared.clone(),
        },
        OpMessage::CountEncode(_) => Statistic::Counts,
        OpMessage::TargetMean(message) => {
            let (folds, smoothing) = encodings::folds_and_smoothing(message, &path)?;
            let (label, seed) = (message.label.clone(), message.seed);
            Statistic::TargetMean { label, folds, seed, smoothing }
        }
        _ => return Ok(None),
    };
    let by = by(op).to_vec();
    let statistic = if by.is_empty() { statistic } else { Statistic::OfGroups { by, statistic: Box::new(statistic) } };
    Ok(Some((ops::name(op), statistic)))
}
