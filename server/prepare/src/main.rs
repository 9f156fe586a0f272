//! The program `forebay-prepare`: flags in, exit code out.

#![forbid(unsafe_code)]

use std::{
    io::{self, Write},
    process::ExitCode,
    time::Duration,
};

use forebay_prepare::{Command, Fitted, Flags, Outcome, PrepareError, Status, fit, run, stop_with_stdin};
use forebay_settings::ByteSize;
use tokio::runtime::Builder;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Time that the remaining tasks have to end. A pending name lookup would block for longer.
const SHUTDOWN_MAX: Duration = Duration::from_secs(3);

/// Stack of the query's threads: plans are walked by recursion.
const STACK_BYTES: usize = 16 << 20;

fn main() -> ExitCode {
    let flags: Flags = forebay_settings::parse();
    let mut builder = Builder::new_multi_thread();
    let threads = match &flags.command {
        Some(Command::Fit(flags)) => flags.threads(),
        None => flags.threads(),
    };
    if threads > 0 {
        builder.worker_threads(threads);
    }
    let watched = if flags.exits_with_stdin() { stop_with_stdin() } else { Ok(()) };
    let runtime = watched.and_then(|()| builder.thread_stack_size(STACK_BYTES).enable_all().build());
    let outcome = runtime.map_err(|error| PrepareError::Threads(error.to_string())).and_then(|runtime| {
        let task = runtime.spawn(async move { text(&flags).await });
        let ended = runtime.block_on(task);
        // Tasks that still spill remove their files when they end.
        runtime.shutdown_timeout(SHUTDOWN_MAX);
        ended.map_err(|error| PrepareError::Query(error.to_string()))?
    });
    match outcome {
        Ok(text) => report(&text),
        Err(error) => {
            // If stderr is closed, only the exit code remains.
            let _ = writeln!(io::stderr(), "error: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

/// Does what the flags say, and returns what is printed.
async fn text(flags: &Flags) -> Result<String, PrepareError> {
    let Some(Command::Fit(of_fit)) = &flags.command else {
        let outcome = run(flags).await?;
        let json = || serde_json::to_string(&outcome).unwrap_or_default();
        return Ok(if flags.is_json() { json() } else { sentence(&outcome) } + "\n");
    };
    let fitted: Fitted = fit(of_fit).await?;
    for warning in fitted.warnings() {
        let _ = writeln!(io::stderr(), "warning: {warning}");
    }
    Ok(if of_fit.writes_file() { String::new() } else { fitted.to_text() })
}

fn report(text: &str) -> ExitCode {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            let _ = writeln!(io::stderr(), "error: cannot write to stdout: {error}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

fn sentence(outcome: &Outcome) -> String {
    let Outcome { out, rows, bytes, files, seconds, spilled_bytes, .. } = outcome;
    let verb = match outcome.status {
        Status::Written => "wrote",
        Status::Replaced => "replaced",
        Status::Checked => return "the query is valid".to_owned(),
        Status::UpToDate => return format!("{out} is up to date: {rows} rows in {files} files"),
    };
    let spilled = if *spilled_bytes > 0 { format!(", {} spilled", ByteSize(*spilled_bytes)) } else { String::new() };
    format!("{verb} {out}: {rows} rows in {files} files, {bytes} bytes, {seconds:.1} s{spilled}")
}
