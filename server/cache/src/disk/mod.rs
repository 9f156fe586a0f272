//! The disk tier: finished blocks in files of a directory, where later servers find them.
//!
//! A thread writes what streams compute. Streams never wait for it: what does not fit into its queue is not written.
//! Reads run on threads that may block. A file that is damaged is removed, and its rows are computed again.

mod directory;
mod file;
mod index;

use std::{
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use arrow::array::RecordBatch;
use forebay_runtime::{metrics, state::short_digest};
use tokio::task::spawn_blocking;

pub use directory::CacheDirError;

use directory::CacheDirectory;
use index::{BlockOnDisk, BlockPlace, DiskIndex};

/// Blocks that wait to be written, and their bytes.
const QUEUE_MAX: usize = 256;
const QUEUE_BYTES_MAX: u64 = 256 << 20;

/// Time without writes after one that failed, as on a full disk.
const FAILURE_PAUSE: Duration = Duration::from_secs(10);

/// Finished rows in a directory.
#[derive(Debug)]
pub struct DiskTier {
    files: Arc<DiskFiles>,
    queue: SyncSender<WriteJob>,
}

/// What the readers and the writer share.
#[derive(Debug)]
struct DiskFiles {
    directory: CacheDirectory,
    index: Mutex<DiskIndex>,
    queued_bytes: AtomicU64,
}

/// The blocks of one row group.
#[derive(Clone, Debug)]
pub(super) struct DiskRowGroup {
    tier: Arc<DiskTier>,
    name: DiskRowGroupName,
    /// Whether blocks are written.
    admits: bool,
}

/// A block to be written.
#[derive(Debug)]
struct WriteJob {
    name: DiskRowGroupName,
    block: usize,
    rows: RecordBatch,
    bytes: u64,
}

/// What identifies a row group.
#[derive(Clone, Debug)]
struct DiskRowGroupName {
    plan: Arc<str>,
    group: usize,
    /// The state of the row group's file.
    file: Arc<str>,
    /// A digest of it.
    state: u64,
}

// === impl DiskTier ===

impl DiskTier {
    /// Opens a directory for at most `capacity` bytes, and starts the thread that writes. Reads the names of all files.
    pub fn open(root: &Path, capacity: u64) -> Result<Arc<Self>, CacheDirError> {
        let directory = CacheDirectory::open(root)?;
        let index = directory.scan(capacity);
        let files = Arc::new(DiskFiles { directory, index: Mutex::new(index), queued_bytes: AtomicU64::new(0) });
        files.shrink();
        let (queue, jobs) = sync_channel(QUEUE_MAX);
        let writer = Arc::clone(&files);
        // The thread ends with the tier, whose queue it reads.
        let started = thread::Builder::new().name("cache-writer".to_owned()).spawn(move || writer.write_all(&jobs));
        started.map_err(|source| CacheDirError::new(root, format!("cannot start its thread: {source}")))?;
        Ok(Arc::new(Self { files, queue }))
    }

    /// Checks a directory without writing to it.
    pub fn check(root: &Path) -> Result<(), CacheDirError> {
        directory::check(root)
    }

    /// Notes that a stream reads the rows of a plan.
    pub(super) fn open_plan(&self, plan: &str) {
        self.files.index().open(plan);
        self.files.directory.mark_used(plan);
    }

    pub(super) fn close_plan(&self, plan: &str) {
        self.files.index().close(plan);
    }

    /// The blocks of a row group whose file has this state.
    pub(super) fn group(self: &Arc<Self>, plan: &str, group: usize, file: &str, admits: bool) -> DiskRowGroup {
        let state = u64::from_str_radix(&short_digest(&[file.as_bytes()])[..16], 16).unwrap_or_default();
        let name = DiskRowGroupName { plan: plan.into(), group, file: file.into(), state };
        DiskRowGroup { tier: Arc::clone(self), name, admits }
    }
}

// === impl DiskRowGroup ===

impl DiskRowGroup {
    /// The number of passing rows of a block that is on disk.
    pub(super) fn rows_of(&self, block: usize) -> Option<u64> {
        self.on_disk(block).map(|on_disk| on_disk.rows)
    }

    /// Whether a row group of this size can be written.
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        self.admits && self.tier.files.index().has_room(&self.name.plan, bytes)
    }

    /// Reads a block with this number of rows, if that is known; none if it is not on disk, or damaged.
    pub(super) async fn load(&self, block: usize, rows: Option<u64>) -> Option<RecordBatch> {
        let on_disk = self.on_disk(block)?;
        let (files, name) = (Arc::clone(&self.tier.files), self.name.clone());
        let read = spawn_blocking(move || files.read(&name, block, &on_disk)).await;
        // A decoder that panics has found damage.
        let read = read.ok().flatten().filter(|_| rows.is_none_or(|rows| rows == on_disk.rows));
        match read {
            Some(_) => metrics::cache_disk_hit(),
            None => self.tier.files.drop_damaged(&self.name, block, &on_disk),
        }
        read
    }

    /// Lets a block be written, unless it is on disk or too much waits to be written.
    pub(super) fn offer(&self, block: usize, rows: &RecordBatch) {
        if !self.admits || self.on_disk(block).is_some() {
            return;
        }
        let (bytes, files) = (rows.get_array_memory_size() as u64, &self.tier.files);
        let queued = files.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        let job = WriteJob { name: self.name.clone(), block, rows: rows.clone(), bytes };
        if queued + bytes > QUEUE_BYTES_MAX || self.tier.queue.try_send(job).is_err() {
            files.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
            metrics::cache_disk_dropped();
        }
    }

    fn on_disk(&self, block: usize) -> Option<BlockOnDisk> {
        let found = self.tier.files.index().block(&self.name.plan, (self.name.group, block));
        found.filter(|found| found.state == self.name.state)
    }
}

