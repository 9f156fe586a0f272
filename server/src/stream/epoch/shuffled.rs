//! A rank's rows shuffled: each of its lanes makes windows ahead, every row written at its permuted place at once; batches
//! take rows of the lanes' windows in turn.

use std::{mem, ops::Range, sync::Arc, time::Instant};

use arrow::{array::RecordBatch, datatypes::SchemaRef};
use forebay_kernels::{Interleave, Workspace};
use futures::StreamExt;
use tokio::{sync::mpsc, task::JoinSet};
use tracing::Instrument;

use crate::stream::{
    FETCH_AHEAD, Prepared, StreamError, Streams,
    decode::decode,
    device::Builder,
    epoch::batches::{Ended, Outlet},
    epoch::group::OpenGroup,
    epoch::task::fetched_ahead,
    resolve::rows::Rows,
};
use crate::{
    log::PARTS,
    metrics::{Stage, StageTimes},
    order::{Lane, Piece, Sequence, Share, Shuffle, Window},
    scan::Sharing,
};

/// What a lane holds besides rows and bytes of files: its task, and the states of its decoders, of which every column
/// has one. Measured on lanes of a few rows.
const LANE_BYTES: u64 = 96 << 10;

/// See [`LANE_BYTES`].
const LANE_COLUMN_BYTES: u64 = 48 << 10;

/// Where a row goes: its place, and for AS_STORED columns, which are put together at a window's end, where it lies.
const PLACE_BYTES: u64 = (size_of::<u32>() + size_of::<(usize, usize)>()) as u64;

/// Windows of a lane that exist at once: one that batches take rows of, and one that is made ahead.
const WINDOWS_HELD: u64 = 2;

/// Rows of several lanes in turn. Dropping it ends the lanes' tasks.
struct Turns {
    /// One a lane: its windows, in order.
    feeds: Vec<mpsc::Receiver<Result<Made, StreamError>>>,
    /// The lanes' windows of one index; empty where a lane has none.
    windows: Arc<Vec<RecordBatch>>,
    /// The index of the windows that come next.
    next_window: u64,
    window_rows: u64,
    /// The row that comes next, counted over all the lanes.
    next_row: u64,
    schema: SchemaRef,
    _tasks: JoinSet<()>,
}

/// A window, and where the time of making it went.
type Made = (RecordBatch, StageTimes);

/// Makes a lane's windows.
struct LaneReader {
    streams: Arc<Streams>,
    prepared: Prepared,
    sequence: Arc<Sequence>,
    lane: Lane,
    /// What the lanes' readers share: lanes that lie in one large row group fetch it once.
    sharing: Arc<Sharing>,
    /// The row group that the window before ended in.
    open: Option<OpenGroup>,
    /// What the window before left behind: dictionaries that went through the chains.
    workspace: Workspace,
    times: StageTimes,
}

/// Sends a share's batches.
pub(crate) async fn send(
    streams: &Arc<Streams>,
    prepared: &Prepared,
    shuffle: Shuffle,
    share: &Share,
    outlet: &mut Outlet,
) -> Result<(), Ended> {
    let epoch = prepared.epoch.clone();
    let sequence = streams.cpu.run(move || Arc::new(epoch.sequence())).await?;
    let own_end = share.start + share.own_rows();
    let own = prepared.epoch.lanes_of(share.rank);
    let mut turns = Turns::start(streams, prepared, &sequence, &own, shuffle, share.start, own_end);
    let mut next = share.start;
    while next < share.end {
        let rows = prepared.request.batch_size.min(share.end - next);
        let own_rows = own_end.saturating_sub(next).min(rows);
        let mut interleaved = Interleave::new(Arc::clone(&prepared.compiled.program), rows as usize);
        interleaved = turns.take(streams, interleaved, own_rows, outlet).await?;
        if own_rows < rows {
            turns.windows = Arc::default();
            interleaved = repeat(streams, prepared, shuffle, &sequence, share, interleaved, outlet).await?;
        }
        let batch = streams.cpu.run_short(move || interleaved.finish()).await??;
        outlet.send(batch).await?;
        next += rows;
    }
    Ok(())
}

/// Fills a batch up with the rank's first rows, again and again; a rank without rows repeats the one at the position of
/// its number, counted round (PAD).
async fn repeat(
    streams: &Arc<Streams>,
    prepared: &Prepared,
    shuffle: Shuffle,
    sequence: &Arc<Sequence>,
    share: &Share,
    mut interleaved: Interleave,
    outlet: &mut Outlet,
) -> Result<Interleave, Ended> {
    let missing = (interleaved.capacity() - interleaved.len()) as u64;
    let lanes = match share.length {
        0 => {
            let position = share.rank % prepared.epoch.row_count();
            prepared.epoch.lane(position % shuffle.lanes).into_iter().collect()
        }
        _ => prepared.epoch.lanes_of(share.rank),
    };
    let count = missing.min(share.length.max(1));
    let mut turns = Turns::start(streams, prepared, sequence, &lanes, shuffle, 0, count);
    let first = Interleave::new(Arc::clone(&prepared.compiled.program), count as usize);
    let first = [turns.take(streams, first, count, outlet).await?.finish()?];
    while !interleaved.is_full() {
        let rows = (interleaved.capacity() - interleaved.len()).min(count as usize);
        interleaved.append(&first, 0, rows)?;
    }
    Ok(interleaved)
}

