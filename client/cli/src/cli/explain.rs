//! `forebay explain [DATASET]`: the estimated cost of an epoch.

use clap::Args;
use forebay_client::{Assumptions, CacheExplain, Explain as Costs, RankExplain, SourceInfo};
use forebay_order::{estimate::estimate, row_groups};
use forebay_proto::defaults;
use forebay_settings::ByteSize;

use super::{
    failure::Failure,
    output::{self, Align},
    session::Session,
    sizing::SizingOptions,
    stream_options::StreamOptions,
};

/// Maximum number of ranks in the text; --json has all of them.
const RANKS_SHOWN: usize = 16;

/// Maximum number of columns named in the text; --json has up to 100.
const LIBRARY_COLUMNS_SHOWN: usize = 6;

/// Estimate the cost of an epoch: rows, steps, bytes, reads, memory, time; without a dataset, from --rows and
/// --row-bytes, and without a server
#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// Name of the dataset on the server
    #[arg(required_unless_present_all = ["rows", "row_bytes"], required_unless_present_any = ["sources"])]
    dataset: Option<String>,

    #[command(flatten)]
    stream: StreamOptions,

    /// Rows in the epoch, instead of the dataset's
    #[arg(long, env = "FOREBAY_ROWS", value_name = "N", default_value_t = 0, hide_default_value = true)]
    rows: u64,

    /// Size of a row on the wire, such as 1024 or 4KiB, instead of the plan's
    #[arg(long, env = "FOREBAY_ROW_BYTES", value_name = "SIZE", default_value_t = ByteSize(0), hide_default_value = true)]
    row_bytes: ByteSize,

    /// Storage bandwidth of all ranks together, per second, such as 2GB or 2.5e9 bytes
    #[arg(long, env = "FOREBAY_STORAGE_BYTES_PER_SECOND", value_name = "SIZE", value_parser = speed, default_value_t = 0.0, hide_default_value = true)]
    storage_bytes_per_second: f64,

    /// Network bandwidth of each rank, per second, such as 2GB or 2.5e9 bytes
    #[arg(long, env = "FOREBAY_WIRE_BYTES_PER_SECOND", value_name = "SIZE", value_parser = speed, default_value_t = 0.0, hide_default_value = true)]
    wire_bytes_per_second: f64,

    #[command(flatten)]
    sizing: SizingOptions,
}

impl Explain {
    /// Whether it needs no dataset, and so no server.
    pub(crate) fn is_arithmetic(&self) -> bool {
        self.dataset.is_none() && !self.stream.names_sources()
    }

    /// Estimates an epoch of --rows and --row-bytes.
    pub(crate) fn estimate(&self, json: bool) -> Result<(), Failure> {
        let request = self.stream.request("")?;
        let costs = estimate(&request, &self.assumptions()).map_err(|error| Failure::Usage(error.to_string()))?;
        let sizing = self.sizing.sizing(&costs, request.batch_size.unwrap_or(defaults::BATCH_SIZE));
        match (sizing.is_empty(), json) {
            (true, json) => write(&costs, json),
            (false, true) => output::write(&sizing.json_beside(&costs)?),
            (false, false) => output::write(&sizing.text_below(&output::columns(&[Align::Left; 3], &totals(&costs)))),
        }
    }

    pub(crate) async fn run(self, session: &Session) -> Result<(), Failure> {
        let mut request = self.stream.request(self.dataset.as_deref().unwrap_or_default())?;
        request.assume = Some(self.assumptions());
        write(&session.client.explain(&request).await?, session.json)
    }

    fn assumptions(&self) -> Assumptions {
        Assumptions {
            rows: self.rows,
            row_bytes: self.row_bytes.0,
            storage_bytes_per_second: self.storage_bytes_per_second,
            wire_bytes_per_second: self.wire_bytes_per_second,
        }
    }
}

fn write(costs: &Costs, json: bool) -> Result<(), Failure> {
    output::write(&if json { format!("{}\n", forebay_proto::to_json(costs)) } else { text(costs) })
}

fn speed(text: &str) -> Result<f64, String> {
    if let Ok(speed) = text.parse() {
        return if f64::is_finite(speed) && speed >= 0.0 {
            Ok(speed)
        } else {
            Err("must be finite, and 0 (no limit) or more".to_owned())
        };
    }
    let size = text.trim_end().strip_suffix("/s").unwrap_or(text);
    size.parse().map(|ByteSize(bytes)| bytes as f64).map_err(|error| format!("{error}, per second; 0: no limit"))
}

