//! The definition of every option: flag, environment variable, TOML key, default and help.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use forebay_catalog::FILES_MAX;
use forebay_expr::OPERATORS_MAX;
use forebay_plan::{OPS_MAX, PLAN_COLUMNS_MAX, PLAN_OPERATORS_MAX};
use forebay_runtime::{log::LogFormat, state::Retention};
use forebay_settings::{ByteSize, sizes};

/// Lengths in Arrow and gRPC allow a little less than 2 GiB in every client.
const BATCH_BYTES_CEILING: u64 = 2_000_000_000;

/// Largest gRPC message that a client may send.
const MESSAGE_BYTES_CEILING: u64 = 2 * forebay_proto::JSON_BYTES_MAX as u64;

/// The forms of a size.
const SIZES: &str = "A SIZE is a number of bytes, or a number with a unit: B, kB, MB, GB, TB (powers of 1000), KiB, MiB, GiB, \
                     TiB (powers of 1024); for example 512MB or 1.5GiB.";

/// What the program does other than serving.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Verb {
    /// Validates the configuration and reads the datasets, without serving: exit code 0 or 2.
    Check,
    /// Lists the splits of the datasets by the names of their files, a line of JSON for each dataset, without serving.
    Splits,
}

/// Forebay's server: streams Parquet datasets to training loops over Arrow Flight.
#[derive(Clone, Debug, Parser)]
#[expect(clippy::struct_excessive_bools, reason = "each is a separate flag")]
#[command(name = "forebay-server", version, about, long_about = None, after_help = SIZES)]
pub struct Flags {
    /// What to do instead of serving.
    #[arg(value_name = "COMMAND")]
    pub command: Option<Verb>,

    /// A dataset: a directory, a file or a glob of Parquet (optionally as file://), the same in a bucket
    /// (s3://bucket/…, gs://…, az://container/…), the same in a dataset of the Hugging Face Hub
    /// (hf://datasets/OWNER/NAME@REVISION/…), one file on a web server (https://…/a.parquet), or @FILE, a text file that lists
    /// paths or URLs of files. Folders named key=value are columns. After delta+, the folder of a Delta table
    /// (delta+s3://bucket/table), followed by @version=N to read version N instead of the newest; after iceberg+, the
    /// folder or a metadata file of an Iceberg table (iceberg+s3://bucket/table), followed by @snapshot=ID to read that
    /// snapshot instead of the current one. Files of a table are read only from its folder and from those that @root=URL,
    /// once or more often after the URL, names in the same store. A table may be looked up in a catalog instead:
    /// iceberg+rest://HOST/NAMESPACE.TABLE (with ?warehouse=NAME), iceberg+glue:// or delta+glue://DATABASE/TABLE,
    /// delta+unity://HOST/CATALOG.SCHEMA.TABLE; @root=URL then names the folder in which the catalog may place it. Credentials, region and endpoint of a store are read from the server's
    /// environment under their usual names, such as AWS_ACCESS_KEY_ID and AWS_ENDPOINT_URL. May be repeated; in the
    /// environment, one per line.
    #[expect(clippy::doc_markdown, reason = "the text of --help")]
    #[arg(long, env = "FOREBAY_DATASET", value_name = "NAME=URL", required = true, value_delimiter = '\n')]
    pub(super) dataset: Vec<String>,

    /// Unit in which a dataset's INT96 timestamps are read: us (the default) holds every date from year 1 to 9999 and
    /// drops fractions of a microsecond; ns keeps them, and rejects row groups with dates outside 1677 to 2262. May be
    /// repeated.
    #[arg(long, env = "FOREBAY_INT96_UNIT", value_name = "NAME=UNIT", value_delimiter = '\n')]
    pub(super) int96_unit: Vec<String>,

    /// File whose schema a dataset has: a Parquet file on this machine, of which only the schema is read. Columns that it
    /// lacks are not served, and those that files of the dataset lack are null. Without it, the schema is the union of
    /// the files' schemas. May be repeated; in the environment, one per line.
    #[arg(long, env = "FOREBAY_DATASET_SCHEMA", value_name = "NAME=FILE", value_delimiter = '\n')]
    pub(super) dataset_schema: Vec<String>,

    /// A dataset that is the result of SQL over others, such as 'late=SELECT * FROM flights WHERE delay > 60'.
    /// forebay-prepare, which must be installed, runs it at the first use and writes the result under --state, once for
    /// each state of the files that it reads. May be repeated; in the environment, each but the last ends with a
    /// semicolon at the end of a line.
    #[arg(long, env = "FOREBAY_VIEW", value_name = "NAME=SQL")]
    pub(super) view: Vec<String>,

