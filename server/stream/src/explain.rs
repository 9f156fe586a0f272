//! The cost of an epoch, from arithmetic, footers and page indexes: only counting a filter's rows reads data.

mod bucket_reads;
mod mixture_reads;
mod piece_reads;
mod totals;

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use forebay_cache::RowCache;
use forebay_catalog::Snapshot;
use forebay_order::{Sequence, Share, estimate, mixing, row_groups};
use forebay_plan::{PlanError, Request};
use forebay_proto::v1;
use forebay_scan::LibraryReason;

use super::{
    environment::Environment,
    epoch::{in_order, memory},
    error::StreamError,
    prepare::{
        cache_level::CacheLevel,
        dataset::PreparedDataset,
        prepared::{Prepared, PreparedRows},
        resolver::Resolver,
    },
};
use piece_reads::{KnownPages, PieceReads};
use totals::{SAMPLE_BATCHES_MAX, SAMPLE_ROWS, add_totals};

/// Column chunks whose decoder is determined, at most.
const CHUNKS_MAX: usize = 1 << 20;

/// Columns that are named with the reason why the Parquet library decodes them, at most.
const LIBRARY_COLUMNS_MAX: usize = 100;

/// Characters of the names and reasons of these columns, at most.
const NAME_CHARACTERS_MAX: usize = 100;

/// Explains a request. Its `assume` replaces properties of the dataset by assumed ones.
pub(super) async fn explain(
    environment: &Environment,
    resolver: &Resolver,
    mut message: v1::StreamRequest,
) -> Result<v1::Explain, StreamError> {
    let assume = message.assume.take().unwrap_or_default();
    estimate::check_speeds(&assume).map_err(PlanError::from)?;
    let memory_limit_bytes = environment.budget.limit();
    let (sample, sample_seed) = (message.sample.unwrap_or(1.0), message.sample_seed);
    if assume.rows > 0 && message.bucket_by_length.is_some() {
        let reason = "cannot be combined with bucket_by_length: the lengths of rows decide its steps";
        return Err(PlanError::field("assume.rows", reason).into());
    }
    let is_arithmetic = message.dataset.is_empty() && message.sources.is_empty();
    if is_arithmetic && assume.rows > 0 && assume.row_bytes > 0 {
        let explained = estimate::estimate(&message, &assume).map_err(PlanError::from)?;
        return Ok(v1::Explain { memory_limit_bytes, ..explained });
    }
    let prepared = resolver.prepare(Request::check(&message)?).await?;
    let mut pages = KnownPages::default();
    loop {
        let (of_job, cache) = (prepared.clone(), environment.cache.clone());
        let explain = move || {
            let cache = Some(explain_cache(&of_job, &cache));
            (v1::Explain { cache, ..explain_prepared(&of_job, &assume, &pages) }, pages)
        };
        let explained;
        (explained, pages) = environment.cpu.run(explain).await?;
        // Reads of some pages only are explained once these are known.
        if !pages.add_missing(environment, prepared.datasets()).await? {
            return Ok(v1::Explain { memory_limit_bytes, sample, sample_seed, ..explained });
        }
    }
}

