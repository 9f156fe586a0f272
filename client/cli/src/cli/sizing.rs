//! `forebay explain --rows … --rows-per-second …`: the servers of a training run, and the time of a fit.

use clap::Args;
use forebay_client::Explain as Costs;
use forebay_order::sizing::{BUSY_SHARE, Demand, FitDemand, Servers, fit_seconds, servers};
use forebay_settings::ByteSize;
use serde_json::{Value, json};

use super::{
    failure::Failure,
    output::{self, Align},
};

/// What trainers take, what a row costs, and what a server has.
#[derive(Debug, Args)]
pub(crate) struct SizingOptions {
    /// Rows per second that all trainers take together: plans the servers, without a dataset
    #[arg(long, env = "FOREBAY_ROWS_PER_SECOND", value_name = "ROWS", value_parser = positive,
          requires = "cpu_seconds_per_million_rows", conflicts_with = "dataset")]
    rows_per_second: Option<f64>,

    /// CPU seconds of a server for a million rows, as measured (forebay top, or metrics)
    #[arg(long, env = "FOREBAY_CPU_SECONDS_PER_MILLION_ROWS", value_name = "SECONDS", value_parser = positive,
          requires = "rows_per_second")]
    cpu_seconds_per_million_rows: Option<f64>,

    /// Compressed size of a row group in the columns that are read
    #[arg(long, env = "FOREBAY_ROW_GROUP_BYTES", value_name = "SIZE", default_value_t = ByteSize(0), hide_default_value = true)]
    row_group_bytes: ByteSize,

    /// Size of the files, for the rate of reads
    #[arg(long, env = "FOREBAY_STORED_BYTES", value_name = "SIZE", default_value_t = ByteSize(0), hide_default_value = true)]
    stored_bytes: ByteSize,

    /// Cores of a server
    #[arg(long, env = "FOREBAY_SERVER_CORES", value_name = "N", default_value_t = 16,
          value_parser = clap::value_parser!(u64).range(1..))]
    server_cores: u64,

    /// Memory of a server
    #[arg(long, env = "FOREBAY_SERVER_MEMORY_BYTES", value_name = "SIZE", default_value_t = ByteSize(64 << 30))]
    server_memory_bytes: ByteSize,

    /// Network bandwidth of a server, per second; 3.125GB are 25 Gbit/s
    #[arg(long, env = "FOREBAY_SERVER_BYTES_PER_SECOND", value_name = "SIZE", default_value_t = ByteSize(3_125_000_000))]
    server_bytes_per_second: ByteSize,

    /// Servers that may be down while the others carry the run
    #[arg(long, env = "FOREBAY_SPARE_SERVERS", value_name = "N", default_value_t = 1)]
    spare_servers: u64,

    /// CPU seconds of a pass of a fit for a million rows, as measured
    #[arg(long, env = "FOREBAY_FIT_CPU_SECONDS_PER_MILLION_ROWS", value_name = "SECONDS", value_parser = positive,
          requires = "fit_cores")]
    fit_cpu_seconds_per_million_rows: Option<f64>,

    /// Cores that run a fit: those of a server, or of all executors of a cluster
    #[arg(long, env = "FOREBAY_FIT_CORES", value_name = "N", value_parser = clap::value_parser!(u64).range(1..),
          requires = "fit_cpu_seconds_per_million_rows")]
    fit_cores: Option<u64>,

    /// Passes of a fit: the most learning ops in one chain
    #[arg(long, env = "FOREBAY_FIT_PASSES", value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..))]
    fit_passes: u64,
}

/// The servers of a run, and the seconds of a fit.
#[derive(Debug)]
pub(crate) struct Sizing {
    servers: Option<(Demand, Servers)>,
    fit: Option<(FitDemand, f64)>,
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if f64::is_finite(number) && number > 0.0 => Ok(number),
        _ => Err("expected a number above 0".to_owned()),
    }
}

// === impl SizingOptions ===

