//! Deterministic simulation of replicas and ranks under schedules of faults: a thousand runs in a few minutes, each
//! reproducible from its seed.
//!
//! **Model.** A seed determines one to three replicas, a job of one to four ranks with its plan, order, remainder and
//! batch size, and up to seven faults, which may overlap. turmoil gives each replica and each rank a separate machine,
//! with a runtime whose clock advances only when all tasks wait, and a network between them. A replica runs the
//! server's code from the connection down (`flight`, `stream`, `scan`, `catalog`, the kernels) through the phases of
//! the daemon, over three small Parquet files in a bucket that implements the part of S3 that the real client uses. A
//! rank runs the client's code (`Replicas`, `RankStream`, retries and cursors). The ranks of a job take their steps
//! together and save a cursor every few steps. When one is killed or gives up, all restart from the last cursor,
//! sometimes at another world size.
//!
//! **Faults.** A server is killed, or drained, and restarted; a machine vanishes silently; the link between two
//! machines is partitioned, held or slow; every connection of a replica breaks after a number of bytes; a replica's
//! store refuses connections, is busy, interrupts or truncates bodies, sends the whole file for a range, or is slow; a
//! rank is killed.
//!
//! **Invariants.** Between two starts of the job, each rank's batches equal those of the same job without faults:
//! header, checksum, length and rows, to the byte, in order and without a gap. Over the whole job, each row of an epoch
//! occurs as often as the remainder specifies. Two minutes after the last fault ends, everything has ended. No task
//! panics, and every error is one that a retry may resolve.
//!
//! **Not simulated.** The CPU pool: jobs run inline, so races between threads are not covered. Disks: `--state` is a
//! local directory that never fails. Kernel sockets: segments are delivered in order or not at all, and segments lost
//! in a partition are not retransmitted, so an affected connection stays silent until it times out. Fits, exchanges,
//! Unix sockets, TLS, the metrics page, signals, the Python client, memory exhaustion. The age limit of connections,
//! which is random. The store's pauses between retries are constant for the same reason.
//!
//! **Reproducing a run.** A run does not depend on the machine: all numbers derive from the seed, and turmoil provides
//! the time. Dates and process names on the wire are fixed, as the timing of a connection depends on each byte.
//! `SIMULATE_SEED=N cargo test -p forebay-simulation replay -- --nocapture` prints the schedule and the events of seed
//! N; a test compares the logs of two runs of a seed.
//!
//! All code is in `tests/simulation`, so that tokio features that turmoil enables (a clock that can be stopped) are in
//! no program.

#![forbid(unsafe_code)]