fn explain_prepared(prepared: &Prepared, assume: &v1::Assumptions, pages: &KnownPages) -> v1::Explain {
    let (ordered, request) = (prepared.ordered(), prepared.request());
    let row_bytes = if assume.row_bytes > 0 { assume.row_bytes } else { ordered.wire_row_bytes() };
    let epoch = if assume.rows > 0 { request.order(Arc::new(vec![assume.rows])) } else { prepared.epoch().clone() };
    let mut explained = estimate::sizes(&epoch, request.world_size, row_bytes);
    prepared.snapshot_digest().clone_into(&mut explained.snapshot);
    prepared.plan_id().clone_into(&mut explained.plan_id);
    match prepared.rows() {
        PreparedRows::Mixture(mixture) => mixture_reads::add(mixture, pages, &mut explained),
        PreparedRows::Buckets(buckets) => {
            bucket_reads::add(prepared, buckets, &mut explained);
            add_row_groups(&buckets.first().snapshot, &mut explained);
            let weighted = buckets.buckets.iter().map(|bucket| {
                row_groups_per_batch(bucket, &bucket.epoch.sequence()) * bucket.epoch.step_count_max() as f64
            });
            explained.row_groups_per_batch = weighted.sum::<f64>() / buckets.order.step_count().max(1) as f64;
        }
        PreparedRows::Dataset(dataset) => {
            add_reads(dataset, pages, &mut explained);
            add_row_groups(&dataset.snapshot, &mut explained);
            explained.rank_rows_kept = dataset.rank_rows_kept();
            explained.place_correlation = mixing::place_correlation(&dataset.epoch).unwrap_or(0.0);
        }
    }
    add_decoders(prepared.widest(), &mut explained);
    let functions = ordered.compiled().rows.function_names();
    explained.udfs = functions.map(|name| name.chars().take(NAME_CHARACTERS_MAX).collect()).collect();
    // Reads are proportional to the rows.
    let scale = if assume.rows > 0 { assume.rows as f64 / prepared.epoch().row_count().max(1) as f64 } else { 1.0 };
    if assume.rows > 0 {
        let scaled = |bytes: u64| (bytes as f64 * scale) as u64;
        explained.stored_bytes = scaled(explained.stored_bytes);
        explained.read_bytes = scaled(explained.read_bytes);
        for rank in &mut explained.ranks {
            rank.read_bytes = scaled(rank.read_bytes);
        }
    }
    estimate::add_times(&mut explained, assume);
    explained
}

/// What the rows of the epoch take in the cache: those of all sources of a mixture.
fn explain_cache(prepared: &Prepared, cache: &RowCache) -> v1::CacheExplain {
    let mut explained = v1::CacheExplain { limit_bytes: cache.capacity(), ..v1::CacheExplain::default() };
    let mut seen = HashSet::new();
    for source in prepared.datasets() {
        let row_bytes = source.cached_row_bytes();
        // Without a cache, what one would keep.
        let capacity = if explained.limit_bytes == 0 { u64::MAX } else { explained.limit_bytes };
        let (needed, key) = match (source.cache_level(capacity), &row_bytes) {
            (CacheLevel::Rows(row_bytes), _) => (source.finished_bytes(row_bytes), source.rows_key()),
            (CacheLevel::Chunks, _) => {
                explained.pages = true;
                (source.unpacked_bytes(), source.chunks_key())
            }
            (CacheLevel::Off, Ok(_)) => continue,
            (CacheLevel::Off, Err(reason)) => {
                explained.reason = reason.chars().take(NAME_CHARACTERS_MAX).collect();
                continue;
            }
        };
        // Buckets of a dataset share its column chunks.
        if seen.insert(key.clone()) {
            explained.needed_bytes = explained.needed_bytes.saturating_add(needed);
            explained.cached_bytes = explained.cached_bytes.saturating_add(cache.bytes_of(&key));
        }
    }
    explained
}