// === impl DiskRowGroupName ===

impl DiskRowGroupName {
    /// A digest of everything that decides the rows of a block.
    fn key(&self, block: usize) -> String {
        let numbers = [self.group as u64, block as u64].map(u64::to_le_bytes).concat();
        short_digest(&[self.plan.as_bytes(), &numbers, self.file.as_bytes()])
    }
}

// === impl DiskFiles ===

impl DiskFiles {
    fn index(&self) -> MutexGuard<'_, DiskIndex> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, name: &DiskRowGroupName, block: usize, on_disk: &BlockOnDisk) -> Option<RecordBatch> {
        let bytes = self.directory.read(&name.plan, (name.group, block), on_disk).ok()?;
        let rows = file::decode(&name.key(block), bytes)?;
        (rows.num_rows() as u64 == on_disk.rows).then_some(rows)
    }

    /// Removes a file that is damaged, unless it was evicted meanwhile.
    fn drop_damaged(&self, name: &DiskRowGroupName, block: usize, on_disk: &BlockOnDisk) {
        let place = (name.group, block);
        let mut index = self.index();
        if index.block(&name.plan, place) == Some(*on_disk) {
            index.remove(&name.plan, place);
            metrics::cache_disk_bytes(index.used());
            drop(index);
            self.directory.remove(&name.plan, place, on_disk);
            metrics::cache_disk_damaged();
            tracing::warn!(plan = %name.plan, "a file of --cache-dir is damaged: its rows are computed again");
        }
    }

    /// Evicts what exceeds the capacity, which an earlier server may have had more of.
    fn shrink(&self) {
        let mut index = self.index();
        let evicted = index.make_room("", 0).unwrap_or_default();
        self.evict(&index, evicted);
    }

    fn evict(&self, index: &DiskIndex, evicted: Vec<(String, BlockPlace, BlockOnDisk)>) {
        metrics::cache_disk_evicted(evicted.len() as u64);
        metrics::cache_disk_bytes(index.used());
        for (plan, place, block) in evicted {
            self.directory.remove(&plan, place, &block);
        }
    }

    fn write_all(&self, jobs: &Receiver<WriteJob>) {
        let mut failed: Option<Instant> = None;
        for job in jobs {
            let is_paused = failed.is_some_and(|at| at.elapsed() < FAILURE_PAUSE);
            if is_paused {
                metrics::cache_disk_dropped();
            } else if let Err(error) = self.write(&job) {
                failed = Some(Instant::now());
                metrics::cache_disk_dropped();
                tracing::warn!(%error, pause_seconds = FAILURE_PAUSE.as_secs(), "cannot write to --cache-dir");
            }
            self.queued_bytes.fetch_sub(job.bytes, Ordering::Relaxed);
        }
    }

    fn write(&self, job: &WriteJob) -> Result<(), WriteError> {
        let WriteJob { name, block, rows, .. } = job;
        let place = (name.group, *block);
        let bytes = file::encode(&name.key(*block), rows)?;
        let on_disk = BlockOnDisk { rows: rows.num_rows() as u64, state: name.state, bytes: bytes.len() as u64 };
        {
            let mut index = self.index();
            // Two streams computed it.
            if index.block(&name.plan, place).is_some_and(|known| known.state == name.state) {
                return Ok(());
            }
            let Some(evicted) = index.make_room(&name.plan, on_disk.bytes) else {
                metrics::cache_disk_dropped();
                return Ok(());
            };
            self.evict(&index, evicted);
        }
        self.directory.write(&name.plan, place, &on_disk, &bytes)?;
        let mut index = self.index();
        let replaced = index.insert(&name.plan, place, on_disk);
        metrics::cache_disk_bytes(index.used());
        drop(index);
        if let Some(replaced) = replaced {
            self.directory.remove(&name.plan, place, &replaced);
        }
        Ok(())
    }
}

/// Why a block was not written.
#[derive(Debug, thiserror::Error)]
enum WriteError {
    #[error(transparent)]
    Encode(#[from] arrow::error::ArrowError),
    #[error(transparent)]
    File(#[from] std::io::Error),
}
