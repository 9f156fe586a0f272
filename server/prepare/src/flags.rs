//! The definition of every option: flag, environment variable, TOML key, default and help.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use forebay_settings::{ByteSize, sizes};

use crate::{engine_flag::EngineFlag, fit::FitFlags, inputs::InputFlags};

/// The smallest memory limit: batches of several partitions must fit.
const MEMORY_BYTES_FLOOR: u64 = 16 << 20;

/// Smallest and largest file. Ten thousand parts of 8 MiB, the most that S3 allows, hold the largest.
const FILE_BYTES: std::ops::RangeInclusive<u64> = 1 << 20..=64 << 30;

/// Exit codes and sizes, for --help.
const AFTER_HELP: &str = "A SIZE is a number of bytes, or a number with a unit: B, kB, MB, GB, TB (powers of 1000), KiB, MiB, GiB, \
                          TiB (powers of 1024); for example 512MB or 1.5GiB.\n\n\
                          Exit codes: 0 done or up to date, 1 failed, 2 invalid usage, configuration or SQL.";

/// Runs one SQL query over Parquet datasets, and writes the result as a new dataset: joins, windows, duplicates and
/// groups, before streaming.
#[derive(Clone, Debug, Parser)]
#[expect(clippy::struct_excessive_bools, reason = "each is a separate flag")]
#[command(name = "forebay-prepare", version, about, long_about = None, after_help = AFTER_HELP,
          subcommand_negates_reqs = true, args_conflicts_with_subcommands = true)]
pub struct Flags {
    /// What to do instead of a query.
    #[command(subcommand)]
    pub command: Option<Command>,

    /// The query: one SELECT, WITH or VALUES statement over the names of the datasets.
    #[arg(long, env = "FOREBAY_SQL", value_name = "SQL", conflicts_with = "sql_file")]
    pub(crate) sql: Option<String>,

    /// File of the query; - reads standard input.
    #[arg(long, env = "FOREBAY_SQL_FILE", value_name = "FILE")]
    pub(crate) sql_file: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) inputs: InputFlags,

    /// Folder of the result: a directory that does not exist yet, or a prefix in a bucket (s3://bucket/…, gs://…,
    /// az://container/…).
    #[expect(clippy::doc_markdown, reason = "the text of --help")]
    #[arg(long, env = "FOREBAY_OUT", value_name = "URL", required = true)]
    pub(crate) out: Option<String>,

    /// Replace the dataset at --out if it is from another query, or from other inputs.
    #[arg(long, env = "FOREBAY_REPLACE")]
    pub(crate) replace: bool,

    /// Where the query runs: embedded (in this process), or ballista://HOST:PORT (on the cluster of this scheduler, in
    /// builds with that engine).
    #[arg(long, env = "FOREBAY_ENGINE", value_name = "ENGINE", default_value_t = EngineFlag::Embedded)]
    pub(crate) engine: EngineFlag,

    /// Memory for joins, sorts, groups and encoding. Sorts, groups and joins of large tables spill to disk beyond it.
    #[arg(long, env = "FOREBAY_MEMORY_BYTES", value_name = "SIZE", default_value_t = ByteSize(4 << 30),
          value_parser = sizes(MEMORY_BYTES_FLOOR..=1 << 50))]
    pub(crate) memory_bytes: ByteSize,

    /// Directory for spilled data [default: the system's temporary directory]
    #[arg(long, env = "FOREBAY_SPILL_DIR", value_name = "DIR")]
    pub(crate) spill_dir: Option<PathBuf>,

    /// Most bytes that may be spilled at once.
    #[arg(long, env = "FOREBAY_SPILL_BYTES", value_name = "SIZE", default_value_t = ByteSize(100 << 30))]
    pub(crate) spill_bytes: ByteSize,

    /// Rows of a row group. A group ends earlier when it holds an eighth of --memory-bytes.
    #[arg(long, env = "FOREBAY_ROW_GROUP_ROWS", value_name = "COUNT", default_value_t = 131_072,
          value_parser = clap::value_parser!(u32).range(1..=16_777_216))]
    pub(crate) row_group_rows: u32,

    /// Size at which a file is complete and another one begins, at the end of a row group.
    #[arg(long, env = "FOREBAY_FILE_BYTES", value_name = "SIZE", default_value_t = ByteSize(512 << 20),
          value_parser = sizes(FILE_BYTES))]
    pub(crate) file_bytes: ByteSize,

    /// Threads of the query; 0: one per core. On a cluster, partitions of the query; 0: 16.
    #[arg(long, env = "FOREBAY_CPU_THREADS", value_name = "COUNT", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=1024))]
    pub(crate) cpu_threads: u32,

    /// Check the query against the datasets, and write nothing.
    #[arg(long, env = "FOREBAY_DRY_RUN")]
    pub(crate) dry_run: bool,

    /// Seconds between lines of progress on stderr; 0: a line that is updated, and only on a terminal.
    #[arg(long, env = "FOREBAY_PROGRESS_SECONDS", value_name = "SECONDS", default_value_t = 0)]
    pub(crate) progress_seconds: u64,

    /// Stop when standard input closes, as on SIGTERM: for a parent process that owns this run.
    #[arg(long, env = "FOREBAY_EXIT_WITH_STDIN")]
    pub(crate) exit_with_stdin: bool,

    /// Print the result as a line of JSON: out, status, rows, bytes, files, `spilled_bytes`, seconds.
    #[arg(long, env = "FOREBAY_JSON")]
    pub(crate) json: bool,
}

/// What the program does instead of running a query.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Fit a plan to a dataset without a server, or on a cluster
    Fit(FitFlags),
}

// === impl Flags ===

impl Flags {
    /// Threads of the query; 0: one per core.
    pub fn threads(&self) -> usize {
        self.cpu_threads as usize
    }

    /// Whether the program stops when standard input closes.
    pub fn exits_with_stdin(&self) -> bool {
        self.exit_with_stdin
    }

    /// Whether the result is printed as JSON.
    pub fn is_json(&self) -> bool {
        self.json
    }
}
