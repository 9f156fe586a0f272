//! Handles of the metrics without labels, created once.

use std::sync::OnceLock;

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

pub(super) struct Handles {
    pub(super) streams_active: Gauge,
    pub(super) streams_paused: Gauge,
    pub(super) batches: Counter,
    pub(super) rows: Counter,
    pub(super) bytes: Counter,
    pub(super) first_batch_seconds: Histogram,
    pub(super) batch_seconds: Histogram,
    pub(super) read_bytes: Counter,
    pub(super) retries: Counter,
    pub(super) cache_hits: Counter,
    pub(super) cache_misses: Counter,
    pub(super) cache_page_hits: Counter,
    pub(super) cache_page_misses: Counter,
    pub(super) cache_evictions: Counter,
    pub(super) cache_bytes: Gauge,
    pub(super) reserved: Gauge,
    pub(super) limit: Gauge,
    pub(super) connections_active: Gauge,
    pub(super) fits_active: Gauge,
    pub(super) view_runs_active: Gauge,
    pub(super) view_run_seconds: Histogram,
    pub(super) udf_seconds: Histogram,
    pub(super) exchanges_active: Gauge,
    pub(super) exchange_batches: Counter,
    pub(super) exchange_rows: Counter,
    pub(super) exchange_seconds: Histogram,
}

pub(super) fn handles() -> &'static Handles {
    static HANDLES: OnceLock<Handles> = OnceLock::new();
    HANDLES.get_or_init(|| Handles {
        streams_active: gauge!("forebay_streams_active"),
        streams_paused: gauge!("forebay_streams_paused"),
        batches: counter!("forebay_batches_sent_total"),
        rows: counter!("forebay_rows_sent_total"),
        bytes: counter!("forebay_sent_bytes_total"),
        first_batch_seconds: histogram!("forebay_first_batch_seconds"),
        batch_seconds: histogram!("forebay_batch_seconds"),
        retries: counter!("forebay_storage_retries_total"),
        connections_active: gauge!("forebay_connections_active"),
        read_bytes: counter!("forebay_storage_read_bytes_total"),
        cache_hits: counter!("forebay_cache_hits_total"),
        cache_misses: counter!("forebay_cache_misses_total"),
        cache_page_hits: counter!("forebay_cache_page_hits_total"),
        cache_page_misses: counter!("forebay_cache_page_misses_total"),
        cache_evictions: counter!("forebay_cache_evictions_total"),
        cache_bytes: gauge!("forebay_cache_bytes"),
        reserved: gauge!("forebay_memory_reserved_bytes"),
        limit: gauge!("forebay_memory_limit_bytes"),
        fits_active: gauge!("forebay_fits_active"),
        view_runs_active: gauge!("forebay_view_runs_active"),
        view_run_seconds: histogram!("forebay_view_run_seconds"),
        udf_seconds: histogram!("forebay_udf_seconds"),
        exchanges_active: gauge!("forebay_exchanges_active"),
        exchange_batches: counter!("forebay_exchange_batches_total"),
        exchange_rows: counter!("forebay_exchange_rows_total"),
        exchange_seconds: histogram!("forebay_exchange_seconds"),
    })
}
