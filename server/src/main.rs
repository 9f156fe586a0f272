//! The program `forebay-server`: flags in, exit code out.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use forebay_server::{
    config::{Flags, Verb},
    daemon,
};
use forebay_settings::{Parsed, Values};
use tokio::runtime::{Builder, Runtime};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Exit code for wrong usage or configuration.
const EXIT_USAGE: u8 = 2;

fn main() -> ExitCode {
    let Parsed { options, values } = forebay_settings::parse_values::<Flags>();
    let runtime = match Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            daemon::say(&format!("error: cannot start the I/O threads: {error}"));
            return ExitCode::FAILURE;
        }
    };
    match options.command {
        None => serve(runtime, options, values),
        Some(Verb::Check) => check(&runtime, options, &values),
        Some(Verb::Splits) => splits(&runtime, &options),
    }
}

fn serve(runtime: Runtime, options: Flags, values: Values) -> ExitCode {
    let config = match options.check() {
        Ok(config) => config,
        Err(problems) => {
            problems.iter().for_each(|problem| daemon::say(&format!("error: {problem}")));
            return ExitCode::from(EXIT_USAGE);
        }
    };
    let outcome = runtime.block_on(daemon::run(config, values));
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

fn check(runtime: &Runtime, options: Flags, values: &Values) -> ExitCode {
    let found = runtime.block_on(daemon::check(options, values));
    report(found.good.iter().map(|line| format!("ok: {line}")), &found.problems)
}

fn splits(runtime: &Runtime, options: &Flags) -> ExitCode {
    let (lines, problems) = runtime.block_on(daemon::splits(options));
    report(lines, &problems)
}

fn report(lines: impl IntoIterator<Item = String>, problems: &[String]) -> ExitCode {
    for line in lines {
        // A closed stdout changes no finding.
        let _ = writeln!(io::stdout(), "{line}");
    }
    for line in problems {
        daemon::say(&format!("error: {line}"));
    }
    if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_USAGE) }
}