/// Formats totals, exact and rounded, followed by a line per rank.
fn text(costs: &Costs) -> String {
    let totals = output::columns(&[Align::Left; 3], &totals(costs));
    if costs.ranks.is_empty() { totals } else { format!("{totals}\n{}", ranks(&costs.ranks, costs.row_groups > 0)) }
}

#[expect(clippy::too_many_lines, reason = "a line of the table each")]
fn totals(costs: &Costs) -> Vec<Vec<String>> {
    let line = |name: &str, exact: String, readable: String| vec![name.to_owned(), exact, readable];
    let size =
        |name: &str, bytes: u64| line(name, format!("{} bytes", output::count(bytes)), output::decimal_bytes(bytes));
    let order = match costs.lanes {
        0 => "file order".to_owned(),
        lanes => {
            format!("shuffled: {} lanes, windows of {} rows", output::count(lanes), output::count(costs.window_rows))
        }
    };
    let order = match costs.sample {
        // A server without samples reports 0.
        0.0 | 1.0 => order,
        sample => format!("{order}, a sample of {sample} with seed {}", costs.sample_seed),
    };
    let mut lines = vec![
        line("rows", output::count(costs.rows), order),
        line("steps", output::count(costs.steps), String::new()),
        size("a row", costs.row_bytes),
        size("an epoch", costs.bytes),
    ];
    if let Some(most) = costs.ranks.iter().map(|rank| rank.bytes).max() {
        lines.push(size("a worker", most));
    }
    // An estimate without a dataset has no files.
    if costs.row_groups > 0 {
        let times = format!("{:.2} times what is stored", costs.read_amplification);
        lines.push(size("stored", costs.stored_bytes));
        lines.push(line("read", format!("{} bytes", output::count(costs.read_bytes)), times));
        let mixing = format!("of {} with rows, on average", output::count(costs.row_groups));
        lines.push(line("row groups a batch", format!("{:.1}", costs.row_groups_per_batch), mixing));
    }
    if costs.rank_rows_kept > 0.0 {
        let independent = 100.0 / costs.ranks.len().max(1) as f64;
        let meaning =
            format!("of its rows a rank reads in the next epoch, too; {independent:.0} % if epochs are independent");
        lines.push(line("rows kept", format!("{:.0} %", 100.0 * costs.rank_rows_kept), meaning));
    }
    if costs.place_correlation != 0.0 {
        let meaning = "correlation of a row's positions in two epochs; 0 if they are independent".to_owned();
        lines.push(line("places", format!("{:.2}", costs.place_correlation), meaning));
    }
    if costs.recommended_row_group_rows > 0 {
        let mean = output::count(costs.row_group_rows.round() as u64);
        lines.push(line("rows a row group", mean, recommended_rows(costs)));
    }
    if costs.columns > 0 {
        let fused = format!("fused {} of {} columns", output::count(costs.fused_columns), output::count(costs.columns));
        lines.push(line("decoding", fused, by_library(costs)));
    }
    if !costs.udfs.is_empty() {
        lines.push(line("Python functions", output::count(costs.udfs.len() as u64), costs.udfs.join(", ")));
    }
    for source in &costs.sources {
        let share = format!("{:.4} % of the rows", 100.0 * source.share);
        lines.push(line(&format!("source {}", source.dataset), share, rows_of(source)));
    }
    if costs.memory_bytes > 0 {
        let limit = output::decimal_bytes(costs.memory_limit_bytes);
        let readable = format!("{} of {limit} for all streams", output::decimal_bytes(costs.memory_bytes));
        lines.push(line("server memory", format!("{} bytes", output::count(costs.memory_bytes)), readable));
    }
    if let Some(cache) = &costs.cache {
        let (needed, readable) = (cache.needed_bytes, cache_text(cache));
        lines.push(line("server cache", format!("{} bytes", output::count(needed)), readable));
    }
    let is_bound = |what: &str| if costs.bound_by == what { "bottleneck" } else { "" }.to_owned();
    for (name, bound, seconds) in
        [("storage takes", "storage", costs.storage_seconds), ("the wire takes", "wire", costs.wire_seconds)]
    {
        if seconds > 0.0 {
            lines.push(line(name, output::duration(seconds), is_bound(bound)));
        }
    }
    if !costs.bound_by.is_empty() {
        lines.push(line("an epoch takes", output::duration(costs.epoch_seconds), String::new()));
    }
    for (name, value) in [("snapshot", &costs.snapshot), ("plan", &costs.plan_id)] {
        if !value.is_empty() {
            lines.push(vec![name.to_owned(), value.clone()]);
        }
    }
    lines
}

