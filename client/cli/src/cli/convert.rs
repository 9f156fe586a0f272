//! `forebay convert SRC… --out DIR`: writes Parquet that streams well from files of other formats.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use clap::Args;
use forebay_convert::{ConvertError, Format, Options, Outcome, Progress, Start, convert};
use forebay_order::row_groups::ROW_GROUP_ROWS_MAX;
use forebay_settings::{ByteSize, sizes};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

use super::{cell_text::plain, failure::Failure, message, output, programs};

/// Convert files of other formats, and badly shaped Parquet, to Parquet that streams well, for --dataset of
/// forebay-server. Rows keep their order; a value that does not fit its type is an error; the result appears as a whole
#[derive(Debug, Args)]
pub(crate) struct Convert {
    /// Files and folders, all of one format, in the order of their rows. Files of a folder are sorted by path; gzip and
    /// zstd are decompressed where the format has no codecs
    #[arg(value_name = "SRC", required = true)]
    sources: Vec<PathBuf>,

    /// Folder of the result, which must not exist
    #[arg(long, env = "FOREBAY_OUT", value_name = "DIR")]
    out: PathBuf,

    /// Replace the result of an earlier conversion; other files are never replaced
    #[arg(long, env = "FOREBAY_FORCE")]
    force: bool,

    /// Format of the files: csv, jsonl, arrow, parquet, avro, orc, webdataset, tfrecord, mds or images
    /// [default: by name and first bytes]
    #[arg(long, env = "FOREBAY_FROM", value_name = "FORMAT", value_parser = format)]
    from: Option<Format>,

    /// Type of a column in place of the inferred one, named as in pyarrow: int64, decimal128(10, 2), timestamp[us],
    /// string, binary. May be repeated; in the environment, one per line
    #[arg(long = "type", env = "FOREBAY_TYPE", value_name = "COLUMN=TYPE", value_delimiter = '\n')]
    types: Vec<String>,

    /// First rows from which types are inferred, over all files
    #[arg(long, env = "FOREBAY_INFER_ROWS", value_name = "COUNT", default_value_t = 10_000,
          value_parser = clap::value_parser!(u32).range(1..))]
    infer_rows: u32,

    /// Text of CSV that is null; may be repeated, and replaces the default, which is the empty text
    #[arg(long = "null", env = "FOREBAY_NULL", value_name = "TEXT", value_delimiter = '\n')]
    nulls: Option<Vec<String>>,

    /// Character between the fields of CSV, such as ; or \t [default: a comma; a tab in .tsv files]
    #[arg(long, env = "FOREBAY_DELIMITER", value_name = "CHAR", value_parser = character)]
    delimiter: Option<u8>,

    /// Character around the fields of CSV
    #[arg(long, env = "FOREBAY_QUOTE", value_name = "CHAR", value_parser = character, default_value = "\"")]
    quote: u8,

    /// CSV without a line of names: columns are `column_0`, `column_1` and so on
    #[arg(long, env = "FOREBAY_NO_HEADER")]
    no_header: bool,

    /// Python with pyarrow, which reads ORC [default: python3 next to this program, or else of the path]
    #[arg(long, env = "FOREBAY_PYTHON", value_name = "PROGRAM")]
    python: Option<PathBuf>,

    /// Rows of a row group. A group ends earlier at 16 MiB as stored
    #[arg(long, env = "FOREBAY_ROW_GROUP_ROWS", value_name = "COUNT", default_value_t = ROW_GROUP_ROWS_MAX as u32,
          value_parser = clap::value_parser!(u32).range(1..=16_777_216))]
    row_group_rows: u32,

    /// Size at which a file is complete and another one begins, at the end of a row group
    #[arg(long, env = "FOREBAY_FILE_BYTES", value_name = "SIZE", default_value_t = ByteSize(512 << 20),
          value_parser = sizes(1..=64 << 30))]
    file_bytes: ByteSize,
}

/// Columns that are shown before a conversion starts.
const SHOWN_COLUMNS_MAX: usize = 100;

