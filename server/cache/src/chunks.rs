//! Column chunks with their pages decompressed, for plans whose finished rows are not kept. Their streams decode and compute
//! the rows, but fetch and decompress nothing.

use std::sync::{Arc, Mutex};

use forebay_pages::ColumnChunk;

use super::contents::{CachedValue, Contents, lock};

/// The column chunks of one snapshot for one stream. While it exists, they are not evicted.
#[derive(Debug)]
pub struct CachedChunks {
    contents: Arc<Mutex<Contents>>,
    key: String,
    reader: u64,
    admits: bool,
}

impl CachedChunks {
    pub(super) fn new(contents: &Arc<Mutex<Contents>>, key: String, admits: bool) -> Self {
        let reader = lock(contents).open(&key);
        Self { contents: Arc::clone(contents), key, reader, admits }
    }

    /// A chunk with its pages decompressed; none if it is not kept. `file` names the state of its file: chunks of another
    /// state are dropped.
    pub fn get(&self, index: usize, file: &str) -> Option<Arc<ColumnChunk>> {
        let mut contents = lock(&self.contents);
        match contents.get(&self.key, index)? {
            (CachedValue::Chunk(chunk), known) if known == file => Some(Arc::clone(chunk)),
            _ => {
                contents.evict(&self.key, index);
                None
            }
        }
    }

    /// Decompresses the pages of a chunk and keeps them; none if there is no room for them, or if a page is damaged.
    pub fn keep(&self, index: usize, file: &str, chunk: &ColumnChunk) -> Option<Arc<ColumnChunk>> {
        let entry = (index, u64::try_from(chunk.unpacked_bytes()).unwrap_or(u64::MAX));
        if !self.admits || !lock(&self.contents).makes_room(&self.key, entry, self.reader) {
            return None;
        }
        let unpacked = chunk.unpacked().ok()?;
        let mut contents = lock(&self.contents);
        // Another stream may have taken the room meanwhile.
        if contents.makes_room(&self.key, entry, self.reader) {
            contents.insert(&self.key, entry, file, CachedValue::Chunk(Arc::clone(&unpacked)));
        }
        Some(unpacked)
    }
}

impl Drop for CachedChunks {
    fn drop(&mut self) {
        lock(&self.contents).close(&self.key);
    }
}
