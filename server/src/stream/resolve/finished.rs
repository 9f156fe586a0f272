//! Finished rows in the cache: whether a plan's rows can be kept, how many bytes they take, and the key that names what
//! decides them.

use super::prepared::Prepared;
use crate::{cache::GroupChunks, catalog::Snapshot, plan::Sample, state::short_digest};

/// Changes when the same request may compute other rows than before, or the cache arranges them differently.
const VERSION: &[u8] = b"forebay rows 1";

impl Prepared {
    /// Bytes of a finished row in the cache. The error is why rows of this plan are not cached.
    pub(crate) fn cached_row_bytes(&self) -> Result<u64, String> {
        if self.compiled.executable.is_on_gpu() {
            return Err("a GPU computes them".to_owned());
        }
        let bytes = self.compiled.program.fixed_row_bytes();
        bytes.map(|bytes| bytes as u64).map_err(|output| format!("rows of output \"{output}\" differ in size"))
    }

    /// The finished rows of a row group.
    pub(crate) fn cached_chunks(&self, row_group: usize, row_bytes: u64) -> GroupChunks {
        let group = &self.snapshot.row_groups()[row_group];
        GroupChunks {
            stored: group.rows.end - group.rows.start,
            passing: self.epoch.passing()[row_group],
            chunk_rows: self.compiled.rows.projection.chunk_rows(&self.snapshot, group),
            row_bytes,
        }
    }

    /// The key of this plan's finished rows: everything that decides them, except the state of their file. Seed, epoch,
    /// batch size, world size and order are not part of it: rows are cached before they are ordered.
    pub(crate) fn rows_key(&self) -> String {
        let sample = self.request.sample.map(Sample::key);
        let group = format!("{:?}", self.request.grouping);
        let columns = columns(&self.snapshot);
        // With the plan's filter, derived columns, fitted parameters, dtypes, and pinned tables of joins and lookups.
        let plan = self.plan_id().as_bytes();
        let parts: [&[u8]; 8] = [
            VERSION,
            self.request.dataset.as_bytes(),
            self.snapshot.digest().as_bytes(),
            columns.as_bytes(),
            plan,
            &[u8::from(self.request.with_row_ids)],
            sample.as_ref().map_or(&[], <[u8; 16]>::as_slice),
            group.as_bytes(),
        ];
        // With its length, no part can continue in the next one.
        let lengths = parts.map(|part| (part.len() as u64).to_le_bytes());
        let digested = lengths.iter().zip(parts).flat_map(|(length, part)| [length.as_slice(), part]);
        short_digest(&digested.collect::<Vec<_>>())
    }
}

/// The types in which the columns of a snapshot are read.
fn columns(snapshot: &Snapshot) -> String {
    let fields = snapshot.wide_schema().fields().iter();
    let fields = fields.map(|field| format!("{:?} {} {}\n", field.name(), field.data_type(), field.is_nullable()));
    fields.chain([format!("{:?}", snapshot.int96_unit())]).collect()
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
