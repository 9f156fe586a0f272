//! The programs of a cluster, `forebay-scheduler` and `forebay-executor`: those of Ballista, with its flags and log, whose
//! executors read the pinned files of Forebay's plans.

use std::{
    env, fs, io,
    io::Write,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use ballista_core::{error::BallistaError, utils::default_session_builder};
use ballista_executor::{
    executor_process::{ExecutorProcessConfig, start_executor_process},
    health::spawn_health_server,
};
use ballista_scheduler::{cluster::BallistaCluster, config::SchedulerConfig, scheduler_process::start_server};
use clap::{CommandFactory, FromArgMatches};
use datafusion::{
    error::DataFusionError,
    execution::{SessionState, runtime_env::RuntimeEnvBuilder, session_state::SessionStateBuilder},
    prelude::SessionConfig,
};
use forebay_catalog::Stores;
use tokio::{runtime, sync::oneshot};
use tracing_subscriber::EnvFilter;

use super::{
    codec::Codec,
    pinned_store::{PinnedStores, UnreadStores},
};
use crate::{fit, signals::interrupted};

/// The default address of both programs, which have no authentication.
const LOOPBACK: &str = "127.0.0.1";

/// Storage requests of an executor at once.
const STORAGE_REQUESTS_MAX: usize = 64;

/// Stack of their threads: plans are decoded and walked by recursion.
const STACK_BYTES: usize = 32 << 20;

/// Runs a scheduler until a signal ends it.
pub fn scheduler() -> ExitCode {
    let config: ballista_scheduler::config::Config =
        parse("forebay-scheduler", "The scheduler of a Ballista cluster that runs queries of forebay-prepare");
    exit_code(run(&config.log_level_setting.clone(), async move {
        let address = address(&config.bind_host, config.bind_port)?;
        let config = SchedulerConfig::try_from(config)?.with_override_session_builder(Arc::new(scheduler_session));
        let config = SchedulerConfig { override_physical_codec: Some(Arc::new(Codec::default())), ..config };
        let cluster = BallistaCluster::new_from_config(&config).await?;
        tokio::select! {
            ended = start_server(cluster, address, Arc::new(config)) => ended.map_err(|error| at(address, &error)),
            () = interrupted() => Ok(()),
        }
    }))
}

/// Runs an executor until a signal ends it.
pub fn executor() -> ExitCode {
    let config: ballista_executor::config::Config =
        parse("forebay-executor", "An executor of a Ballista cluster, which reads the inputs of forebay-prepare");
    exit_code(run(&config.log_level_setting.clone(), async move {
        let health_address = address(&config.bind_host, config.bind_health_port)?;
        let mut config = ExecutorProcessConfig::try_from(config)?;
        let (directory, is_own) = work_directory(&config)?;
        config.work_dir = Some(directory.display().to_string());
        config.override_runtime_producer = Some(runtime_producer(directory.clone()));
        let worker = fit::worker(config.vcores, &directory, Stores::new(STORAGE_REQUESTS_MAX));
        let worker = worker.map_err(BallistaError::General)?;
        config.override_physical_codec = Some(Arc::new(Codec::of_executor(worker)));
        let (stop, stopped) = oneshot::channel();
        let health = spawn_health_server(health_address, config.health.clone(), stopped);
        let ended = start_executor_process(Arc::new(config)).await;
        // The server of health checks ends with this process in any case.
        let _ = stop.send(());
        let _ = health.await;
        if is_own {
            let _ = fs::remove_dir_all(&directory);
        }
        ended
    }))
}

/// The flags of one of Ballista's programs, under another name and with a safe default address.
fn parse<T: CommandFactory + FromArgMatches>(name: &'static str, about: &'static str) -> T {
    let command = T::command().name(name).about(about).mut_arg("bind_host", |flag| flag.default_value(LOOPBACK));
    T::from_arg_matches(&command.get_matches()).unwrap_or_else(|error| error.exit())
}

/// The session of a scheduler, which decodes plans over pinned files.
fn scheduler_session(config: SessionConfig) -> Result<SessionState, DataFusionError> {
    let runtime = RuntimeEnvBuilder::new().with_object_store_registry(Arc::new(UnreadStores)).build_arc()?;
    let state = default_session_builder(config)?;
    Ok(SessionStateBuilder::new_from_existing(state).with_runtime_env(runtime).build())
}

/// The stores of pinned files, and a directory to spill to.
fn runtime_producer(directory: PathBuf) -> ballista_core::RuntimeProducer {
    let stores = Arc::new(PinnedStores::new(STORAGE_REQUESTS_MAX));
    Arc::new(move |_config: &SessionConfig| {
        RuntimeEnvBuilder::new()
            .with_object_store_registry(Arc::clone(&stores) as _)
            .with_temp_file_path(directory.clone())
            .build_arc()
    })
}

/// The directory of shuffled and spilled data, and whether this process created it.
fn work_directory(config: &ExecutorProcessConfig) -> Result<(PathBuf, bool), BallistaError> {
    let given = config.work_dir.as_deref().map(Path::new);
    let directory =
        given.map_or_else(|| env::temp_dir().join(format!("forebay-executor-{}", config.executor_id)), Path::to_owned);
    fs::create_dir_all(&directory)
        .map_err(|error| BallistaError::General(format!("--work-dir {}: {error}", directory.display())))?;
    Ok((directory, given.is_none()))
}

fn address(host: &str, port: u16) -> Result<SocketAddr, BallistaError> {
    let parsed = format!("{host}:{port}").parse();
    parsed.map_err(|_| BallistaError::General(format!("--bind-host {host}: expected an IP address")))
}

fn at(address: SocketAddr, error: &BallistaError) -> BallistaError {
    BallistaError::General(format!("cannot listen on {address}: {error}"))
}

/// Runs a program to its end, with its log on stderr.
fn run(log: &str, program: impl Future<Output = Result<(), BallistaError>>) -> Result<(), BallistaError> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(log));
    // A log that is set up already is kept.
    let _ = tracing_subscriber::fmt().with_ansi(false).with_writer(io::stderr).with_env_filter(filter).try_init();
    runtime::Builder::new_multi_thread().thread_stack_size(STACK_BYTES).enable_all().build()?.block_on(program)
}

fn exit_code(ended: Result<(), BallistaError>) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If stderr is closed, only the exit code remains.
            let _ = writeln!(io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}
