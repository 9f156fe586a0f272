//! What the cache keeps of a plan: its finished rows, or the column chunks that it reads; how many bytes they take, and the
//! keys that name what decides them.

use forebay_cache::RowGroupBlocks;
use forebay_catalog::{Int96Unit, Snapshot};
use forebay_plan::{Grouping, Sample};
use forebay_runtime::state::parts_digest;

use super::dataset::{PreparedDataset, Units};
use crate::describe::full_type_name;

/// Changes when the same request may compute other rows than before, or the cache arranges them differently.
const VERSION: &[u8] = b"forebay rows 3";

/// The same for column chunks.
const CHUNKS_VERSION: &[u8] = b"forebay chunks 2";

/// Share of a plan's CPU time that decompressed pages save, where finished rows save all of it.
const PAGES_SHARE: f64 = 1.0 / 3.0;

/// What the cache keeps of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheLevel {
    /// Finished rows of this many bytes.
    Rows(u64),
    /// Column chunks with their pages decompressed.
    Chunks,
    /// Nothing.
    Off,
}

impl PreparedDataset {
    /// What a cache of `capacity` bytes keeps of this plan: what saves more of an epoch's work.
    pub(crate) fn cache_level(&self, capacity: u64) -> CacheLevel {
        if capacity == 0 {
            return CacheLevel::Off;
        }
        let row_bytes = self.cached_row_bytes();
        let saved = |needed: u64| (capacity as f64 / needed.max(1) as f64).min(1.0);
        let of_rows = row_bytes.as_ref().map_or(0.0, |row_bytes| saved(self.finished_bytes(*row_bytes)));
        // Decompressed pages of all columns never save more.
        if of_rows < PAGES_SHARE {
            let needed = self.unpacked_bytes();
            if needed > 0 && saved(needed) * PAGES_SHARE > of_rows {
                return CacheLevel::Chunks;
            }
        }
        row_bytes.map_or(CacheLevel::Off, CacheLevel::Rows)
    }

    /// Bytes of the finished rows of an epoch.
    pub(crate) fn finished_bytes(&self, row_bytes: u64) -> u64 {
        self.passing_groups().map(|group| self.row_group_blocks(group, row_bytes).bytes()).fold(0, u64::saturating_add)
    }

    /// Bytes of the decompressed pages of an epoch, of the columns whose pages can be kept.
    pub(crate) fn unpacked_bytes(&self) -> u64 {
        let (snapshot, projection) = (&self.snapshot, &self.compiled.rows.projection);
        let bytes = |group: usize| projection.unpacked_bytes(snapshot, &snapshot.row_groups()[group]);
        self.passing_groups().map(bytes).fold(0, u64::saturating_add)
    }

    /// The row groups with passing rows.
    fn passing_groups(&self) -> impl Iterator<Item = usize> {
        self.epoch.passing().iter().enumerate().filter(|(_, rows)| **rows > 0).map(|(group, _)| group)
    }

    /// Bytes of a finished row in the cache. The error is why rows of this plan are not cached.
    pub(crate) fn cached_row_bytes(&self) -> Result<u64, String> {
        match self.units {
            Units::Rows => {}
            Units::Sequences(_) => return Err("sequences are packed from all documents of a row group".to_owned()),
            Units::Windows(_) => return Err("windows share their rows, which take less than windows".to_owned()),
            Units::Drawn(_) => return Err("an epoch that draws rows draws others than the next".to_owned()),
        }
        if self.compiled.rows.is_random() {
            return Err("random crops and flips of images differ between epochs".to_owned());
        }
        let bytes = self.compiled.program.fixed_row_bytes();
        bytes.map(|bytes| bytes as u64).map_err(|output| format!("rows of output \"{output}\" differ in size"))
    }

    /// The finished rows of a row group.
    pub(crate) fn row_group_blocks(&self, row_group: usize, row_bytes: u64) -> RowGroupBlocks {
        let group = &self.snapshot.row_groups()[row_group];
        RowGroupBlocks {
            stored: group.rows.end - group.rows.start,
            passing: self.epoch.passing()[row_group],
            block_rows: self.compiled.rows.projection.block_rows(&self.snapshot, group),
            row_bytes,
        }
    }

    /// The key of this plan's finished rows: everything that decides them, except the state of their file. Seed, epoch,
    /// batch size, world size and order are not part of it: rows are cached before they are ordered.
    pub(crate) fn rows_key(&self) -> String {
        let sample = self.request.sample.map(Sample::key);
        let group = self.request.grouping.as_ref().map(Grouping::encoded).unwrap_or_default();
        let columns = columns(&self.snapshot);
        // With the plan's filter, derived columns, fitted parameters, dtypes, and pinned tables of joins and lookups.
        let plan = self.compiled.plan_id.as_bytes();
        let parts: [&[u8]; 8] = [
            VERSION,
            self.request.dataset.as_bytes(),
            self.snapshot.state().as_bytes(),
            columns.as_bytes(),
            plan,
            &[u8::from(self.request.with_row_ids)],
            sample.as_ref().map_or(&[], <[u8; 16]>::as_slice),
            &group,
        ];
        parts_digest(&parts)
    }

    /// The key of the column chunks of the snapshot.
    pub(crate) fn chunks_key(&self) -> String {
        let columns = columns(&self.snapshot);
        let (dataset, state) = (self.request.dataset.as_bytes(), self.snapshot.state().as_bytes());
        parts_digest(&[CHUNKS_VERSION, dataset, state, columns.as_bytes()])
    }
}

/// The types in which the columns of a snapshot are read.
fn columns(snapshot: &Snapshot) -> String {
    let fields = snapshot.wide_schema().fields().iter();
    let fields =
        fields.map(|field| format!("{} {} {}\0", field.name(), full_type_name(field.data_type()), field.is_nullable()));
    fields.chain([u8::from(snapshot.int96_unit() == Int96Unit::Nanoseconds).to_string()]).collect()
}

/// The state of a row group's file, and the row group's place in the file and in the snapshot. A file that was changed
/// in place may leave the digest of its snapshot unchanged.
pub(crate) fn file_state(snapshot: &Snapshot, row_group: usize) -> String {
    let group = &snapshot.row_groups()[row_group];
    let file = snapshot.file_of(group);
    let (object, place) = (file.object(), group.index_in_file);
    format!(
        "{} {} {:?} {:?} {} {place} {}",
        file.display(),
        object.size,
        object.e_tag,
        object.version,
        object.last_modified,
        group.rows.start
    )
}
