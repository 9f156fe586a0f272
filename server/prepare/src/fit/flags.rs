//! The options of `forebay-prepare fit`.

use std::path::PathBuf;

use clap::Args;
use forebay_settings::{ByteSize, sizes};

use crate::{engine_flag::EngineFlag, inputs::InputFlags};

/// The smallest memory limit.
const MEMORY_BYTES_FLOOR: u64 = 64 << 20;

/// Fits a plan to a dataset.
#[derive(Args, Clone, Debug)]
pub struct FitFlags {
    /// Name of the dataset to learn from, one of those of --dataset
    #[arg(value_name = "DATASET")]
    pub(super) source: String,

    /// JSON file of the plan; - reads standard input.
    #[arg(long, env = "FOREBAY_PLAN", value_name = "FILE")]
    pub(super) plan: PathBuf,

    #[command(flatten)]
    pub(super) inputs: InputFlags,

    /// File of the fitted plan [default: standard output]
    #[arg(long, env = "FOREBAY_OUT", value_name = "FILE")]
    pub(super) out: Option<PathBuf>,

    /// Where the rows are read: embedded (in this process), or ballista://HOST:PORT (on the cluster of this scheduler, in
    /// builds with that engine).
    #[arg(long, env = "FOREBAY_ENGINE", value_name = "ENGINE", default_value_t = EngineFlag::Embedded)]
    pub(super) engine: EngineFlag,

    /// Fraction of the dataset's rows to learn from, the same rows every time [default: 1, every row]
    #[arg(long, env = "FOREBAY_SAMPLE", value_name = "FRACTION")]
    pub(super) sample: Option<f64>,

    /// Seed of the sample; a smaller sample of the same seed is part of a larger one.
    #[arg(long, env = "FOREBAY_SAMPLE_SEED", value_name = "N", default_value_t = 0)]
    pub(super) sample_seed: u64,

    /// Memory for rows and aggregates, half of it for either. Vocabularies spill to disk beyond it.
    #[arg(long, env = "FOREBAY_MEMORY_BYTES", value_name = "SIZE", default_value_t = ByteSize(4 << 30),
          value_parser = sizes(MEMORY_BYTES_FLOOR..=1 << 50))]
    pub(super) memory_bytes: ByteSize,

    /// Directory for spilled data [default: the system's temporary directory]
    #[arg(long, env = "FOREBAY_SPILL_DIR", value_name = "DIR")]
    pub(super) spill_dir: Option<PathBuf>,

    /// Threads; 0: one per core. On a cluster, partitions of the rows; 0: 16.
    #[arg(long, env = "FOREBAY_CPU_THREADS", value_name = "COUNT", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=1024))]
    pub(super) cpu_threads: u32,
}

impl FitFlags {
    /// Threads; 0: one per core.
    pub fn threads(&self) -> usize {
        self.cpu_threads as usize
    }

    /// Whether the result is written to a file.
    pub fn writes_file(&self) -> bool {
        self.out.is_some()
    }
}
