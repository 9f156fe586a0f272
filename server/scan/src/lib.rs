//! Row groups → Arrow arrays: fetch on the I/O threads, decode on the CPU pool.
//!
//! Reads the given columns of the given row groups and checks that each file is still the pinned one. It has no access
//! to plans, filters or order.

#![forbid(unsafe_code)]

mod arrow_columns;
mod arrow_part;
mod cached_chunks;
mod checked_pages;
mod chunks;
mod column_readers;
mod columns;
mod convert;
mod decode_memory;
mod decoder;
mod error;
mod fetch;
mod int96;
mod intervals;
mod library_columns;
mod null_counts;
mod open;
mod page_columns;
mod page_index;
mod page_sizes;
mod pages;
mod part;
mod projection;
mod reader;
mod reads;
mod record_counts;
mod row_group_pages;
mod shared;
mod statistics;
mod text_room;
mod value_memory;
mod view;

pub use cached_chunks::RowGroupChunks;
pub use decoder::LibraryReason;
pub use error::{ScanError, panicked};
pub use open::{ALL_ROWS, open, open_shared};
pub use projection::{BLOCK_ROWS_MAX, Projection};
pub use reader::RowGroupReader;
pub use reads::{is_partial, read_bytes};
pub use row_group_pages::RowGroupPages;
pub use shared::{SharedBytes, Sharing};
pub use statistics::statistics;
