//! Names of metrics, values of the label `call`, and bounds of histograms.

/// Values of the label `call`: Flight's methods, and those of gRPC's health service.
pub const CALLS: [&str; 12] = [
    "Handshake",
    "ListFlights",
    "GetFlightInfo",
    "PollFlightInfo",
    "GetSchema",
    "DoGet",
    "DoPut",
    "DoExchange",
    "DoAction",
    "ListActions",
    "Check",
    "Watch",
];

/// Name and meaning of every metric, in the order of the book's table.
pub const NAMES: [(&str, &str); 67] = [
    ("forebay_streams_active", "Open streams."),
    ("forebay_streams_total", "Ended streams, by status (complete, cancelled, failed)."),
    (
        "forebay_streams_paused",
        "Open streams whose clients take no batch, and which have released their memory until they do.",
    ),
    (
        "forebay_stream_pauses_total",
        "Times that a stream released its memory, by reason (unread: `--stream-pause-seconds`; shortage: another client \
         needed the memory).",
    ),
    ("forebay_batches_sent_total", "Batches sent to clients."),
    ("forebay_rows_sent_total", "Rows in those batches."),
    ("forebay_sent_bytes_total", "Arrow bytes of those batches, including headers."),
    (
        "forebay_stage_seconds_total",
        "Seconds that streams spent in each stage: fetch (waiting for storage), queue (waiting for a CPU thread), decode, \
         transform, udf (waiting for Python functions), assemble (computing), send_wait (waiting for the client).",
    ),
    ("forebay_first_batch_seconds", "Seconds from a `DoGet` until its first batch is sent."),
    (
        "forebay_batch_seconds",
        "Seconds from one batch of a stream to the next, without time spent waiting for the client.",
    ),
    (
        "forebay_requests_total",
        "Calls by Flight method (call) and gRPC code of the response (code); a stream that opens is OK.",
    ),
    (
        "forebay_refusals_total",
        "Calls that ended with an error of the server, by stable reason (reason) and caller (principal: a configured one, \
         anonymous where no credentials are required, unknown where they are missing or wrong); cancelled calls are not \
         counted.",
    ),
    ("forebay_connections_active", "Open client connections."),
    ("forebay_ready", "1 while the server accepts new streams, 0 while it drains."),
    (
        "forebay_config_reloads_total",
        "Reloads of the configuration (SIGHUP) and of changed files of principals and certificates, by status (ok, failed).",
    ),
    (
        "forebay_storage_requests_total",
        "Requests to storage, by operation (list, head, get; for state in an object store also put, delete) and status \
         (ok, error).",
    ),
    ("forebay_storage_retries_total", "Attempts of those requests that failed with a retryable error."),
    ("forebay_storage_read_bytes_total", "Bytes read from storage."),
    (
        "forebay_cache_requests_total",
        "Lookups of values that are expensive to compute, by cache (footers, plans, row_groups, fits) and result (hit, \
         miss).",
    ),
    (
        "forebay_cache_hits_total",
        "Chunks of rows that streams copied from the cache of finished rows (`--cache-bytes`), including those for which they \
         waited while another stream computed them.",
    ),
    (
        "forebay_cache_misses_total",
        "Chunks of rows that streams computed while the cache is on and keeps rows of their plan.",
    ),
    (
        "forebay_cache_page_hits_total",
        "Column chunks whose decompressed pages streams read from the cache (`--cache-bytes`), for plans whose rows it does \
         not keep.",
    ),
    (
        "forebay_cache_page_misses_total",
        "Column chunks that streams fetched and decompressed while the cache is on and keeps pages for their plan.",
    ),
    (
        "forebay_cache_evictions_total",
        "Row groups whose rows, and column chunks whose pages, were removed from the cache to make room for others.",
    ),
    (
        "forebay_cache_bytes",
        "Bytes in the cache: row groups, including those that are not computed completely, and pages.",
    ),
    (
        "forebay_cache_disk_hits_total",
        "Chunks of rows that streams read from the disk tier of the cache (`--cache-dir`); forebay_cache_hits_total has them, \
         too.",
    ),
    (
        "forebay_cache_disk_evictions_total",
        "Chunks of rows that were removed from the disk tier to make room for others.",
    ),
    ("forebay_cache_disk_bytes", "Bytes of the files of the disk tier."),
    (
        "forebay_cache_disk_damaged_total",
        "Files of the disk tier that were damaged, and whose rows were computed again.",
    ),
    (
        "forebay_cache_disk_dropped_total",
        "Chunks of rows that were not written to the disk tier, because it was full or slower than the streams.",
    ),
    ("forebay_memory_reserved_bytes", "Bytes reserved from the memory budget by streams, fits and descriptions."),
    ("forebay_memory_limit_bytes", "The memory budget."),
    (
        "forebay_tls_certificate_expiry_timestamp_seconds",
        "Time at which the server's certificate expires, in seconds since 1970; absent without TLS.",
    ),
    ("forebay_state_bytes", "Bytes of files or objects under --state, without those that running fits spill."),
    ("forebay_state_plans", "Plans stored under --state."),
    ("forebay_fits_active", "Running fits."),
    ("forebay_view_runs_active", "Running SQL of views."),
    ("forebay_view_runs_total", "Ended runs of the SQL of views, by status (complete, failed)."),
    ("forebay_view_run_seconds", "Seconds from the start of such a run to its end."),
    (
        "forebay_udf_calls_total",
        "Calls of Python functions, by status (ok, failed, died, timeout, unreachable, refused, limit).",
    ),
    ("forebay_udf_seconds", "Seconds of such a call, with the transfer of its columns."),
    (
        "forebay_image_errors_total",
        "Images that could not be decoded, by what the plan has happen to them (action: fail, null, skip); skipped ones are \
         counted once for a snapshot and a plan.",
    ),
    ("forebay_exchanges_active", "Open exchanges (DoExchange)."),
    ("forebay_exchanges_total", "Ended exchanges, by status (complete, cancelled, failed)."),
    ("forebay_exchange_batches_total", "Batches returned by exchanges."),
    ("forebay_exchange_rows_total", "Rows in those batches."),
    ("forebay_exchange_seconds", "Seconds from the arrival of a complete batch to its result, measured in the server."),
    ("forebay_stream_rows_total", "Rows sent by an open stream (stream, dataset, epoch, rank)."),
    ("forebay_stream_bytes_total", "Arrow bytes sent by an open stream."),
    ("forebay_stream_position", "Next global position of an open stream."),
    ("forebay_stream_open_seconds", "Seconds since an open stream was requested."),
    ("forebay_stream_stage_seconds_total", "Seconds of an open stream per stage."),
    ("forebay_cpu_threads", "Threads that decode and compute."),
    ("forebay_cpu_jobs_waiting", "Jobs that wait for one of those threads."),
    (
        "forebay_cpu_wait_seconds",
        "Longest time that one of those jobs has waited until now. Each client has a share of the threads, so that more than \
         some seconds mean that the server is overloaded, or that one client has many jobs.",
    ),
    ("forebay_cpu_busy_seconds_total", "CPU seconds of those threads."),
    ("forebay_runtime_workers", "Threads that move data (tokio's workers)."),
    ("forebay_runtime_tasks", "Tasks on those threads."),
    ("forebay_runtime_queue_depth", "Tasks that wait in the shared queue."),
    ("forebay_runtime_busy_seconds_total", "Seconds that those threads were busy."),
    ("forebay_process_cpu_seconds_total", "CPU seconds of the process, user and system."),
    ("forebay_process_resident_memory_bytes", "Resident memory of the process."),
    ("forebay_process_open_fds", "Open file descriptors."),
    ("forebay_process_max_fds", "Limit of open file descriptors."),
    ("forebay_process_threads", "Threads of the process."),
    ("forebay_process_start_time_seconds", "Start time of the process, in seconds since 1970."),
    ("forebay_build_info", "1, with the version as a label."),
];

/// Upper bounds of `forebay_batch_seconds`: 100 µs to 100 s in half decades.
const BATCH_SECONDS_BUCKETS: [f64; 13] =
    [0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0];

/// Histograms with their upper bounds.
pub(super) const HISTOGRAMS: [(&str, &[f64]); 5] = [
    ("forebay_first_batch_seconds", &BATCH_SECONDS_BUCKETS),
    ("forebay_batch_seconds", &BATCH_SECONDS_BUCKETS),
    ("forebay_exchange_seconds", &EXCHANGE_SECONDS_BUCKETS),
    ("forebay_view_run_seconds", &VIEW_RUN_SECONDS_BUCKETS),
    ("forebay_udf_seconds", &BATCH_SECONDS_BUCKETS),
];

/// Upper bounds of `forebay_exchange_seconds`: 30 µs to 10 s in half decades, because a batch may have a single row.
const EXCHANGE_SECONDS_BUCKETS: [f64; 12] =
    [0.000_03, 0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0];

/// Upper bounds of `forebay_view_run_seconds`: 300 ms to 10,000 s in half decades.
const VIEW_RUN_SECONDS_BUCKETS: [f64; 10] = [0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 10_000.0];