/// The recommended size of row groups, and what rewrites files whose size is far from it.
fn recommended_rows(costs: &Costs) -> String {
    let recommended = costs.recommended_row_group_rows;
    let is_far = row_groups::is_far(costs.row_group_rows, recommended, costs.row_groups);
    let advice = if is_far { "; forebay convert rewrites the files" } else { "" };
    format!("{} are recommended{advice}", output::count(recommended))
}

/// How much of an epoch the server's cache of finished rows has.
fn cache_text(cache: &CacheExplain) -> String {
    let [needed, cached, limit] =
        [cache.needed_bytes, cache.cached_bytes, cache.limit_bytes].map(output::decimal_bytes);
    match cache {
        CacheExplain { reason, .. } if !reason.is_empty() => format!("rows are not cached: {reason}"),
        CacheExplain { limit_bytes: 0, .. } => format!("off; an epoch would take {needed} (--cache-bytes)"),
        CacheExplain { pages, .. } => {
            let what = if *pages { " of decompressed pages" } else { "" };
            format!("an epoch takes {needed}{what}, of which {cached} are cached; the limit is {limit}")
        }
    }
}

/// The rows that an epoch of a mixture reads of a source.
fn rows_of(source: &SourceInfo) -> String {
    let repeats = if source.repeat { ", repeats" } else { "" };
    let (read, all) = (output::count(source.epoch_rows), output::count(source.rows));
    format!("{read} of {all} rows, {:.4} epochs{repeats}", source.epochs)
}

/// The columns that the Parquet library decodes, by reason.
fn by_library(costs: &Costs) -> String {
    let count = costs.columns - costs.fused_columns.min(costs.columns);
    if count == 0 {
        return String::new();
    }
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for column in costs.library_columns.iter().take(LIBRARY_COLUMNS_SHOWN) {
        match reasons.iter_mut().find(|(reason, _)| *reason == column.reason) {
            Some((_, columns)) => columns.push(&column.column),
            None => reasons.push((&column.reason, vec![&column.column])),
        }
    }
    let mut listed: Vec<String> =
        reasons.iter().map(|(reason, columns)| format!("{reason} ({})", columns.join(", "))).collect();
    if count > LIBRARY_COLUMNS_SHOWN as u64 {
        listed.push("…".to_owned());
    }
    format!("{} by the parquet crate: {}", output::count(count), listed.join(", "))
}

/// Formats the ranks; without files there are no reads and no memory.
fn ranks(ranks: &[RankExplain], has_files: bool) -> String {
    let names = ["RANK", "ROWS", "STEPS", "RECEIVES", "READS", "MEMORY"].map(str::to_owned).to_vec();
    let row = |rank: &RankExplain| {
        let counts = [rank.rank, rank.rows, rank.steps].map(output::count);
        let sizes = [rank.bytes, rank.read_bytes, rank.memory_bytes].map(output::decimal_bytes);
        counts.into_iter().chain(sizes).collect::<Vec<_>>()
    };
    let mut rows: Vec<_> = [names].into_iter().chain(ranks.iter().take(RANKS_SHOWN).map(row)).collect();
    let columns = if has_files { 6 } else { 4 };
    for row in &mut rows {
        row.truncate(columns);
    }
    let table = output::columns(&vec![Align::Right; columns], &rows);
    match ranks.len().saturating_sub(RANKS_SHOWN) {
        0 => table,
        more => format!("{table}… and {} ranks more; --json has them all\n", output::count(more as u64)),
    }
}

#[cfg(test)]
mod tests {
    use forebay_client::LibraryColumn;

    use super::*;