/// The compressed row groups that the lanes have open, their chunks and their windows.
pub(crate) fn reading_bytes(prepared: &Prepared, shuffle: &Shuffle, share: &Share) -> u64 {
    let projection = &prepared.compiled.rows.projection;
    let lanes = prepared.epoch.lanes_of(share.rank);
    let lane_rows = lanes.iter().map(|lane| lane.length).max().unwrap_or(0).max(1);
    let window_rows = shuffle.window_rows.min(lane_rows);
    let (mut fetched, mut chunk, mut fewest_rows, mut groups) = (0_u64, 0, u64::MAX, 0_u64);
    for (group, passing) in prepared.snapshot.row_groups().iter().zip(prepared.epoch.passing()) {
        if *passing > 0 {
            fetched = projection.stored_bytes(&prepared.snapshot, group).max(fetched);
            let decoding = projection.chunk_bytes(&prepared.snapshot, group);
            chunk = decoding.saturating_add(projection.decoder_bytes(&prepared.snapshot, group)).max(chunk);
            fewest_rows = fewest_rows.min(*passing);
            groups += 1;
        }
    }
    let lane_count = lanes.len().max(1) as u64;
    // A window lies in two row groups at most, unless they are smaller than it. Lanes share those that they have in common.
    let groups_held = if fewest_rows >= window_rows { 2 } else { FETCH_AHEAD as u64 + 1 };
    let groups_held = groups_held.saturating_mul(lane_count).min(groups);
    let scratch_rows = window_rows.min(1024);
    let made_rows = WINDOWS_HELD.saturating_mul(window_rows).saturating_add(scratch_rows);
    let lane = (prepared.wire_row_bytes().saturating_mul(made_rows))
        .saturating_add(window_rows.saturating_mul(PLACE_BYTES + prepared.compiled.stored_row_bytes))
        .saturating_add(chunk)
        .saturating_add(LANE_BYTES)
        .saturating_add(LANE_COLUMN_BYTES.saturating_mul(projection.schema().fields().len() as u64));
    lane.saturating_mul(lane_count).saturating_add(fetched.saturating_mul(groups_held))
}

// === impl Turns ===

impl Turns {
    /// Rows `start..end`, counted over the lanes in turn.
    fn start(
        streams: &Arc<Streams>,
        prepared: &Prepared,
        sequence: &Arc<Sequence>,
        lanes: &[Lane],
        shuffle: Shuffle,
        start: u64,
        end: u64,
    ) -> Self {
        let count = lanes.len().max(1) as u64;
        let window_of = |row: u64| row / count / shuffle.window_rows;
        let windows = window_of(start)..if end > start { window_of(end - 1) + 1 } else { window_of(start) };
        let (mut tasks, sharing) = (JoinSet::new(), Arc::<Sharing>::default());
        let feeds = lanes.iter().map(|lane| {
            let (sender, receiver) = mpsc::channel(WINDOWS_HELD as usize - 1);
            let reader = LaneReader {
                streams: Arc::clone(streams),
                prepared: prepared.clone(),
                sequence: Arc::clone(sequence),
                lane: *lane,
                sharing: Arc::clone(&sharing),
                open: None,
                workspace: Workspace::default(),
                times: StageTimes::default(),
            };
            tasks.spawn(reader.run(windows.clone(), sender).in_current_span());
            receiver
        });
        let feeds = feeds.collect();
        Self {
            feeds,
            windows: Arc::default(),
            next_window: windows.start,
            window_rows: shuffle.window_rows,
            next_row: start,
            schema: prepared.schema(),
            _tasks: tasks,
        }
    }

    /// Adds the next rows to a batch.
    async fn take(
        &mut self,
        streams: &Streams,
        mut interleaved: Interleave,
        rows: u64,
        outlet: &mut Outlet,
    ) -> Result<Interleave, Ended> {
        let end = self.next_row + rows;
        let lanes = self.feeds.len() as u64;
        while self.next_row < end {
            let index = self.next_row / lanes / self.window_rows;
            if index >= self.next_window {
                self.receive(&mut outlet.times).await?.ok_or_else(|| outlet.prepared.miscounted())?;
            }
            let first = self.next_row - index * self.window_rows * lanes;
            let count = (end - self.next_row).min(self.window_rows * lanes - first);
            let windows = Arc::clone(&self.windows);
            let woven = streams.cpu.run_short(move || {
                let start = Instant::now();
                let added = interleaved.append(&windows, first as usize, count as usize);
                added.map(|()| (interleaved, start.elapsed()))
            });
            let taken;
            (interleaved, taken) = woven.await??;
            outlet.times.add(Stage::Assemble, taken);
            self.next_row += count;
        }
        Ok(interleaved)
    }