impl SizingOptions {
    /// The servers and the fit of the options, over the epoch of an estimate.
    pub(crate) fn sizing(&self, costs: &Costs, batch_size: u64) -> Sizing {
        let demand = |(rows_per_second, cpu_seconds_per_million_rows)| Demand {
            rows_per_second,
            cpu_seconds_per_million_rows,
            batch_size,
            row_group_bytes: self.row_group_bytes.0,
            stored_bytes: self.stored_bytes.0,
            server_cores: self.server_cores,
            server_memory_bytes: self.server_memory_bytes.0,
            server_bytes_per_second: self.server_bytes_per_second.0.max(1) as f64,
            spare_servers: self.spare_servers,
        };
        let demand = self.rows_per_second.zip(self.cpu_seconds_per_million_rows).map(demand);
        let fit = |(cpu_seconds_per_million_rows, cores)| FitDemand {
            cpu_seconds_per_million_rows,
            passes: self.fit_passes,
            cores,
        };
        let fit = self.fit_cpu_seconds_per_million_rows.zip(self.fit_cores).map(fit);
        Sizing {
            servers: demand.map(|demand| (demand, servers(costs, &demand))),
            fit: fit.map(|fit| (fit, fit_seconds(costs.rows, &fit))),
        }
    }
}

// === impl Sizing ===

impl Sizing {
    /// Whether the options contain no question.
    pub(crate) fn is_empty(&self) -> bool {
        self.servers.is_none() && self.fit.is_none()
    }

    /// A line for each number, after those of an estimate.
    pub(crate) fn text_below(&self, totals: &str) -> String {
        let mut lines = Vec::new();
        let mut line = |name: &str, value: String, note: String| lines.push(vec![name.to_owned(), value, note]);
        if let Some((demand, found)) = &self.servers {
            let speed = |bytes: f64| format!("{}/s", output::decimal_bytes(bytes.round() as u64));
            let busy = format!("at most {:.0} % busy", 100.0 * BUSY_SHARE);
            let each = format!("{} busy, {} spare; bound by {}", found.busy, demand.spare_servers, found.bound_by);
            let memory = output::decimal_bytes(found.stream_bytes / found.busy);
            line(
                "trainers take",
                format!("{} rows/s", output::count(demand.rows_per_second.round() as u64)),
                String::new(),
            );
            line("an epoch takes", output::duration(found.epoch_seconds), String::new());
            line("servers", output::count(found.servers), each);
            line(
                "cores",
                format!("{:.1}", found.cores),
                format!("{:.1} a busy server, {busy}", found.cores / found.busy as f64),
            );
            line("stream memory", output::decimal_bytes(found.stream_bytes), format!("{memory} a busy server"));
            let sent = speed(found.sent_bytes_per_second / found.busy as f64);
            line("servers send", speed(found.sent_bytes_per_second), format!("{sent} a busy server"));
            if found.read_bytes_per_second > 0.0 {
                let read = speed(found.read_bytes_per_second / found.busy as f64);
                line("servers read", speed(found.read_bytes_per_second), format!("{read} a busy server"));
            }
        }
        if let Some((fit, seconds)) = &self.fit {
            let passes = if fit.passes == 1 { "1 pass".to_owned() } else { format!("{} passes", fit.passes) };
            line("a fit takes", output::duration(*seconds), format!("{passes} on {} cores", output::count(fit.cores)));
        }
        format!("{totals}\n{}", output::columns(&[Align::Left; 3], &lines))
    }

    /// The JSON of an estimate, with the same.
    pub(crate) fn json_beside(&self, costs: &Costs) -> Result<String, Failure> {
        let parsed = serde_json::from_str(&forebay_proto::to_json(costs));
        let mut costs: Value = parsed.map_err(|error| Failure::Usage(error.to_string()))?;
        costs["sizing"] = self.json();
        Ok(format!("{costs}\n"))
    }

    fn json(&self) -> Value {
        let servers = self.servers.as_ref().map(|(demand, found)| {
            json!({
                "rows_per_second": demand.rows_per_second,
                "epoch_seconds": found.epoch_seconds,
                "servers": found.servers,
                "busy_servers": found.busy,
                "bound_by": found.bound_by,
                "cores": found.cores,
                "stream_bytes": found.stream_bytes,
                "sent_bytes_per_second": found.sent_bytes_per_second,
                "read_bytes_per_second": found.read_bytes_per_second,
            })
        });
        let fit = self
            .fit
            .as_ref()
            .map(|(fit, seconds)| json!({ "cores": fit.cores, "passes": fit.passes, "seconds": seconds }));
        json!({ "servers": servers, "fit": fit })
    }
}
