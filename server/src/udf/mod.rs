//! Vectorized Python functions, called in the processes that serve them (`python -m forebay.udf`) over Unix sockets.
//!
//! The operator names each function and its socket; a client names functions only. A function describes itself before
//! it is used: its argument and result types, and a digest that becomes part of plans. Each call is one connection, so
//! a function that fails, hangs or dies fails its own call. This module has no access to plans and rows: `stream` calls
//! it with columns.

mod call;
mod error;
mod frame;
mod function;
mod socket;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

pub use error::UdfError;
pub use function::{Function, Values};

use crate::{cpu_pool::CpuPool, error::near_names};
use call::Channel;
use socket::FunctionSocket;

/// Where a function is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdfSocket {
    /// The function's name in plans and in its process.
    pub name: String,
    /// The Unix socket.
    pub path: PathBuf,
}

/// The functions of a server, by name.
#[derive(Debug)]
pub struct Udfs {
    sockets: BTreeMap<String, Arc<FunctionSocket>>,
    cpu: CpuPool,
}

// === impl Udfs ===

impl Udfs {
    /// The functions on these sockets. A call that takes longer than `timeout` fails.
    pub fn new(functions: Vec<UdfSocket>, timeout: Duration, cpu: CpuPool) -> Self {
        let mut by_path: BTreeMap<PathBuf, Arc<FunctionSocket>> = BTreeMap::new();
        let sockets = functions.into_iter().map(|UdfSocket { name, path }| {
            let open = || Arc::new(FunctionSocket::new(path.clone(), timeout));
            let socket = by_path.entry(path.clone()).or_insert_with(open);
            (name, Arc::clone(socket))
        });
        Self { sockets: sockets.collect(), cpu }
    }

    /// Requests the types and the digest of a function from its process.
    pub async fn describe(&self, name: &str) -> Result<Function, UdfError> {
        let Some(socket) = self.sockets.get(name) else {
            let near = near_names(name, self.sockets.keys().map(String::as_str));
            return Err(UdfError::Unknown { name: name.to_owned(), near });
        };
        let channel = Channel { name: name.to_owned(), socket: Arc::clone(socket), cpu: self.cpu.clone() };
        Function::describe(channel).await
    }
}