    /// Takes the next window of every lane that has one. Nothing if none has.
    async fn receive(&mut self, times: &mut StageTimes) -> Result<Option<()>, StreamError> {
        // The windows before are given back first: those made ahead take their room.
        self.windows = Arc::default();
        let mut windows = Vec::with_capacity(self.feeds.len());
        let mut any = None;
        for feed in &mut self.feeds {
            windows.push(match feed.recv().await {
                Some(made) => {
                    let (window, taken) = made?;
                    any = Some(());
                    times.merge(taken);
                    window
                }
                None => RecordBatch::new_empty(SchemaRef::clone(&self.schema)),
            });
        }
        self.windows = Arc::new(windows);
        self.next_window += 1;
        Ok(any)
    }
}

// === impl LaneReader ===

impl LaneReader {
    async fn run(mut self, windows: Range<u64>, sender: mpsc::Sender<Result<Made, StreamError>>) {
        for index in windows {
            let window = self.lane.window(index);
            if window.rows.is_empty() {
                break;
            }
            // Nothing is made before there is room for it.
            let Ok(room) = sender.reserve().await else { return };
            let span =
                tracing::info_span!(target: PARTS, "window", lane = self.lane.index as i64, window = index as i64);
            let made = self.make(window).instrument(span).await;
            let failed = made.is_err();
            room.send(made.map(|window| (window, mem::take(&mut self.times))));
            if failed {
                return;
            }
        }
    }

    async fn make(&mut self, window: Window) -> Result<RecordBatch, StreamError> {
        let rows = (window.rows.end - window.rows.start) as usize;
        let pieces = self.sequence.pieces(window.rows.clone());
        let placed = self.prepared.compiled.placed.clone();
        let workspace = mem::take(&mut self.workspace);
        let prepare = move || (placed.scattered(rows, workspace), window.places());
        let (mut builder, mut places) = self.streams.cpu.run(prepare).await?;
        let (prepared, streams) = (self.prepared.clone(), Arc::clone(&self.streams));
        let (snapshot, rows) = (&prepared.snapshot, &prepared.compiled.rows);
        let (mut open, columns) = (self.open.take(), rows.projection.schema());
        let mut groups = fetched_ahead(pieces.into_iter().map(|piece| {
            // The window before may have ended in the row group that this one begins in.
            let open = open.take().filter(|open| open.leads_to(&piece));
            let (snapshot, rows) = (Arc::clone(snapshot), Arc::clone(rows));
            let (streams, sharing) = (Arc::clone(&streams), Arc::clone(&self.sharing));
            async move {
                if let Some(group) = open {
                    return Ok((piece, group));
                }
                let (cpu, budget) = (&streams.cpu, &streams.budget);
                let opened = OpenGroup::open(&snapshot, piece, &rows, cpu, budget, &sharing).await;
                opened.map(|group| (piece, group))
            }
        }));
        let mut done = 0;
        loop {
            let start = Instant::now();
            let Some(opened) = groups.next().await else { break };
            let (piece, mut group) = opened?;
            // What lies in the queue for the CPU is no wait for storage; a group that was open already is no wait at all.
            self.times.add(Stage::Fetch, start.elapsed().min(group.fetch_time()));
            let (rows, mut times) = (Arc::clone(rows), mem::take(&mut self.times));
            let work = move || {
                let made = scatter(&mut group, &piece, &rows, &mut builder, &places[done..], &mut times);
                (builder, places, group, times, made)
            };
            let row_group = &snapshot.row_groups()[piece.row_group];
            let made;
            (builder, places, group, self.times, made) =
                decode(&streams.cpu, snapshot, row_group, columns, work).await?;
            made?;
            if !group.is_past(&piece) {
                return Err(prepared.miscounted());
            }
            done += piece.take as usize;
            self.open = Some(group);
        }
        let (window, workspace) = streams.cpu.run(move || builder.finish()).await?;
        self.workspace = workspace;
        Ok(window?)
    }
}

/// Writes the rows of a piece at their places.
fn scatter(
    group: &mut OpenGroup,
    piece: &Piece,
    rows: &Rows,
    builder: &mut Builder,
    mut places: &[u32],
    times: &mut StageTimes,
) -> Result<(), StreamError> {
    while let Some(run) = group.next_run(piece, rows, times)? {
        let start = Instant::now();
        let (these, rest) = places.split_at(run.rows.len());
        builder.scatter(&run.chunk, run.rows, these)?;
        places = rest;
        times.add_since(Stage::Assemble, start);
    }
    Ok(())
}
