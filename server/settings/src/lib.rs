//! Options of a program as flags, environment variables and TOML keys, from a single clap definition.
//!
//! A program derives [`clap::Parser`] with `#[arg(long, env = "FOREBAY_…")]` on every option and calls [`parse`], which
//! adds `--config FILE` (or `FOREBAY_CONFIG`): a TOML file whose keys are the long flags with `_` for `-`. Precedence:
//! flag, environment, file, default. The file's values become the defaults of clap's arguments, so `--help`, types and
//! allowed values are defined once. An unknown key or a value of the wrong type is an error that names what is allowed.
//!
//! In the file, an option that may be repeated is an array; one whose value name has the form `NAME=URL` may also be a
//! table. The options of a subcommand are in a table of its name. A switch is `true` or `false`. A [`ByteSize`] is an
//! integer, or a string with a unit.
//!
//! Every program writes its man pages and shell completions: `PROGRAM write-manual FOLDER`.
//!
//! This crate does not depend on the options of any program, and reads no file unless it is named.

#![forbid(unsafe_code)]

mod error;
mod file;
mod manual;
mod size;
mod table;
mod value;

use std::{
    collections::BTreeMap,
    env,
    ffi::{OsStr, OsString},
    io::{self, Write},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    process,
};

use clap::{
    Arg, ArgAction, ArgMatches, Command, CommandFactory, Parser,
    builder::{BoolishValueParser, Resettable, ValueParser},
    error::ErrorKind,
};

pub use error::SettingsError;
pub use size::{ByteSize, SizeError, sizes};
pub use table::markdown_table;

use file::CONFIG;

/// Reads the settings of this process. Exits with code 0 after `--help` and `--version`, and with code 2 and a message
/// on stderr if the usage or the configuration is wrong.
pub fn parse<T: Parser>() -> T {
    parse_values().options
}

/// The value of every option that has one, as text, by its long flag.
pub type Values = BTreeMap<String, Vec<OsString>>;

/// Options, and the values that they were read from.
#[derive(Debug)]
pub struct Parsed<T> {
    /// The options.
    pub options: T,
    /// Their values.
    pub values: Values,
}

/// Reads the settings of this process like [`parse`], with their values.
pub fn parse_values<T: Parser>() -> Parsed<T> {
    let arguments: Vec<OsString> = env::args_os().collect();
    if let Some(folder) = manual::folder(&arguments) {
        write_manual(command::<T>(), folder);
    }
    try_parse_values_from(arguments).unwrap_or_else(|error: SettingsError| error.exit())
}

/// Writes the program's manual instead of running it.
fn write_manual(command: Command, folder: &Path) -> ! {
    let Err(error) = manual::write(command, folder) else { process::exit(0) };
    // If stderr is closed, only the exit code reports the error.
    let _ = writeln!(io::stderr(), "error: cannot write the manual to {}: {error}", folder.display());
    process::exit(1)
}

/// Reads settings from the given arguments (the first is the program's name), the environment variables that `T` and
/// `--config` name, and the configuration file. `--help` and `--version` return [`SettingsError::Usage`].
pub fn try_parse_from<T: Parser>(arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Result<T, SettingsError> {
    try_parse_values_from(arguments).map(|parsed| parsed.options)
}

/// Reads settings like [`try_parse_from`], with their values. Two readings of the same arguments differ where the
/// configuration file has changed.
pub fn try_parse_values_from<T: Parser>(
    arguments: impl IntoIterator<Item = impl Into<OsString>>,
) -> Result<Parsed<T>, SettingsError> {
    let arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
    let plain = command::<T>();
    let command = match config_path(&arguments) {
        None => plain,
        // Help and version must work with a broken file.
        Some(path) => match file::apply(plain.clone(), &path) {
            Ok(command) => command,
            Err(error) => return Err(help_or_version(plain, &arguments).unwrap_or(error)),
        },
    };
    let mut formatter = command.clone();
    let mut matches = command.try_get_matches_from(arguments)?;
    let values = values(&formatter, &matches);
    match T::from_arg_matches_mut(&mut matches) {
        Ok(options) => Ok(Parsed { options, values }),
        Err(error) => Err(error.format(&mut formatter).into()),
    }
}

fn values(command: &Command, matches: &ArgMatches) -> Values {
    let value = |argument: &Arg| {
        let texts = matches.try_get_raw(argument.get_id().as_str()).ok()??.map(ToOwned::to_owned).collect();
        Some((argument.get_long()?.to_owned(), texts))
    };
    command.get_arguments().filter_map(value).collect()
}

/// Returns the definition of `T` with the additions of [`parse`]: `--config`, switches that accept `1`, `yes` and `on`
/// from the environment, and empty environment variables that are treated as unset.
pub fn command<T: CommandFactory>() -> Command {
    with_config_option(ready_for_environment(T::command()))
}

/// Adds `--config` unless the program defines it.
fn with_config_option(command: Command) -> Command {
    if command.get_arguments().any(|argument| argument.get_long() == Some(CONFIG)) {
        return command;
    }
    command.arg(
        Arg::new(CONFIG)
            .long(CONFIG)
            .env("FOREBAY_CONFIG")
            .value_name("FILE")
            .value_parser(ValueParser::path_buf())
            .global(true)
            .help("TOML file with a key for every option here; flags and environment variables take precedence"),
    )
}

fn ready_for_environment(command: Command) -> Command {
    command
        .mut_args(|argument| {
            let argument = if matches!(argument.get_action(), ArgAction::SetTrue | ArgAction::SetFalse) {
                argument.value_parser(BoolishValueParser::new())
            } else {
                argument
            };
            let is_empty = argument.get_env().and_then(env::var_os).is_some_and(|value| value.is_empty());
            if is_empty { argument.env(Resettable::Reset) } else { argument }
        })
        .mut_subcommands(ready_for_environment)
}

/// Returns the path of the configuration file. Found before clap runs, because the file's values are clap's defaults.
fn config_path(arguments: &[OsString]) -> Option<PathBuf> {
    let mut rest = arguments.iter().skip(1).take_while(|argument| *argument != "--");
    while let Some(argument) = rest.next() {
        if argument == "--config" {
            return rest.next().map(PathBuf::from);
        }
        if let Some(path) = argument.as_bytes().strip_prefix(b"--config=") {
            return Some(PathBuf::from(OsStr::from_bytes(path)));
        }
    }
    env::var_os("FOREBAY_CONFIG").filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// Returns clap's response if the arguments contain `--help` or `--version`.
fn help_or_version(command: Command, arguments: &[OsString]) -> Option<SettingsError> {
    let error = command.try_get_matches_from(arguments).err()?;
    matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion).then(|| error.into())
}

#[cfg(test)]
mod tests;
