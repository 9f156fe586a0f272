//! Flags that select an epoch and a plan.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use forebay_client::{Balance, LengthBuckets, Remainder, StreamRequest, Window};
use forebay_proto::Message;

use super::{failure::Failure, plan_file, sources_file};

/// An epoch under a plan, without the dataset's name.
#[derive(Debug, Args)]
pub(crate) struct StreamOptions {
    /// JSON file of the sources of a mixture, instead of a dataset: [{"dataset": "a", "weight": 0.7}, ...]
    #[arg(long, env = "FOREBAY_SOURCES", value_name = "FILE")]
    sources: Option<PathBuf>,

    /// File of a plan in JSON, YAML or TOML, or of a fit's result; - reads stdin
    #[arg(long, env = "FOREBAY_PLAN", value_name = "FILE", conflicts_with = "plan_id")]
    plan: Option<PathBuf>,

    /// Id of a fitted plan on the server
    #[arg(long, env = "FOREBAY_PLAN_ID", value_name = "ID")]
    plan_id: Option<String>,

    /// Rows per batch and rank [default: 1024]
    #[arg(long, env = "FOREBAY_BATCH_SIZE", value_name = "N")]
    batch_size: Option<u64>,

    /// Ranks that share the epoch [default: 1]
    #[arg(long, env = "FOREBAY_WORLD_SIZE", value_name = "N")]
    world_size: Option<u64>,

    /// Number of the epoch
    #[arg(long, env = "FOREBAY_EPOCH", value_name = "N", default_value_t = 0)]
    epoch: u64,

    /// Seed of the shuffled order
    #[arg(long, env = "FOREBAY_SEED", value_name = "N", default_value_t = 0)]
    seed: u64,

    /// Shuffle the rows [default: file order]
    #[arg(long, env = "FOREBAY_SHUFFLE")]
    shuffle: bool,

    /// Rows permuted together within a lane [default: 16384]
    #[arg(long, env = "FOREBAY_WINDOW_ROWS", value_name = "N")]
    window_rows: Option<u64>,

    /// Lanes of a shuffled epoch [default: the smallest multiple of the world size that is at least 16]
    #[arg(long, env = "FOREBAY_LANES", value_name = "N")]
    lanes: Option<u64>,

    /// Treatment of the rows that do not fill a batch on every rank
    #[arg(long, env = "FOREBAY_REMAINDER", value_name = "RULE", default_value = "keep", ignore_case = true)]
    remainder: RemainderRule,

    /// Global position to start from: a multiple of world size times batch size or, if shuffled, of the lanes
    #[arg(long, env = "FOREBAY_START_POSITION", value_name = "ROW", default_value_t = 0)]
    start_position: u64,

    /// Digest of the snapshot to read [default: the current one]
    #[arg(long, env = "FOREBAY_SNAPSHOT", value_name = "DIGEST")]
    snapshot: Option<String>,

    #[command(flatten)]
    sample: SampleOptions,

    /// Column of which the epoch draws as many rows of every value
    #[arg(long, env = "FOREBAY_BALANCE", value_name = "COLUMN")]
    balance: Option<String>,

    /// SQL expression in proportion to which the epoch draws rows
    #[arg(long, env = "FOREBAY_SAMPLE_WEIGHT", value_name = "SQL")]
    sample_weight: Option<String>,

    /// Windows over series, as the JSON of a request, such as {"order": "ts", "length": 48}
    #[arg(long, env = "FOREBAY_WINDOW", value_name = "JSON", value_parser = object::<Window>)]
    window: Option<Window>,

    /// Buckets of rows of similar length, as the JSON of a request, such as {"column": "tokens", "boundaries": [64, 256]}
    #[arg(long, env = "FOREBAY_BUCKET_BY_LENGTH", value_name = "JSON", value_parser = object::<LengthBuckets>)]
    bucket_by_length: Option<LengthBuckets>,
}

fn object<M: Message>(text: &str) -> Result<M, String> {
    if !text.starts_with('{') {
        return Err("expected a JSON object".to_owned());
    }
    forebay_proto::decode(text.as_bytes()).map(|(message, _)| message).map_err(|error| error.to_string())
}

/// A sample of a dataset's rows.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct SampleOptions {
    /// Fraction of the dataset's rows to read, the same rows every time [default: 1, every row]
    #[arg(long, env = "FOREBAY_SAMPLE", value_name = "FRACTION", value_parser = fraction)]
    pub(super) sample: Option<f64>,

    /// Seed of the sample; a smaller sample of the same seed is part of a larger one
    #[arg(long, env = "FOREBAY_SAMPLE_SEED", value_name = "N", default_value_t = 0)]
    pub(super) sample_seed: u64,
}

