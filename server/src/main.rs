//! The program `forebay-server`: flags in, exit code out.

use std::process::ExitCode;

use forebay_server::{config::Flags, daemon};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Exit code for wrong usage or configuration.
const EXIT_USAGE: u8 = 2;

fn main() -> ExitCode {
    let config = match forebay_settings::parse::<Flags>().check() {
        Ok(config) => config,
        Err(error) => {
            daemon::say(&format!("error: {error}"));
            return ExitCode::from(EXIT_USAGE);
        }
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            daemon::say(&format!("error: cannot start the I/O threads: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let outcome = runtime.block_on(daemon::run(config));
    // A pending read of standard input blocks a thread: do not wait for it.
    runtime.shutdown_background();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            daemon::say(&format!("error: {error}"));
            if error.is_configuration() { ExitCode::from(EXIT_USAGE) } else { ExitCode::FAILURE }
        }
    }
}
