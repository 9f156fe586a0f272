//! Subcommands that other programs run, which are installed separately: `prepare` (SQL over datasets), `fit --engine` and `compare` (the
//! Python package).

use std::{env, ffi::OsString, io, iter, os::unix::process::CommandExt, process::Command};

use clap::Args;

use super::{
    failure::Failure,
    programs::{program, python},
};

/// The program that `prepare` runs.
const PREPARE: &str = "forebay-prepare";

/// What Python runs. A missing package is an error, not a difference.
const COMPARE: &str = "\
import sys
try:
    from forebay._client.comparison.__main__ import main
except ImportError as error:
    print(f\"error: {error}: `forebay compare` needs the Python package forebay; install it for {sys.executable}, or \"
          \"set FOREBAY_PYTHON to an interpreter that has it\", file=sys.stderr)
    sys.exit(2)
sys.exit(main(sys.argv[1:]))
";

/// Write the result of SQL over Parquet datasets as a new dataset: runs forebay-prepare
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Prepare {
    /// Options of forebay-prepare, such as --sql, --dataset and --out; --help lists them
    #[arg(value_name = "OPTIONS", trailing_var_arg = true, allow_hyphen_values = true)]
    options: Vec<OsString>,
}

/// Stream a plan beside the Parquet files that another job wrote, and report what differs: runs the Python package
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Compare {
    /// Options, such as --plan and --with; --help lists them
    #[arg(value_name = "OPTIONS", trailing_var_arg = true, allow_hyphen_values = true)]
    options: Vec<OsString>,
}

/// Runs the program of the subcommand if it is the first argument of this process: all others are the program's
/// options, also those that `forebay` has too. Returns only if it is another subcommand, or on an error.
pub(crate) fn run_if_first() -> Result<(), Failure> {
    let mut arguments = env::args_os().skip(1);
    match arguments.next().as_deref().and_then(|first| first.to_str()) {
        Some("prepare") => Err(prepare(arguments)),
        // A fit with an engine needs no server.
        Some("fit") if names_engine(env::args_os()) => Err(prepare(iter::once("fit".into()).chain(arguments))),
        Some("compare") => Err(compare(arguments)),
        _ => Ok(()),
    }
}

impl Prepare {
    /// Runs the program. Returns only on an error.
    pub(crate) fn run(self, json: bool) -> Failure {
        prepare(with_json(self.options, json))
    }
}

impl Compare {
    /// Runs the Python package. Returns only on an error.
    pub(crate) fn run(self, json: bool) -> Failure {
        compare(with_json(self.options, json))
    }
}

/// Whether arguments have the option --engine.
fn names_engine(arguments: impl Iterator<Item = OsString>) -> bool {
    let is_engine = |text: &str| text == "--engine" || text.starts_with("--engine=");
    arguments.take_while(|argument| argument != "--").any(|argument| argument.to_str().is_some_and(is_engine))
}

fn with_json(options: Vec<OsString>, json: bool) -> impl Iterator<Item = OsString> {
    options.into_iter().chain(json.then(|| "--json".into()))
}

/// Runs the program next to this one, or else on PATH, in place of this process: signals and the exit code are its own.
fn prepare(options: impl Iterator<Item = OsString>) -> Failure {
    let program = program(PREPARE);
    let source = Command::new(&program).args(options).exec();
    match source.kind() {
        io::ErrorKind::NotFound => Failure::NotInstalled(PREPARE),
        _ => Failure::Program { program, source },
    }
}

fn compare(options: impl Iterator<Item = OsString>) -> Failure {
    let program = python();
    let source = Command::new(&program).args(["-c", COMPARE]).args(options).exec();
    Failure::Python { program, source }
}