fn fraction(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(sample) if sample > 0.0 && sample <= 1.0 => Ok(sample),
        _ => Err("expected a fraction of more than 0 and at most 1, such as 0.01".to_owned()),
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum RemainderRule {
    /// Every row exactly once; ranks may differ by a step
    Keep,
    /// Whole batches only, equal steps
    Drop,
    /// Equal steps, by repeating rows
    Pad,
}

impl StreamOptions {
    /// Whether a plan is given, as a file or by id.
    pub(crate) fn names_plan(&self) -> bool {
        self.plan.is_some() || self.plan_id.is_some()
    }

    /// Whether the sources of a mixture are given.
    pub(crate) fn names_sources(&self) -> bool {
        self.sources.is_some()
    }

    /// Returns the request for this epoch of a dataset, or of a mixture if `dataset` is empty; reads the plan's file.
    pub(crate) fn request(&self, dataset: &str) -> Result<StreamRequest, Failure> {
        let remainder = match self.remainder {
            RemainderRule::Keep => Remainder::Keep,
            RemainderRule::Drop => Remainder::Drop,
            RemainderRule::Pad => Remainder::Pad,
        };
        let sources = self.sources.as_deref().map(sources_file::read).transpose()?.unwrap_or_default();
        if !dataset.is_empty() && self.names_sources() {
            return Err(Failure::Usage("pass either a dataset or --sources, not both".to_owned()));
        }
        Ok(StreamRequest {
            dataset: dataset.to_owned(),
            sources,
            plan: self.plan.as_deref().map(plan_file::read).transpose()?,
            plan_id: self.plan_id.clone().unwrap_or_default(),
            batch_size: self.batch_size,
            world_size: self.world_size,
            epoch: self.epoch,
            seed: self.seed,
            shuffle: self.shuffle,
            window_rows: self.window_rows,
            lanes: self.lanes.unwrap_or(0),
            remainder: remainder.into(),
            start_position: self.start_position,
            snapshot: self.snapshot.clone().unwrap_or_default(),
            sample: self.sample.sample,
            sample_seed: self.sample.sample_seed,
            balance: self.balance.clone().map(|by| Balance { by, weights: Vec::new() }),
            sample_weight: self.sample_weight.clone().unwrap_or_default(),
            window: self.window.clone(),
            bucket_by_length: self.bucket_by_length.clone(),
            ..StreamRequest::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct TestCommand {
        #[command(flatten)]
        stream: StreamOptions,
    }

    #[test]
    fn options_set_their_fields_and_omitted_ones_are_unset() {
        let arguments = "test --plan-id 7a --batch-size 8 --world-size 4 --epoch 3 --seed 7 --shuffle --window-rows 64 \
                         --lanes 32 --remainder PAD --start-position 96 --snapshot 5f --sample 0.01 --sample-seed 9 --balance y --sample-weight w --window {\"order\":\"ts\",\"length\":4} --bucket-by-length {\"column\":\"t\",\"boundaries\":[4]}";
        let options = TestCommand::parse_from(arguments.split(' ').filter(|word| !word.is_empty()));
        let expected = StreamRequest {
            dataset: "flights".into(),
            plan_id: "7a".into(),
            batch_size: Some(8),
            world_size: Some(4),
            epoch: 3,
            seed: 7,
            shuffle: true,
            window_rows: Some(64),
            lanes: 32,
            remainder: Remainder::Pad.into(),
            start_position: 96,
            snapshot: "5f".into(),
            sample: Some(0.01),
            sample_seed: 9,
            balance: Some(Balance { by: "y".into(), weights: Vec::new() }),
            sample_weight: "w".into(),
            bucket_by_length: Some(LengthBuckets { column: "t".into(), boundaries: vec![4], max_tokens: 0 }),
            window: Some(Window { order: "ts".into(), length: 4, ..Window::default() }),
            ..Default::default()
        };
        assert_eq!(options.stream.request("flights").unwrap(), expected);
        let options = TestCommand::parse_from(["test"]);
        assert_eq!(options.stream.request("a").unwrap(), StreamRequest { dataset: "a".into(), ..Default::default() });
    }

    #[test]
    fn samples_are_fractions_above_zero_and_at_most_one() {
        assert_eq!((fraction("1"), fraction("1e-6")), (Ok(1.0), Ok(1e-6)));
        for text in ["0", "-0.5", "1.01", "50", "nan", "1%", ""] {
            assert!(fraction(text).unwrap_err().contains("at most 1"), "{text}");
        }
    }
}
