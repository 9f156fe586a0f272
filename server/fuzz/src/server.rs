//! A server in this process: the real service over real files, with little memory and few threads.
//!
//! One call at a time: what is promised of a call can be held against it alone.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use forebay_server::{
    budget::Budget,
    catalog::{Catalog, Location, Stores},
    cpu_pool::CpuPool,
    engine::Engine,
    flight::Service,
    plan::Limits,
    shutdown::Shutdown,
    state::State,
    stream::{Device, Streams},
};
use futures::Future;
use tokio::runtime::{Builder, Runtime};
use tonic::Status;

use crate::{invariants, tables};

/// Bytes that streams may reserve together.
const MEMORY_LIMIT_BYTES: u64 = 256 << 20;

/// Bytes that fits may use.
const FIT_MEMORY_BYTES: usize = 64 << 20;

/// The largest batch.
const BATCH_BYTES_MAX: u64 = 16 << 20;

/// Threads of the CPU pool: two, so that jobs of one call can meet.
const CPU_THREADS: usize = 2;

/// Inputs that a server is kept for: each may leave a file in the state directory.
const INPUTS_MAX: usize = 4096;

/// What all servers of this process share.
#[derive(Debug)]
pub(crate) struct Process {
    runtime: Runtime,
    cpu: CpuPool,
    /// Ours alone, as long as the lock is held.
    directory: PathBuf,
    _lock: File,
}

/// A server over some datasets.
#[derive(Debug)]
pub(crate) struct Server {
    process: &'static Process,
    service: Service,
    streams: Arc<Streams>,
    budget: Budget,
    _shutdown: Shutdown,
}

/// The server over the tables, and how many inputs it has had.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    server: Option<Server>,
    inputs: usize,
}

// === impl Process ===

impl Process {
    /// The one of this process.
    pub(crate) fn get() -> &'static Self {
        static PROCESS: OnceLock<Process> = OnceLock::new();
        PROCESS.get_or_init(|| {
            let (directory, lock) = own_directory();
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
            let cpu = CpuPool::new(CPU_THREADS).expect("threads");
            Self { runtime, cpu, directory, _lock: lock }
        })
    }

    /// An empty directory of this name, another than the last one of this name.
    pub(crate) fn fresh(&self, name: &str) -> PathBuf {
        let path = self.directory.join(name);
        if path.exists() {
            fs::remove_dir_all(&path).expect("remove a directory");
        }
        fs::create_dir_all(&path).expect("make a directory");
        path
    }
}

/// A directory that no other process uses; one that a process has left behind is taken over.
fn own_directory() -> (PathBuf, File) {
    for number in 0..1000 {
        let directory = std::env::temp_dir().join(format!("forebay-fuzz-{number}"));
        fs::create_dir_all(&directory).expect("make a directory");
        let lock = File::create(directory.join("lock")).expect("make a lock");
        if lock.try_lock().is_ok() {
            // Links on the way here are none of the server's business.
            return (directory.canonicalize().expect("the directory is there"), lock);
        }
    }
    panic!("a thousand processes fuzz here")
}

// === impl Server ===

impl Server {
    /// A server over one dataset.
    pub(crate) fn over(name: &str, location: Location) -> Self {
        Self::new(vec![(name.to_owned(), location)])
    }

    fn new(datasets: Vec<(String, Location)>) -> Self {
        let process = Process::get();
        let state = State::open(&process.fresh("state")).expect("a state directory");
        let engine = Engine::new(FIT_MEMORY_BYTES, &state).expect("an engine");
        let budget = Budget::new(MEMORY_LIMIT_BYTES);
        let limits = Limits { batch_bytes_max: BATCH_BYTES_MAX, idle_max: Duration::ZERO };
        let cpu = process.cpu.clone();
        let catalog = Catalog::new(datasets, &cpu);
        let streams = Streams::new(catalog, engine, cpu.clone(), budget.clone(), state, limits, Device::Cpu);
        let (shutdown, watch) = Shutdown::new();
        let streams = Arc::new(streams);
        let service = Service::new(Arc::clone(&streams), cpu, watch, Vec::new());
        Self { process, service, streams, budget, _shutdown: shutdown }
    }

    /// What answers calls.
    pub(crate) fn service(&self) -> &Service {
        &self.service
    }

    /// The datasets.
    pub(crate) fn catalog(&self) -> &Catalog {
        self.streams.catalog()
    }

    /// Runs a call to its end and holds it to what is promised of every call.
    pub(crate) fn hold<T>(&self, call: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
        invariants::hold(&self.process.runtime, &self.budget, call)
    }
}

/// The server over the tables, for one input.
pub(crate) fn with_tables(input: impl FnOnce(&Server)) {
    static KEPT: Mutex<Kept> = Mutex::new(Kept { server: None, inputs: 0 });
    static TABLES: OnceLock<PathBuf> = OnceLock::new();
    let _alone = alone();
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if kept.inputs == INPUTS_MAX {
        *kept = Kept::default();
    }
    kept.inputs += 1;
    let server = kept.server.get_or_insert_with(|| {
        let tables = TABLES.get_or_init(|| {
            let directory = Process::get().fresh("tables");
            tables::write(&directory);
            directory
        });
        Server::new(tables::NAMES.map(|name| (name.to_owned(), local(&tables.join(name)))).into())
    });
    input(server);
}

/// Where this path's files are.
pub(crate) fn local(path: &Path) -> Location {
    Location::parse("t", &path.display().to_string(), &mut Stores::default()).expect("a path")
}

/// Held for as long as an input takes: targets that run side by side in one process would blame each other.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
