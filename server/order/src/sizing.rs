//! The servers of a training run by arithmetic: cores, memory and network from the rows that trainers take, and measured costs of a row.

use forebay_proto::v1;

/// The share of a server's cores that streams may keep busy. The rest is for storage, the system and bursts.
pub const BUSY_SHARE: f64 = 0.7;

/// Windows of a lane that exist at once.
const LANE_WINDOWS: u64 = 2;

/// Row groups that a lane has open, if they are not smaller than its windows.
const LANE_ROW_GROUPS: u64 = 2;

/// Row groups of a rank in file order: the one that is decoded, and those that are fetched ahead.
const RANK_ROW_GROUPS: u64 = 3;

/// Batches of a rank that exist at once, and bytes that wait for its socket.
const RANK_BATCHES: u64 = 4;
const RANK_SENDING_BYTES: u64 = 4 << 20;

/// Bytes of a server besides its streams.
const PROCESS_BYTES: u64 = 150_000_000;

/// What a run needs, and what its servers have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// Rows per second that all trainers take together.
    pub rows_per_second: f64,
    /// CPU seconds of a server for a million rows.
    pub cpu_seconds_per_million_rows: f64,
    /// Rows of a batch.
    pub batch_size: u64,
    /// Compressed bytes of a row group in the columns that are read.
    pub row_group_bytes: u64,
    /// Bytes of the files; 0: unknown.
    pub stored_bytes: u64,
    /// Cores of a server.
    pub server_cores: u64,
    /// Memory of a server.
    pub server_memory_bytes: u64,
    /// Network of a server, per second.
    pub server_bytes_per_second: f64,
    /// Servers that may be down.
    pub spare_servers: u64,
}

/// The servers of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Servers {
    /// Cores of all servers.
    pub cores: f64,
    /// Bytes per second that all servers send.
    pub sent_bytes_per_second: f64,
    /// Bytes per second that all servers read; 0: unknown.
    pub read_bytes_per_second: f64,
    /// Memory of all streams.
    pub stream_bytes: u64,
    /// Servers that the run keeps busy.
    pub busy: u64,
    /// Those, and the spare ones.
    pub servers: u64,
    /// What decides their number: cpu, network or memory.
    pub bound_by: &'static str,
    /// Duration of an epoch.
    pub epoch_seconds: f64,
}

/// What a fit needs, and the cores that run it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FitDemand {
    /// CPU seconds of a pass for a million rows.
    pub cpu_seconds_per_million_rows: f64,
    /// Passes over the rows.
    pub passes: u64,
    /// Cores of the server, or of all executors.
    pub cores: u64,
}

/// The servers that send the epoch of an estimate to its ranks.
pub fn servers(epoch: &v1::Explain, demand: &Demand) -> Servers {
    let cores = demand.rows_per_second * demand.cpu_seconds_per_million_rows / 1e6 / BUSY_SHARE;
    let sent_bytes_per_second = demand.rows_per_second * epoch.row_bytes as f64;
    let epoch_seconds = epoch.rows as f64 / demand.rows_per_second;
    let read_bytes_per_second = demand.stored_bytes as f64 / epoch_seconds;
    let stream_bytes = stream_bytes(epoch, demand);
    let room = demand.server_memory_bytes.saturating_sub(PROCESS_BYTES).max(1);
    let network = (sent_bytes_per_second.max(read_bytes_per_second)) / demand.server_bytes_per_second;
    let needed = [
        ("cpu", cores / demand.server_cores as f64),
        ("network", network),
        ("memory", stream_bytes as f64 / room as f64),
    ];
    let (bound_by, most) =
        needed.into_iter().fold(("cpu", 0.0), |most, next| if next.1 > most.1 { next } else { most });
    let busy = (most.ceil() as u64).max(1);
    let servers = busy.saturating_add(demand.spare_servers);
    Servers {
        cores,
        sent_bytes_per_second,
        read_bytes_per_second,
        stream_bytes,
        busy,
        servers,
        bound_by,
        epoch_seconds,
    }
}

/// Seconds of a fit over all rows.
pub fn fit_seconds(rows: u64, fit: &FitDemand) -> f64 {
    let cpu_seconds = rows as f64 / 1e6 * fit.cpu_seconds_per_million_rows * fit.passes as f64;
    cpu_seconds / (fit.cores.max(1) as f64 * BUSY_SHARE)
}

/// The memory that the streams of all ranks reserve.
fn stream_bytes(epoch: &v1::Explain, demand: &Demand) -> u64 {
    let ranks = epoch.ranks.len() as u64;
    let of_rank = demand.batch_size.saturating_mul(epoch.row_bytes).saturating_mul(RANK_BATCHES) + RANK_SENDING_BYTES;
    let reading = if epoch.lanes == 0 {
        ranks.saturating_mul(RANK_ROW_GROUPS).saturating_mul(demand.row_group_bytes)
    } else {
        let windows = epoch.window_rows.saturating_mul(epoch.row_bytes).saturating_mul(LANE_WINDOWS);
        let groups = demand.row_group_bytes.saturating_mul(LANE_ROW_GROUPS);
        epoch.lanes.saturating_mul(windows.saturating_add(groups))
    };
    reading.saturating_add(ranks.saturating_mul(of_rank))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(ranks: usize, lanes: u64) -> v1::Explain {
        v1::Explain {
            rows: 10_000_000_000,
            row_bytes: 156,
            lanes,
            window_rows: 16_384,
            ranks: vec![v1::RankExplain::default(); ranks],
            ..Default::default()
        }
    }

    const DEMAND: Demand = Demand {
        rows_per_second: 4e6,
        cpu_seconds_per_million_rows: 0.7,
        batch_size: 1024,
        row_group_bytes: 10_000_000,
        stored_bytes: 1_000_000_000_000,
        server_cores: 2,
        server_memory_bytes: 8 << 30,
        server_bytes_per_second: 1e9,
        spare_servers: 1,
    };

    #[test]
    fn cores_network_and_memory_decide_the_servers() {
        let found = servers(&epoch(16, 16), &DEMAND);
        assert!((found.cores - 4.0).abs() < 1e-9, "{found:?}");
        assert_eq!((found.busy, found.servers, found.bound_by), (2, 3, "cpu"));
        assert_eq!(
            (found.sent_bytes_per_second, found.epoch_seconds, found.read_bytes_per_second),
            (624e6, 2500.0, 4e8)
        );
        let lane = 2 * 16_384 * 156 + 2 * 10_000_000;
        assert_eq!(found.stream_bytes, 16 * lane + 16 * (4 * 1024 * 156 + (4 << 20)));
        let slow = servers(&epoch(16, 16), &Demand { server_bytes_per_second: 1e8, ..DEMAND });
        assert_eq!((slow.busy, slow.bound_by), (7, "network"));
        let small = servers(&epoch(16, 16), &Demand { server_memory_bytes: 200_000_000, ..DEMAND });
        assert_eq!((small.busy, small.bound_by), (10, "memory"));
        let in_order = servers(&epoch(16, 0), &DEMAND);
        assert_eq!(in_order.stream_bytes, 16 * 3 * 10_000_000 + 16 * (4 * 1024 * 156 + (4 << 20)));
    }

    #[test]
    fn a_fit_takes_its_cpu_seconds_over_its_cores() {
        let fit = FitDemand { cpu_seconds_per_million_rows: 0.35, passes: 2, cores: 10 };
        assert!((fit_seconds(1_000_000_000, &fit) - 100.0).abs() < 1e-9);
    }
}
