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

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use forebay_runtime::{cpu_pool::CpuPool, error::near_names};

pub use error::UdfError;
pub use function::{Function, Values};

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

type SocketsByName = BTreeMap<String, Arc<FunctionSocket>>;

/// The functions of a server, by name.
#[derive(Debug)]
pub struct Udfs {
    sockets: RwLock<SocketsByName>,
    timeout: Duration,
    cpu: CpuPool,
}

// === impl Udfs ===

impl Udfs {
    /// The functions on these sockets. A call that takes longer than `timeout` fails.
    pub fn new(functions: Vec<UdfSocket>, timeout: Duration, cpu: CpuPool) -> Self {
        Self { sockets: RwLock::new(opened(functions, timeout)), timeout, cpu }
    }

    /// Replaces the functions. Plans in use call those that they were compiled with.
    pub fn replace(&self, functions: Vec<UdfSocket>) {
        let sockets = opened(functions, self.timeout);
        *self.sockets.write().unwrap_or_else(PoisonError::into_inner) = sockets;
    }

    /// Requests the types and the digest of a function from its process.
    pub async fn describe(&self, name: &str) -> Result<Function, UdfError> {
        let socket = self.socket(name)?;
        let channel = Channel { name: name.to_owned(), socket, cpu: self.cpu.clone() };
        Function::describe(channel).await
    }

    fn socket(&self, name: &str) -> Result<Arc<FunctionSocket>, UdfError> {
        let sockets = self.sockets.read().unwrap_or_else(PoisonError::into_inner);
        sockets.get(name).cloned().ok_or_else(|| {
            let near = near_names(name, sockets.keys().map(String::as_str));
            UdfError::Unknown { name: name.to_owned(), near }
        })
    }
}

/// The sockets by the names of their functions. Functions of one process share its socket.
fn opened(functions: Vec<UdfSocket>, timeout: Duration) -> SocketsByName {
    let mut by_path: BTreeMap<PathBuf, Arc<FunctionSocket>> = BTreeMap::new();
    let sockets = functions.into_iter().map(|UdfSocket { name, path }| {
        let open = || Arc::new(FunctionSocket::new(path.clone(), timeout));
        let socket = by_path.entry(path.clone()).or_insert_with(open);
        (name, Arc::clone(socket))
    });
    sockets.collect()
}