/// What --json prints.
#[derive(Serialize)]
struct ConvertReport<'a> {
    out: &'a Path,
    rows: u64,
    row_groups: u64,
    bytes: u64,
    files: u64,
    sources: u64,
    format: &'static str,
    seconds: f64,
    dataset: String,
}

// === impl Convert ===

impl Convert {
    pub(crate) async fn run(self, json: bool) -> Result<(), Failure> {
        let options = Arc::new(self.options()?);
        let start = Instant::now();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        // Drawn on stderr if that is a terminal.
        let bar = ProgressBar::no_length().with_style(style());
        let drawn = bar.clone();
        let mut converting = tokio::task::spawn_blocking(move || {
            let announce = |start: &Start| {
                if !json {
                    message::say(&announcement(start));
                }
            };
            convert(&options, &stopped, announce, |progress| draw(&drawn, progress))
        });
        let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::Signals)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(Failure::Signals)?;
        let outcome = loop {
            tokio::select! {
                outcome = &mut converting => break outcome,
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            // The hidden folder is removed before the program ends.
            stop.store(true, Ordering::Relaxed);
        };
        bar.finish_and_clear();
        let outcome = outcome.map_err(|ended| ConvertError::Reader(ended.to_string()))??;
        let report = ConvertReport::new(&outcome, start.elapsed().as_secs_f64());
        output::write(&if json { report.json()? } else { report.text() })
    }

    fn options(self) -> Result<Options, Failure> {
        let mut options = Options::new(self.sources, self.out);
        options.format = self.from;
        options.replace = self.force;
        options.infer_rows = self.infer_rows as usize;
        options.nulls = self.nulls.unwrap_or(options.nulls);
        options.delimiter = self.delimiter;
        options.quote = self.quote;
        options.has_header = !self.no_header;
        options.python = self.python.unwrap_or_else(programs::python);
        options.row_group_rows = self.row_group_rows as usize;
        options.file_bytes = self.file_bytes.0;
        for column in &self.types {
            options.add_type(column)?;
        }
        Ok(options)
    }
}

// === impl ConvertReport ===

impl<'a> ConvertReport<'a> {
    fn new(outcome: &'a Outcome, seconds: f64) -> Self {
        let Outcome { out, format, sources, rows, row_groups, bytes, files } = outcome;
        let dataset = format!("{}={}", dataset_name(out), out.display());
        let (rows, row_groups, bytes, files, sources) = (*rows, *row_groups, *bytes, *files, *sources);
        Self { out, rows, row_groups, bytes, files, sources, format: format.name(), seconds, dataset }
    }

    fn json(&self) -> Result<String, Failure> {
        serde_json::to_string(self).map(|line| line + "\n").map_err(Failure::Json)
    }

    fn text(&self) -> String {
        let rows = output::count(self.rows);
        let (files, row_groups) = (noun(self.files, "file"), noun(self.row_groups, "row group"));
        let (size, time) = (output::decimal_bytes(self.bytes), output::duration(self.seconds));
        let out = self.out.display();
        let dataset = quoted(&self.dataset);
        format!(
            "wrote {out}: {rows} rows in {files} of {row_groups}, {size}, {time}\n\
             serve it: forebay-server --dataset {dataset}\n"
        )
    }
}

/// The columns of the result, for stderr.
fn announcement(start: &Start) -> String {
    let Start { format, sources, bytes, columns } = start;
    let names: Vec<String> = columns.iter().take(SHOWN_COLUMNS_MAX).map(|(name, _)| plain(name)).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or_default();
    let (sources, size) = (noun(*sources, "source"), output::decimal_bytes(*bytes));
    let heading = format!("converts {sources} of {}, {size}, to these columns:", format.name());
    let shown = names.iter().zip(columns).map(|(name, (_, kind))| format!("\n  {name:width$}  {}", plain(kind)));
    let more = columns.len().saturating_sub(SHOWN_COLUMNS_MAX);
    let more = (more > 0).then(|| format!("\n  and {more} more"));
    [heading].into_iter().chain(shown).chain(more).collect()
}

fn noun(count: u64, noun: &str) -> String {
    format!("{} {noun}{}", output::count(count), if count == 1 { "" } else { "s" })
}

