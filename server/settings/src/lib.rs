//! Every option of a program as flag, environment variable and TOML key, from the one table that clap already has.
//!
//! A program derives [`clap::Parser`] with `#[arg(long, env = "FOREBAY_…")]` on every option and calls [`parse`]. That
//! adds `--config FILE` (or `FOREBAY_CONFIG`), a TOML file whose keys are the long flags with `_` for `-`. Precedence:
//! flag, environment, file, default. The file's values become the defaults of clap's own arguments, so `--help`, types
//! and allowed values are stated once; an unknown key or a value of the wrong type is an error that names what is allowed.
//!
//! In the file, an option that may be repeated is an array; one whose value name has the form `NAME=URL` may also be a
//! table. The options of a subcommand stand in a table of its name. A switch is `true` or `false`.
//!
//! This crate knows no option of any program, and never looks for a file that was not named.

#![forbid(unsafe_code)]

mod error;
mod file;
mod table;
mod value;

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use clap::builder::{BoolishValueParser, Resettable, ValueParser};
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, Command, CommandFactory, Parser};

pub use error::SettingsError;
pub use table::markdown_table;

use file::CONFIG;

/// Reads the settings of this process, or ends it: code 0 after `--help` and `--version` on stdout, code 2 with a
/// message on stderr when the usage or the configuration is wrong.
pub fn parse<T: Parser>() -> T {
    try_parse_from(env::args_os()).unwrap_or_else(|error: SettingsError| error.exit())
}

/// Reads settings from the given arguments (the first is the program's name), the environment variables that `T` and
/// `--config` name, and the configuration file. `--help` and `--version` come back as [`SettingsError::Usage`].
pub fn try_parse_from<T: Parser>(arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Result<T, SettingsError> {
    let arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
    let plain = command::<T>();
    let command = match config_path(&arguments) {
        None => plain,
        // A broken file must not stand between a user and the help that tells how to write it.
        Some(path) => match file::apply(plain.clone(), &path) {
            Ok(command) => command,
            Err(error) => return Err(help_or_version(plain, &arguments).unwrap_or(error)),
        },
    };
    let mut formatter = command.clone();
    let mut matches = command.try_get_matches_from(arguments)?;
    T::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut formatter).into())
}

/// The definition of `T` with everything that [`parse`] adds to it: `--config`, switches that also read `1`, `yes` and
/// `on` from the environment, and empty environment variables taken as unset.
pub fn command<T: CommandFactory>() -> Command {
    with_config_option(ready_for_environment(T::command()))
}

/// Adds `--config` where the program does not define it itself.
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

/// The configuration file, found before clap runs because its values take part in clap's run.
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

/// What clap answers when the arguments ask for help or the version, whatever else is in them.
fn help_or_version(command: Command, arguments: &[OsString]) -> Option<SettingsError> {
    let error = command.try_get_matches_from(arguments).err()?;
    matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion).then(|| error.into())
}

#[cfg(test)]
mod tests;
