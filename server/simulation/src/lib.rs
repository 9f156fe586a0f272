//! Replicas and ranks under schedules of faults, in simulated time: a thousand bad days in some minutes, each of which can
//! be had again from its number.
//!
//! **The model.** A run is drawn from a seed: one to three replicas; a job of one to four ranks with its plan, order,
//! remainder and batch size; and up to seven faults that overlap as they fall. turmoil gives each replica and each rank
//! a machine of its own, with a runtime whose clock moves only when nothing is left to do, and a network between them.
//! A replica is the server's own code from the connection down (`flight`, `stream`, `scan`, `catalog`, the kernels) in
//! the daemon's phases, over three small Parquet files in a bucket that speaks as much of S3 as the real client asks
//! for. A rank is the client's own code (`Replicas`, `RankStream`, retries and cursors). The ranks of a job take their
//! steps together, save a cursor every few, and are all started again from the last one when one of them is killed or
//! gives up, now and then at another world size.
//!
//! **The faults.** A server is killed, or drained, and started again; a machine vanishes without a word; two machines
//! are cut off from each other, or what they send waits, or is slow; every connection of a replica breaks after so many
//! bytes; a replica's store refuses, is busy, breaks off, ends early, sends the whole file for a range, or is slow; a
//! rank is killed.
//!
//! **What must hold.** From each start of the job to the next, each rank's batches are those of the same job without a
//! fault: header, checksum, length and rows, to the byte, in order and without a gap. Over all of the job each row of an
//! epoch comes as often as the remainder says. Two minutes after the last fault is mended all of it has ended. No task
//! has panicked, and no error has come that another try would not mend.
//!
//! **What is not simulated.** The CPU pool: jobs run where they are asked for, so nothing is learned of races between
//! threads. Disks: `--state` is a directory of the machine that the test runs on, and never fails. The kernel's sockets:
//! segments are delivered in order or not at all, and what a partition swallowed is not sent again, so a connection that
//! lost something stays silent until it is given up. Fits, exchanges, Unix sockets, TLS, the metrics page, signals and
//! the Python client. Memory that runs out. Connections that are asked to go because of their age, whose time is drawn
//! at random. The store's pauses between tries are all the same, for the same reason.
//!
//! **How a run can be had again.** Nothing in it is left to the machine: numbers come from the seed, time from turmoil,
//! and what would put a date or a name of the process on the wire is set by the test, as a connection's pace depends on
//! each byte. `SIMULATE_SEED=N cargo test -p forebay-simulation replay -- --nocapture` shows seed N's schedule and all
//! that happened; a test holds the logs of two runs of a seed against each other.
//!
//! All of the code is in `tests/simulation`, so that what turmoil turns on in tokio (a clock that can be stopped) is in
//! no program.

#![forbid(unsafe_code)]
