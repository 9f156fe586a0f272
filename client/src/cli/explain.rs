//! `forebay explain [DATASET]`: what an epoch costs, before anyone waits for it.

use clap::Args;
use forebay_client::{Assumptions, Explain as Costs, RankExplain};

use super::failure::Failure;
use super::output::{self, Align};
use super::session::Session;
use super::stream_options::StreamOptions;

/// Ranks that the text shows; --json has them all.
const RANKS_SHOWN: usize = 16;

/// Says what an epoch costs: rows, steps, bytes, reads, memory, time; without a dataset, for --rows of --row-bytes each
#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// Name of the dataset on the server
    #[arg(required_unless_present_all = ["rows", "row_bytes"])]
    dataset: Option<String>,

    #[command(flatten)]
    stream: StreamOptions,

    /// Assumes so many rows in the epoch, instead of those that are there
    #[arg(long, env = "FOREBAY_ROWS", value_name = "N", default_value_t = 0, hide_default_value = true)]
    rows: u64,

    /// Assumes so many bytes of a row on the wire, instead of the plan's
    #[arg(long, env = "FOREBAY_ROW_BYTES", value_name = "N", default_value_t = 0, hide_default_value = true)]
    row_bytes: u64,

    /// Bytes that storage gives to all ranks together in a second, such as 2e9
    #[arg(long, env = "FOREBAY_STORAGE_BYTES_PER_SECOND", value_name = "X", value_parser = speed, default_value_t = 0.0, hide_default_value = true)]
    storage_bytes_per_second: f64,

    /// Bytes that the wire gives to each rank in a second, such as 2e9
    #[arg(long, env = "FOREBAY_WIRE_BYTES_PER_SECOND", value_name = "X", value_parser = speed, default_value_t = 0.0, hide_default_value = true)]
    wire_bytes_per_second: f64,
}

impl Explain {
    pub(crate) async fn run(self, session: &Session) -> Result<(), Failure> {
        let mut request = self.stream.request(self.dataset.as_deref().unwrap_or_default())?;
        request.assume = Some(Assumptions {
            rows: self.rows,
            row_bytes: self.row_bytes,
            storage_bytes_per_second: self.storage_bytes_per_second,
            wire_bytes_per_second: self.wire_bytes_per_second,
        });
        let costs = session.client.explain(&request).await?;
        output::write(&if session.json { format!("{}\n", forebay_proto::to_json(&costs)) } else { text(&costs) })
    }
}

fn speed(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(speed) if f64::is_finite(speed) && speed >= 0.0 => Ok(speed),
        _ => Err("bytes a second as a number from 0 on, such as 250000000 or 2.5e8; 0: not a limit".to_owned()),
    }
}

/// Totals with the exact number and a readable one, then a line a rank.
fn text(costs: &Costs) -> String {
    let totals = output::columns(&[Align::Left; 3], &totals(costs));
    if costs.ranks.is_empty() { totals } else { format!("{totals}\n{}", ranks(&costs.ranks, costs.row_groups > 0)) }
}

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
    let mut lines = vec![
        line("rows", output::count(costs.rows), order),
        line("steps", output::count(costs.steps), String::new()),
        size("a row", costs.row_bytes),
        size("an epoch", costs.bytes),
    ];
    if let Some(most) = costs.ranks.iter().map(|rank| rank.bytes).max() {
        lines.push(size("a worker", most));
    }
    // Pure sizing knows of no files.
    if costs.row_groups > 0 {
        let times = format!("{:.2} times what is stored", costs.read_amplification);
        lines.push(size("stored", costs.stored_bytes));
        lines.push(line("read", format!("{} bytes", output::count(costs.read_bytes)), times));
        let mixing = format!("of {} with rows, on average", output::count(costs.row_groups));
        lines.push(line("row groups a batch", format!("{:.1}", costs.row_groups_per_batch), mixing));
    }
    if costs.memory_bytes > 0 {
        let limit = output::decimal_bytes(costs.memory_limit_bytes);
        let readable = format!("{} of {limit} for all streams", output::decimal_bytes(costs.memory_bytes));
        lines.push(line("server memory", format!("{} bytes", output::count(costs.memory_bytes)), readable));
    }
    let is_bound = |what: &str| if costs.bound_by == what { "sets the pace" } else { "" }.to_owned();
    for (name, bound, seconds) in
        [("storage takes", "storage", costs.storage_seconds), ("the wire takes", "wire", costs.wire_seconds)]
    {
        if seconds > 0.0 {
            lines.push(line(name, output::duration(seconds), is_bound(bound)));
        }
    }
    if !costs.bound_by.is_empty() {
        let seconds = costs.epoch_seconds;
        lines.push(line("an epoch takes", output::duration(seconds), String::new()));
    }
    for (name, value) in [("snapshot", &costs.snapshot), ("plan", &costs.plan_id)] {
        if !value.is_empty() {
            lines.push(vec![name.to_owned(), value.clone()]);
        }
    }
    lines
}

/// Without files there is nothing to read and nothing to hold.
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
    use super::*;

    #[test]
    fn two_billion_rows_of_a_kilobyte_for_sixteen_workers_are_sized_at_a_glance() {
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
            "the wire takes  64 s                     sets the pace",
            "an epoch takes  64 s",
            "",
            "RANK         ROWS    STEPS  RECEIVES",
            "   0  125,000,000  122,071    128 GB",
        ];
        assert_eq!(lines[..10], expected, "{text}");
        assert_eq!(lines.len(), 9 + 16);
    }

    #[test]
    fn an_epoch_of_files_says_what_is_read_and_held() {
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
            storage_seconds: 4.0,
            wire_seconds: 2.0,
            epoch_seconds: 4.0,
            bound_by: "storage".into(),
            ranks: (0..20).map(|rank| RankExplain { rank, ..Default::default() }).collect(),
        };
        let text = text(&costs);
        for part in [
            "shuffled: 16 lanes, windows of 16,384 rows",
            "2,500,000 bytes   1.25 times what is stored",
            "of 8 with rows",
            "40 MB of 1 GB for all streams",
            "storage takes       4 s               sets the pace",
            "snapshot            5f3a",
            "… and 4 ranks more",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }

    #[test]
    fn a_speed_is_a_number_from_zero_on() {
        assert_eq!((speed("2e9"), speed("0")), (Ok(2e9), Ok(0.0)));
        for text in ["", "-1", "inf", "nan", "2 GB"] {
            assert!(speed(text).unwrap_err().contains("2.5e8"), "{text}");
        }
    }
}