    /// A Python function that plans may call (op udf): its name, and the Unix socket of the processes that serve it,
    /// such as words=unix:/run/words.sock (`python -m forebay.udf module:words --listen unix:/run/words.sock`). May be
    /// repeated.
    #[arg(long, env = "FOREBAY_UDF", value_name = "NAME=unix:PATH", value_delimiter = '\n')]
    pub(super) udf: Vec<String>,

    /// Seconds after which a call of such a function fails, with its stream. A call has at most 8,192 rows.
    #[arg(long, env = "FOREBAY_UDF_TIMEOUT_SECONDS", value_name = "SECONDS", default_value_t = 60,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(super) udf_timeout_seconds: u64,

    /// A tokenizer that plans may name (op tokenize): its name, and a tokenizer.json of Hugging Face, such as
    /// gpt2=/etc/forebay/gpt2.json. The file is read at the start and at a reload. May be repeated.
    #[arg(long, env = "FOREBAY_TOKENIZER", value_name = "NAME=FILE", value_delimiter = '\n')]
    pub(super) tokenizer: Vec<String>,

    /// Address of the Flight service: HOST:PORT (port 0 picks a free one) or unix:PATH. May be repeated.
    #[arg(
        long,
        env = "FOREBAY_LISTEN",
        value_name = "ADDRESS",
        default_value = "127.0.0.1:8815",
        value_delimiter = '\n'
    )]
    pub(super) listen: Vec<String>,

    /// URL at which clients reach a replica of this service; list this server too. Endpoints name all of them in this
    /// order, so that a client whose stream breaks can resume at another replica. May be repeated.
    #[arg(long, env = "FOREBAY_ADVERTISE", value_name = "URL", value_delimiter = '\n')]
    pub(super) advertise: Vec<String>,

    /// Address of the status page, /metrics, /healthz and /readyz over HTTP; off: disable them, and record no metrics.
    #[arg(long, env = "FOREBAY_METRICS_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:9815")]
    pub(super) metrics_listen: String,

    /// State that survives a restart and that replicas may share: fitted plans, results of fits, row counts. A directory,
    /// or a prefix in an object store that supports conditional writes, with the settings of datasets: s3://bucket/prefix,
    /// gs://…, az://container/… [default: forebay in the user's state directory, ~/.local/state]
    #[expect(clippy::doc_markdown, reason = "the text of --help")]
    #[arg(long, env = "FOREBAY_STATE", value_name = "DIR|URL")]
    pub(super) state: Option<String>,

    /// Most bytes of fitted plans under --state. A fit beyond it is refused, unless plans that were unused for
    /// --state-unused-days make room.
    #[arg(long, env = "FOREBAY_STATE_PLAN_BYTES", value_name = "SIZE", default_value_t = ByteSize(Retention::DEFAULT.plan_bytes),
          value_parser = sizes(0..=1 << 50))]
    pub(super) state_plan_bytes: ByteSize,

    /// Most bytes of large plans that clients send in requests and that are kept under --state so that tickets are short.
    /// Those unused for an hour make room; tickets carry a plan that finds none.
    #[arg(long, env = "FOREBAY_STATE_INLINE_BYTES", value_name = "SIZE",
          default_value_t = ByteSize(Retention::DEFAULT.inline_plan_bytes), value_parser = sizes(0..=1 << 50))]
    pub(super) state_inline_bytes: ByteSize,

    /// Most bytes of results under --state: rows that pass filters, groups, descriptions and the ids of fits, a quarter for
    /// each. Those used longest ago go first, and are computed again when they are needed.
    #[arg(long, env = "FOREBAY_STATE_RESULT_BYTES", value_name = "SIZE", default_value_t = ByteSize(Retention::DEFAULT.result_bytes),
          value_parser = sizes(0..=1 << 50))]
    pub(super) state_result_bytes: ByteSize,

    /// Days after which results and plans of requests under --state are removed if they were not used. Fitted plans stay
    /// until others need their room.
    #[arg(long, env = "FOREBAY_STATE_UNUSED_DAYS", value_name = "DAYS", default_value_t = 30,
          value_parser = clap::value_parser!(u64).range(1..=36_500))]
    pub(super) state_unused_days: u64,

    /// Directory on this machine for data that fits and views spill, and for results of views [default: --state, or
    /// where that is a URL, forebay in the user's state directory]
    #[arg(long, env = "FOREBAY_SCRATCH_DIR", value_name = "DIR")]
    pub(super) scratch_dir: Option<PathBuf>,

    /// Seconds that running streams get after SIGTERM before they end.
    #[arg(long, env = "FOREBAY_DRAIN_SECONDS", value_name = "SECONDS", default_value_t = 30)]
    pub(super) drain_seconds: u64,

    /// Seconds after which a connection is closed gracefully (GOAWAY), so that the client opens a new one, possibly to
    /// another replica; 0: never.
    #[arg(long, env = "FOREBAY_CONNECTION_AGE_SECONDS", value_name = "SECONDS", default_value_t = 0)]
    pub(super) connection_age_seconds: u64,

    /// Seconds that streams on such a connection get before it is closed.
    #[arg(long, env = "FOREBAY_CONNECTION_GRACE_SECONDS", value_name = "SECONDS", default_value_t = 300)]
    pub(super) connection_grace_seconds: u64,

    /// Idle seconds before a keepalive ping. A client that does not answer within 20 seconds is disconnected, and
    /// everything it holds is released; 0: never.
    #[arg(long, env = "FOREBAY_KEEPALIVE_SECONDS", value_name = "SECONDS", default_value_t = 60)]
    pub(super) keepalive_seconds: u64,

    /// Memory that all streams, fits and descriptions together may hold, such as 8GiB; 0: half of the memory of the
    /// machine or, if that is less, of the container or control group.
    #[arg(long, env = "FOREBAY_MEMORY_LIMIT_BYTES", value_name = "SIZE", default_value_t = ByteSize(0))]
    pub(super) memory_limit_bytes: ByteSize,

    /// Memory for finished rows, in addition to --memory-limit-bytes: other epochs, ranks, seeds and jobs of a plan copy
    /// rows of a row group that one of them computed; 0: no cache.
    #[arg(long, env = "FOREBAY_CACHE_BYTES", value_name = "SIZE", default_value_t = ByteSize(0),
          value_parser = sizes(0..=1 << 50))]
    pub(super) cache_bytes: ByteSize,

    /// Directory for finished rows, in addition to --cache-bytes: row groups that do not fit in memory, and all rows
    /// that a later server should find. Each server needs its own; rows of a damaged file are computed again.
    #[arg(long, env = "FOREBAY_CACHE_DIR", value_name = "DIR")]
    pub(super) cache_dir: Option<PathBuf>,

    /// Most bytes of the files in --cache-dir.
    #[arg(long, env = "FOREBAY_CACHE_DIR_BYTES", value_name = "SIZE", default_value_t = ByteSize(32 << 30),
          value_parser = sizes(1 << 20..=1 << 60))]
    pub(super) cache_dir_bytes: ByteSize,

    /// Part of --memory-limit-bytes that the aggregates of fits may hold before they spill to disk; half of it at most.
    /// Descriptions share it.
    #[arg(long, env = "FOREBAY_FIT_MEMORY_BYTES", value_name = "SIZE", default_value_t = ByteSize(1 << 30))]
    pub(super) fit_memory_bytes: ByteSize,

    /// Memory that the SQL of a view may use while it runs, reserved from --memory-limit-bytes; 0: a quarter of it.
    #[arg(long, env = "FOREBAY_VIEW_MEMORY_BYTES", value_name = "SIZE", default_value_t = ByteSize(0),
          value_parser = sizes(0..=1 << 50))]
    pub(super) view_memory_bytes: ByteSize,

    /// Largest batch.
    #[arg(long, env = "FOREBAY_BATCH_BYTES_MAX", value_name = "SIZE", default_value_t = ByteSize(1 << 30),
          value_parser = sizes(1..=BATCH_BYTES_CEILING))]
    pub(super) batch_bytes_max: ByteSize,

    /// Most groups of a request with group_by, each of which is an endpoint. A request for a column with more values is
    /// refused, unless it hashes them into buckets (group_buckets).
    #[expect(clippy::doc_markdown, reason = "the text of --help")]
    #[arg(long, env = "FOREBAY_GROUPS_MAX", value_name = "COUNT", default_value_t = 10_000,
          value_parser = clap::value_parser!(u32).range(1..=250_000))]
    pub(super) groups_max: u32,

    /// Threads that decode and compute; 0: one per core.
    #[arg(long, env = "FOREBAY_CPU_THREADS", value_name = "COUNT", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=1024))]
    pub(super) cpu_threads: u32,

    /// Device that computes features: cpu, or cuda:N for GPU number N. If the GPU cannot be used, fails, or does not run
    /// an output, the server logs it and uses the CPU.
    #[arg(long, env = "FOREBAY_DEVICE", value_name = "DEVICE", default_value = "cpu")]
    pub(super) device: String,

    /// Level of the log on stderr: error, warn, info, debug (the server's own events) or trace (those of libraries too),
    /// or a filter in tracing's syntax, such as info,forebay::access=off.
    #[expect(clippy::doc_markdown, reason = "the text of --help")]
    #[arg(long, env = "FOREBAY_LOG", value_name = "FILTER", default_value = "info")]
    pub(super) log: String,

    /// Format of the log; auto: human-readable on a terminal, JSON otherwise.
    #[arg(long, env = "FOREBAY_LOG_FORMAT", value_name = "FORMAT", default_value = "auto")]
    pub(super) log_format: LogFormat,

    /// OpenTelemetry collector that receives a trace of every call over OTLP/gRPC, such as http://127.0.0.1:4317. A
    /// client's traceparent is continued. OpenTelemetry's own variables set service name, sampling and headers.
    #[expect(clippy::doc_markdown, reason = "the text of --help")]
    #[arg(long, env = "FOREBAY_OTLP_ENDPOINT", value_name = "URL")]
    pub(super) otlp_endpoint: Option<String>,

    /// Enable gRPC server reflection, with which tools such as grpcurl list the calls.
    #[arg(long, env = "FOREBAY_REFLECTION")]
    pub(super) reflection: bool,

    /// Certificate chain of the server, in PEM; TCP addresses of --listen then accept only TLS. Re-read when it
    /// changes, as are all files of keys and principals.
    #[arg(long, env = "FOREBAY_TLS_CERT", value_name = "FILE", requires = "tls_key")]
    pub(super) tls_cert: Option<PathBuf>,

    /// Private key of --tls-cert, in PEM.
    #[arg(long, env = "FOREBAY_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    pub(super) tls_key: Option<PathBuf>,

    /// Certificate authorities in PEM; clients must present a certificate issued by one of them (mutual TLS).
    #[arg(long, env = "FOREBAY_TLS_CLIENT_CA", value_name = "FILE", requires = "tls_cert")]
    pub(super) tls_client_ca: Option<PathBuf>,

    /// Principals, in TOML: a table for each, such as [trainer], with token_sha256 (of its bearer tokens) or
    /// certificate (names of its client certificates), datasets (names, with * as a wildcard), and optionally
    /// streams_max and calls_per_second.
    #[expect(clippy::doc_markdown, reason = "the text of --help")]
    #[arg(long, env = "FOREBAY_PRINCIPALS", value_name = "FILE")]
    pub(super) principals: Option<PathBuf>,

    /// Secret that signs tickets when callers are authenticated, at least 32 bytes; replicas share it [default: created
    /// at first use under --state]
    #[arg(long, env = "FOREBAY_TICKET_KEY", value_name = "FILE")]
    pub(super) ticket_key: Option<PathBuf>,

    /// Seconds for which a signed ticket is valid.
    #[arg(long, env = "FOREBAY_TICKET_SECONDS", value_name = "SECONDS", default_value_t = 3600)]
    pub(super) ticket_seconds: u64,

    /// Streams that may be open at once; further ones are refused immediately, with the time after which to retry.
    #[arg(long, env = "FOREBAY_STREAMS_MAX", value_name = "COUNT", default_value_t = 4096,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) streams_max: u32,

    /// The same for the streams of one client: a principal, or an address if callers are not authenticated.
    #[arg(long, env = "FOREBAY_STREAMS_PER_CLIENT", value_name = "COUNT", default_value_t = 4096,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) streams_per_client: u32,

    /// Seconds after which a stream whose client takes no batch releases its memory; it continues when the client reads
    /// again. 0: only when another client needs the memory.
    #[arg(long, env = "FOREBAY_STREAM_PAUSE_SECONDS", value_name = "SECONDS", default_value_t = 20)]
    pub(super) stream_pause_seconds: u64,

    /// Seconds after which a stream whose client takes no batch ends, with the position to resume from.
    #[arg(long, env = "FOREBAY_STREAM_IDLE_SECONDS", value_name = "SECONDS", default_value_t = 21_600)]
    pub(super) stream_idle_seconds: u64,

    /// Connections that may be open at once; calls on further ones are refused, with the time after which to retry.
    #[arg(long, env = "FOREBAY_CONNECTIONS_MAX", value_name = "COUNT", default_value_t = 16_384,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) connections_max: u32,

    /// The same for the connections from one address, or from one /64 network of IPv6; 0: seven eighths of
    /// --connections-max, so that no client can fill all places, and a proxy can use most of them.
    #[arg(long, env = "FOREBAY_CONNECTIONS_PER_ADDRESS", value_name = "COUNT", default_value_t = 0)]
    pub(super) connections_per_address: u32,

    /// Seconds in which a client must complete the TLS handshake and the HTTP/2 preface, and in which the request of
    /// each of its calls must arrive. Longer messages of an exchange have a second more for each MiB. Where calls need
    /// credentials, a connection without an authenticated call in this time is closed. A client that reads nothing of an
    /// answer for as long gets no more of it.
    #[arg(long, env = "FOREBAY_HANDSHAKE_SECONDS", value_name = "SECONDS", default_value_t = 10,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(super) handshake_seconds: u64,

    /// Largest gRPC message that is accepted, such as a batch of an exchange.
    #[arg(long, env = "FOREBAY_MESSAGE_BYTES_MAX", value_name = "SIZE", default_value_t = ByteSize(MESSAGE_BYTES_CEILING),
          value_parser = sizes(1024..=MESSAGE_BYTES_CEILING))]
    pub(super) message_bytes_max: ByteSize,

    /// Largest request including its plan.
    #[arg(long, env = "FOREBAY_PLAN_BYTES_MAX", value_name = "SIZE", default_value_t = ByteSize(forebay_proto::JSON_BYTES_MAX as u64),
          value_parser = sizes(1..=forebay_proto::JSON_BYTES_MAX as u64))]
    pub(super) plan_bytes_max: ByteSize,

    /// Most columns of a plan's outputs, before ops widen them.
    #[arg(long, env = "FOREBAY_PLAN_COLUMNS_MAX", value_name = "COUNT", default_value_t = PLAN_COLUMNS_MAX as u64,
          value_parser = clap::value_parser!(u64).range(1..=PLAN_COLUMNS_MAX as u64))]
    pub(super) plan_columns_max: u64,

    /// Most ops in the chain of a part of a plan.
    #[arg(long, env = "FOREBAY_PLAN_OPS_MAX", value_name = "COUNT", default_value_t = OPS_MAX as u64,
          value_parser = clap::value_parser!(u64).range(1..=OPS_MAX as u64))]
    pub(super) plan_ops_max: u64,

    /// Most operators in an expression, which bounds its depth.
    #[arg(long, env = "FOREBAY_EXPRESSION_OPERATORS_MAX", value_name = "COUNT", default_value_t = OPERATORS_MAX as u64,
          value_parser = clap::value_parser!(u64).range(1..=OPERATORS_MAX as u64))]
    pub(super) expression_operators_max: u64,

    /// Most operators in all expressions of a request; each expression counts as one more.
    #[arg(long, env = "FOREBAY_PLAN_OPERATORS_MAX", value_name = "COUNT", default_value_t = PLAN_OPERATORS_MAX as u64,
          value_parser = clap::value_parser!(u64).range(1..=PLAN_OPERATORS_MAX as u64))]
    pub(super) plan_operators_max: u64,

    /// Concurrent requests to each object store or web server; further ones wait.
    #[arg(long, env = "FOREBAY_STORAGE_REQUESTS_MAX", value_name = "COUNT", default_value_t = 256,
          value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(super) storage_requests_max: u32,

    /// Most files of a dataset. Listing stops at the next one, and the dataset is refused.
    #[arg(long, env = "FOREBAY_DATASET_FILES_MAX", value_name = "COUNT", default_value_t = FILES_MAX as u32,
          value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub(super) dataset_files_max: u32,

    /// Allow --metrics-listen on an address that other machines can reach: any client that reaches it can read names of
    /// datasets and how much they are used, without encryption.
    #[arg(long, env = "FOREBAY_METRICS_PUBLIC")]
    pub(super) metrics_public: bool,

    /// Allow --listen and --metrics-listen on addresses that other machines can reach without TLS (--tls-cert) and
    /// without credentials (--principals or --tls-client-ca): any client that reaches the port can read every dataset,
    /// and anyone on the network can intercept it.
    #[arg(long, env = "FOREBAY_INSECURE_PUBLIC")]
    pub(super) insecure_public: bool,

    /// Exit when standard input closes: for a parent process that owns this server.
    #[arg(long, env = "FOREBAY_EXIT_WITH_STDIN")]
    pub(super) exit_with_stdin: bool,
}
