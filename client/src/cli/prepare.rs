//! `forebay prepare`: runs the program `forebay-prepare`, which is built and installed separately.

use std::{
    env,
    ffi::{OsStr, OsString},
    io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
};

use clap::Args;

use super::failure::Failure;

/// The name of the subcommand.
const NAME: &str = "prepare";

/// The program that it runs.
const PROGRAM: &str = "forebay-prepare";

/// Write the result of SQL over Parquet datasets as a new dataset: runs forebay-prepare
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Prepare {
    /// Options of forebay-prepare, such as --sql, --dataset and --out; --help lists them
    #[arg(value_name = "OPTIONS", trailing_var_arg = true, allow_hyphen_values = true)]
    options: Vec<OsString>,
}

/// Runs `forebay-prepare` if the first argument of this process is the subcommand: all others are its options, also
/// those that `forebay` has too. Returns only if it is another subcommand, or on an error.
pub(crate) fn run_if_first() -> Result<(), Failure> {
    let mut arguments = env::args_os().skip(1);
    if arguments.next().as_deref() != Some(OsStr::new(NAME)) {
        return Ok(());
    }
    Err(replace_process(arguments))
}

impl Prepare {
    /// Runs the program. Returns only on an error.
    pub(crate) fn run(self, json: bool) -> Failure {
        replace_process(self.options.into_iter().chain(json.then(|| "--json".into())))
    }
}

/// Runs the program next to this one, or else on PATH, in place of this process: signals and the exit code are its own.
fn replace_process(arguments: impl Iterator<Item = OsString>) -> Failure {
    let program = beside_this_program().unwrap_or_else(|| PathBuf::from(PROGRAM));
    let source = Command::new(&program).args(arguments).exec();
    match source.kind() {
        io::ErrorKind::NotFound => Failure::NotInstalled(PROGRAM),
        _ => Failure::Program { program, source },
    }
}

fn beside_this_program() -> Option<PathBuf> {
    let path = env::current_exe().ok()?.parent().map(Path::to_path_buf)?.join(PROGRAM);
    path.is_file().then_some(path)
}
