//! Columns of images → columns of tensors, boxes and flips, on the CPU pool and within the memory budget.
//!
//! The kernels decode; this module divides a column into jobs, reserves their memory before a pixel is decoded, and applies
//! the plan's choice to images that cannot be decoded. It has no access to plans and rows.

mod column;
mod error;
mod jobs;
mod orientation;

use std::sync::Arc;

use forebay_runtime::cpu_pool::CpuPool;
use tokio::sync::Semaphore;

pub use column::{ImageColumn, ImagePart, ImageValues};
pub use error::ImagesError;
pub use orientation::Turning;

/// The threads that decode images. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ImagePool {
    cpu: CpuPool,
    /// One permit per thread, which a job holds while it has memory: jobs that wait for a thread have none.
    permits: Arc<Semaphore>,
}

/// What happens to bytes that are not a whole image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnError {
    /// The stream fails.
    Fail,
    /// The tensor is null.
    Null,
    /// The epoch does not have the row.
    Skip,
}

// === impl ImagePool ===

impl ImagePool {
    /// The threads of a CPU pool.
    pub fn new(cpu: CpuPool) -> Self {
        let permits = Arc::new(Semaphore::new(cpu.threads().max(1)));
        Self { cpu, permits }
    }
}

// === impl OnError ===

impl OnError {
    /// The value of the metric's label.
    fn label(self) -> &'static str {
        match self {
            Self::Fail => "fail",
            Self::Null => "null",
            Self::Skip => "skip",
        }
    }
}
