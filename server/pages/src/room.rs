//! Memory for values that may be many times as large as their pages.

use std::{any::Any, fmt};

/// What gives memory back when it is dropped.
pub type Held = Box<dyn Any + Send>;

/// A limited supply of memory for the values of texts: a dictionary stores a text once, and a text may share its start
/// with the previous one.
pub trait Room: Send + Sync + fmt::Debug {
    /// Takes `bytes` before they are allocated. They are given back when later values are read. The error says why there
    /// are not as many.
    fn take(&self, bytes: usize) -> Result<Held, String>;
}

/// Memory without a limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unlimited;

impl Room for Unlimited {
    fn take(&self, _: usize) -> Result<Held, String> {
        Ok(Box::new(()))
    }
}