/// The name of the folder with the letters that names of datasets may have.
fn dataset_name(out: &Path) -> String {
    let name = out.file_name().unwrap_or_default().to_string_lossy();
    let name: String = name.chars().map(|letter| if is_plain(letter) { letter } else { '_' }).collect();
    if name.starts_with(|letter: char| letter.is_ascii_alphanumeric()) { name } else { "data".to_owned() }
}

fn is_plain(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '.')
}

/// A text as one word of a shell.
fn quoted(text: &str) -> String {
    if text.chars().all(|letter| is_plain(letter) || matches!(letter, '/' | '=')) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

fn format(name: &str) -> Result<Format, String> {
    Format::parse(name).ok_or_else(|| format!("expected {}", Format::names()))
}

/// Parses a single byte, or `\t`.
fn character(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        [byte] if *byte != b'\n' && *byte != b'\r' => Ok(*byte),
        br"\t" => Ok(b'\t'),
        _ => Err("expected one ASCII character, or \\t".to_owned()),
    }
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("{msg} {wide_bar} {bytes}/{total_bytes} read, {eta} left")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn draw(bar: &ProgressBar, progress: Progress) {
    bar.set_length(progress.total_bytes);
    bar.set_position(progress.read_bytes.min(progress.total_bytes));
    bar.set_message(format!(
        "{} rows, {} written",
        output::count(progress.rows),
        output::decimal_bytes(progress.bytes)
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_has_the_line_that_serves_the_result() {
        let outcome = Outcome {
            out: "/data/my clicks".into(),
            format: Format::Csv,
            sources: 2,
            rows: 1_234_567,
            row_groups: 10,
            bytes: 1_000_000,
            files: 1,
        };
        let report = ConvertReport::new(&outcome, 1.5);
        assert_eq!(
            report.text(),
            "wrote /data/my clicks: 1,234,567 rows in 1 file of 10 row groups, 1 MB, 1.5 s\n\
             serve it: forebay-server --dataset 'my_clicks=/data/my clicks'\n"
        );
        let json: serde_json::Value = serde_json::from_str(&report.json().unwrap()).unwrap();
        assert_eq!((&json["rows"], &json["dataset"]), (&1_234_567.into(), &"my_clicks=/data/my clicks".into()));
    }

    #[test]
    fn the_help_has_every_format() {
        let command = Convert::augment_args(clap::Command::new("convert"));
        let from = command.get_arguments().find(|argument| argument.get_id() == "from").unwrap();
        let help = from.get_help().unwrap().to_string();
        assert!(help.contains(&Format::names()), "{help}");
    }

    #[test]
    fn columns_are_shown_with_their_types() {
        let columns = [("__key__", "string"), ("jpg", "binary")].map(|(name, kind)| (name.to_owned(), kind.to_owned()));
        let start = Start { format: Format::WebDataset, sources: 2, bytes: 3_000_000, columns: columns.to_vec() };
        assert_eq!(
            announcement(&start),
            "converts 2 sources of webdataset, 3 MB, to these columns:\n  __key__  string\n  jpg      binary"
        );
        let many = Start { columns: vec![("x".to_owned(), "int64".to_owned()); SHOWN_COLUMNS_MAX + 1], ..start };
        assert!(announcement(&many).ends_with("  x  int64\n  and 1 more"));
        let hostile = ("a\u{1b}[2J\nb".to_owned(), "struct<\u{9b}: int64>".to_owned());
        let hostile = announcement(&Start { columns: vec![hostile, ("x".to_owned(), "int64".to_owned())], ..many });
        assert!(hostile.ends_with("\n  a\\u{1b}[2J\\nb  struct<\\u{9b}: int64>\n  x              int64"), "{hostile}");
    }

    #[test]
    fn characters_are_single_bytes() {
        assert_eq!((character(";"), character(r"\t"), character("\t")), (Ok(b';'), Ok(b'\t'), Ok(b'\t')));
        assert!(character("").is_err() && character("ab").is_err() && character("é").is_err());
    }
}