/// Bytes read from storage and kept in memory, for the rows of the dataset.
fn add_reads(prepared: &PreparedDataset, pages: &KnownPages, explained: &mut v1::Explain) {
    let (epoch, snapshot) = (&prepared.epoch, &prepared.snapshot);
    let projection = &prepared.compiled.rows.projection;
    let bytes: Vec<u64> = snapshot.row_groups().iter().map(|group| projection.stored_bytes(snapshot, group)).collect();
    let passing = || bytes.iter().zip(epoch.passing()).filter(|(_, rows)| **rows > 0);
    explained.row_groups = passing().count() as u64;
    explained.stored_bytes = passing().map(|(bytes, _)| *bytes).fold(0, u64::saturating_add);
    let sequence = epoch.sequence();
    let reads = PieceReads::new(prepared, 0, pages);
    let of_lanes = epoch.shuffle().map(|shuffle| memory::shuffled_bytes(prepared, shuffle, &epoch.share(0)));
    for rank in &mut explained.ranks {
        let share = epoch.share(rank.rank);
        let reading = if let Some(bytes) = of_lanes {
            let lanes = epoch.lanes_of(rank.rank).into_iter();
            rank.read_bytes =
                reads.lanes_bytes(lanes.map(|lane| sequence.pieces(lane.start..lane.start + lane.length)));
            bytes
        } else {
            let pieces = in_order::pieces(prepared, &sequence, &share);
            rank.read_bytes = reads.bytes(&pieces);
            memory::in_order_bytes(prepared, &pieces)
        };
        rank.memory_bytes = memory::with_batches(prepared, reading);
    }
    add_totals(explained);
    explained.row_groups_per_batch = row_groups_per_batch(prepared, &sequence);
}

/// The size of the dataset's row groups, and the recommended one.
fn add_row_groups(snapshot: &Snapshot, explained: &mut v1::Explain) {
    explained.row_group_rows = snapshot.row_count() as f64 / snapshot.row_groups().len().max(1) as f64;
    explained.recommended_row_group_rows = row_groups::recommended_rows(snapshot.stored_row_bytes());
}

/// The columns by their decoder, from the footers of row groups with passing rows.
fn add_decoders(prepared: &PreparedDataset, explained: &mut v1::Explain) {
    let (snapshot, projection) = (&prepared.snapshot, &prepared.compiled.rows.projection);
    let columns = projection.schema().fields();
    let with_rows = snapshot.row_groups().iter().zip(prepared.epoch.passing()).filter(|(_, rows)| **rows > 0);
    let mut by_library: BTreeMap<usize, (LibraryReason, u64)> = BTreeMap::new();
    for (row_group, _) in with_rows.take(CHUNKS_MAX / columns.len().max(1)) {
        for (column, reason) in projection.library_columns(snapshot, row_group) {
            by_library.entry(column).or_insert((reason, 0)).1 += 1;
        }
    }
    explained.columns = columns.len() as u64;
    explained.fused_columns = (columns.len() - by_library.len()) as u64;
    let named = by_library.into_iter().take(LIBRARY_COLUMNS_MAX);
    explained.library_columns = named
        .map(|(column, (reason, row_groups))| v1::LibraryColumn {
            column: columns[column].name().chars().take(NAME_CHARACTERS_MAX).collect(),
            reason: reason.to_string().chars().take(NAME_CHARACTERS_MAX).collect(),
            row_groups,
        })
        .collect();
}

/// The mean number of row groups in a full batch of rank 0, over evenly spaced batches.
fn row_groups_per_batch(prepared: &PreparedDataset, sequence: &Sequence) -> f64 {
    let (epoch, batch_size) = (&prepared.epoch, prepared.request.batch_size);
    let share = epoch.share(0);
    let rows = batch_size.min(share.length);
    if rows == 0 {
        return 0.0;
    }
    let batches = (share.length / rows).min(SAMPLE_BATCHES_MAX).min((SAMPLE_ROWS / rows).max(1));
    let step = share.length / rows / batches;
    let groups_of = |batch: u64| {
        let start = batch * step * rows;
        let whole = Share { start, end: start + rows, ..share };
        if epoch.shuffle().is_none() {
            return in_order::pieces(prepared, sequence, &whole).len();
        }
        // A larger batch is estimated from its first rows.
        let rows = start..start + rows.min(SAMPLE_ROWS);
        let places = rows.filter_map(|row| epoch.row_at(row * prepared.request.world_size));
        places.map(|place| sequence.row_group_at(place)).collect::<HashSet<_>>().len()
    };
    (0..batches).map(|batch| groups_of(batch) as f64).sum::<f64>() / batches as f64
}