    #[test]
    fn formats_an_estimate_without_files() {
        let rank = |rank| RankExplain {
            rank,
            rows: 125_000_000,
            steps: 122_071,
            bytes: 128_000_000_000,
            ..Default::default()
        };
        let costs = Costs {
            rows: 2_000_000_000,
            steps: 122_071,
            row_bytes: 1024,
            bytes: 2_048_000_000_000,
            wire_seconds: 64.0,
            epoch_seconds: 64.0,
            bound_by: "wire".into(),
            ranks: (0..16).map(rank).collect(),
            ..Default::default()
        };
        let text = text(&costs);
        let lines: Vec<&str> = text.lines().collect();
        let expected = [
            "rows            2,000,000,000            file order",
            "steps           122,071",
            "a row           1,024 bytes              1.024 kB",
            "an epoch        2,048,000,000,000 bytes  2.048 TB",
            "a worker        128,000,000,000 bytes    128 GB",
            "the wire takes  64 s                     bottleneck",
            "an epoch takes  64 s",
            "",
            "RANK         ROWS    STEPS  RECEIVES",
            "   0  125,000,000  122,071    128 GB",
        ];
        assert_eq!(lines[..10], expected, "{text}");
        assert_eq!(lines.len(), 9 + 16);
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "one estimate and its whole text")]
    fn formats_an_estimate_with_reads_and_memory() {
        let costs = Costs {
            snapshot: "5f3a".into(),
            plan_id: "7a".into(),
            rows: 327_346,
            steps: 20,
            row_bytes: 36,
            bytes: 11_784_456,
            lanes: 16,
            window_rows: 16_384,
            stored_bytes: 2_000_000,
            read_bytes: 2_500_000,
            read_amplification: 1.25,
            memory_bytes: 40_000_000,
            memory_limit_bytes: 1_000_000_000,
            row_groups_per_batch: 7.75,
            row_groups: 8,
            row_group_rows: 40_918.25,
            recommended_row_group_rows: 16_384,
            storage_seconds: 4.0,
            wire_seconds: 2.0,
            epoch_seconds: 4.0,
            bound_by: "storage".into(),
            rank_rows_kept: 0.65,
            place_correlation: 0.25,
            ranks: (0..20).map(|rank| RankExplain { rank, ..Default::default() }).collect(),
            cache: Some(CacheExplain {
                limit_bytes: 8_000_000_000,
                needed_bytes: 12_000_000,
                cached_bytes: 3_000_000,
                ..Default::default()
            }),
            sample: 0.25,
            sample_seed: 3,
            sources: vec![SourceInfo {
                dataset: "b".into(),
                share: 0.3,
                repeat: true,
                rows: 100,
                epoch_rows: 1250,
                epochs: 12.5,
                ..Default::default()
            }],
            columns: 40,
            fused_columns: 31,
            udfs: vec!["words(text)".to_owned(), "loudness(left, right)".to_owned()],
            library_columns: ["nested", "nested", "INT96", "nested", "codec LZ4", "nested", "nested", "nested"]
                .into_iter()
                .enumerate()
                .map(|(column, reason)| LibraryColumn {
                    column: format!("c{column}"),
                    reason: reason.to_owned(),
                    row_groups: 1,
                })
                .collect(),
        };
        let text = text(&costs);
        for part in [
            "words(text), loudness(left, right)",
            "shuffled: 16 lanes, windows of 16,384 rows, a sample of 0.25 with seed 3",
            "2,500,000 bytes         1.25 times what is stored",
            "of 8 with rows",
            "of its rows a rank reads in the next epoch, too; 5 % if epochs are independent",
            "correlation of a row's positions in two epochs; 0 if they are independent",
            "rows a row group    40,918                  16,384 are recommended; forebay convert rewrites the files",
            "40 MB of 1 GB for all streams",
            "server cache        12,000,000 bytes        an epoch takes 12 MB, of which 3 MB are cached; the limit is 8 GB",
            "decoding            fused 31 of 40 columns  9 by the parquet crate: nested (c0, c1, c3, c5), INT96 (c2), codec LZ4 (c4), …",
            "storage takes       4 s                     bottleneck",
            "source b            30.0000 % of the rows   1,250 of 100 rows, 12.5000 epochs, repeats",
            "snapshot            5f3a",
            "… and 4 ranks more",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }

    #[test]
    fn says_why_rows_are_not_cached() {
        let text = |reason: &str, limit_bytes| {
            cache_text(&CacheExplain {
                limit_bytes,
                needed_bytes: 5_000_000,
                reason: reason.into(),
                ..Default::default()
            })
        };
        assert_eq!(text("", 0), "off; an epoch would take 5 MB (--cache-bytes)");
        let reason = "rows of output \"tags\" differ in size";
        assert_eq!(text(reason, 9), format!("rows are not cached: {reason}"));
    }

    #[test]
    fn accepts_speeds_as_numbers_and_sizes() {
        let cases = [("2e9", 2e9), ("0", 0.0), ("2 GB", 2e9), ("250MB/s", 250e6), ("1.5GiB/s", 1.5 * 1024_f64.powi(3))];
        for (text, expected) in cases {
            assert_eq!(speed(text), Ok(expected), "{text}");
        }
        for (text, words) in
            [("", "512MB"), ("-1", "0 (no limit)"), ("inf", "finite"), ("nan", "finite"), ("2G", "GiB")]
        {
            assert!(speed(text).unwrap_err().contains(words), "{text}");
        }
    }
}
