//! A server in this process: the real router and service over real files, with little memory and few threads.
//!
//! It runs one call at a time, so that a violated invariant is that call's.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use forebay_cache::RowCache;
use forebay_catalog::{Catalog, Location, Stores};
use forebay_columns::{tokenizers::Tokenizers, udf::Udfs};
use forebay_engine::Engine;
use forebay_plan::{Limits, RequestLimits};
use forebay_runtime::{
    budget::Budget,
    cpu_pool::CpuPool,
    shutdown::{Shutdown, ShutdownWatch},
    state::State,
};
use forebay_server::flight::{MessageLimits, Router, Service};
use forebay_stream::{Device, StreamParts, Streams};
use futures::Future;
use tokio::runtime::{Builder, Runtime};
use tonic::Status;
use tonic_health::{
    pb::health_server::HealthServer,
    server::{HealthReporter, HealthService},
};

use crate::{invariants, tables};

/// Bytes that streams may reserve together.
const MEMORY_LIMIT_BYTES: u64 = 256 << 20;

/// Bytes of finished rows that streams share.
const CACHE_BYTES: u64 = 1 << 20;

/// Bytes that fits may use.
const FIT_MEMORY_BYTES: usize = 64 << 20;

/// The largest batch.
const BATCH_BYTES_MAX: u64 = 16 << 20;

/// The largest message of a request.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Threads of the CPU pool: two, so that jobs of one call can run concurrently.
const CPU_THREADS: usize = 2;

/// Inputs after which the server over the tables is replaced: each may leave a file in the state directory.
const INPUTS_MAX: usize = 4096;

/// What all servers of this process share.
#[derive(Debug)]
pub(crate) struct Process {
    runtime: Runtime,
    cpu: CpuPool,
    /// Exclusive to this process while it holds the lock.
    directory: PathBuf,
    _lock: File,
}

/// A server over some datasets.
#[derive(Debug)]
pub(crate) struct Server {
    process: &'static Process,
    router: Router,
    streams: Arc<Streams>,
    budget: Budget,
    watch: ShutdownWatch,
    _shutdown: Shutdown,
}

/// The server over the tables, and the number of inputs it has run.
#[derive(Debug, Default)]
struct SharedServer {
    server: Option<Server>,
    inputs: usize,
}

// === impl Process ===

impl Process {
    /// The singleton of this process.
    pub(crate) fn get() -> &'static Self {
        static PROCESS: OnceLock<Process> = OnceLock::new();
        PROCESS.get_or_init(|| {
            let (directory, lock) = own_directory();
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
            let cpu = CpuPool::new(CPU_THREADS).expect("threads");
            Self { runtime, cpu, directory, _lock: lock }
        })
    }

    /// A new empty directory, which replaces the previous one of this name.
    pub(crate) fn fresh(&self, name: &str) -> PathBuf {
        let path = self.directory.join(name);
        if path.exists() {
            fs::remove_dir_all(&path).expect("remove a directory");
        }
        fs::create_dir_all(&path).expect("create a directory");
        path
    }
}

/// A directory that no other process uses. One left by a process that has ended is reused.
fn own_directory() -> (PathBuf, File) {
    for number in 0..1000 {
        let directory = std::env::temp_dir().join(format!("forebay-fuzz-{number}"));
        fs::create_dir_all(&directory).expect("create a directory");
        let lock = File::create(directory.join("lock")).expect("create a lock");
        if lock.try_lock().is_ok() {
            // Resolved here, so that the server sees no links above its files.
            return (directory.canonicalize().expect("an existing directory"), lock);
        }
    }
    panic!("a thousand fuzzing processes are running")
}

// === impl Server ===

impl Server {
    /// A server over one dataset.
    pub(crate) fn over(name: &str, location: Location) -> Self {
        Self::new(vec![(name.to_owned(), location)])
    }

    fn new(datasets: Vec<(String, Location)>) -> Self {
        let process = Process::get();
        let folder = process.fresh("state");
        let state = State::open(&folder, &folder, &process.cpu).expect("a state directory");
        let budget = Budget::new(MEMORY_LIMIT_BYTES);
        let engine = Engine::new(FIT_MEMORY_BYTES, &budget, &state).expect("an engine");
        let limits = Limits {
            groups_max: 1000,
            batch_bytes_max: BATCH_BYTES_MAX,
            pause_max: Duration::ZERO,
            idle_max: Duration::ZERO,
        };
        let cpu = process.cpu.clone();
        let catalog = Catalog::new(datasets, &cpu);
        let streams = Streams::new(StreamParts {
            catalog,
            engine,
            cpu: cpu.clone(),
            budget: budget.clone(),
            cache: RowCache::new(CACHE_BYTES),
            state,
            limits,
            device: Device::Cpu,
            udfs: Udfs::new(Vec::new(), Duration::ZERO, cpu.clone()),
            tokenizers: Tokenizers::new(Vec::new()),
        });
        let (shutdown, watch) = Shutdown::new();
        let streams = Arc::new(streams);
        let message_limits = MessageLimits { bytes_max: MESSAGE_BYTES_MAX, ..MessageLimits::default() };
        let service = Service::new(Arc::clone(&streams), cpu, watch.clone(), Vec::new())
            .with_limits(RequestLimits::default(), message_limits);
        let health = HealthServer::new(HealthService::from_health_reporter(HealthReporter::new()));
        let router = Router::new(service, health, None);
        Self { process, router, streams, budget, watch, _shutdown: shutdown }
    }

    /// Answers calls.
    pub(crate) fn router(&self) -> &Router {
        &self.router
    }

    /// The phase of the server, which never changes.
    pub(crate) fn watch(&self) -> &ShutdownWatch {
        &self.watch
    }

    /// The datasets.
    pub(crate) fn catalog(&self) -> &Catalog {
        self.streams.catalog()
    }

    /// Runs a call to its end and checks the invariants of every call.
    pub(crate) fn run<T>(&self, call: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
        invariants::check(&self.process.runtime, &self.budget, call)
    }
}

/// Runs one input against the server over the tables.
pub(crate) fn with_tables(input: impl FnOnce(&Server)) {
    static SHARED: Mutex<SharedServer> = Mutex::new(SharedServer { server: None, inputs: 0 });
    static TABLES: OnceLock<PathBuf> = OnceLock::new();
    let _exclusive = exclusive();
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if shared.inputs == INPUTS_MAX {
        *shared = SharedServer::default();
    }
    shared.inputs += 1;
    let server = shared.server.get_or_insert_with(|| {
        let tables = TABLES.get_or_init(|| {
            let directory = Process::get().fresh("tables");
            tables::write(&directory);
            directory
        });
        Server::new(tables::NAMES.map(|name| (name.to_owned(), local(&tables.join(name)))).into())
    });
    input(server);
}

/// The location of a local path.
pub(crate) fn local(path: &Path) -> Location {
    Location::parse("t", &path.display().to_string(), &mut Stores::default()).expect("a path")
}

/// A lock for the duration of an input. Targets that ran concurrently in one process would report each other's panics.
pub(crate) fn exclusive() -> MutexGuard<'static, ()> {
    static EXCLUSIVE: Mutex<()> = Mutex::new(());
    EXCLUSIVE.lock().unwrap_or_else(PoisonError::into_inner)
}
