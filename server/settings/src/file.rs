//! Applies a TOML file to a clap definition: each key sets the default of its argument.
//!
//! In clap, flags and environment variables take precedence over defaults, so precedence needs no code here.

use std::{fs, path::Path};

use clap::{Arg, Command};
use toml::{Table, Value};

use crate::{error::SettingsError, value};

/// The option that names the file, without dashes.
pub(crate) const CONFIG: &str = "config";

/// Jaro-Winkler similarity from which a key is suggested for an unknown one: enough for a typo, a missing letter or a
/// wrong ending, but not for unrelated words.
const SIMILARITY_MIN: f64 = 0.8;

/// Returns the command with the file's values as its defaults.
pub(crate) fn apply(command: Command, path: &Path) -> Result<Command, SettingsError> {
    let text = fs::read_to_string(path).map_err(|source| SettingsError::Read { path: path.to_owned(), source })?;
    let table =
        toml::from_str::<Table>(&text).map_err(|source| SettingsError::Syntax { path: path.to_owned(), source })?;
    apply_table(command, &table, &Section { path, prefix: String::new() })
}

/// The location of a table in the file.
struct Section<'a> {
    path: &'a Path,
    /// Names of the enclosing tables, each followed by a dot.
    prefix: String,
}

fn apply_table(mut command: Command, table: &Table, section: &Section) -> Result<Command, SettingsError> {
    for (key, value) in table {
        let name = key.replace('_', "-");
        if key.contains('-') && table.contains_key(&key.replace('-', "_")) {
            return Err(SettingsError::Twice { path: section.path.to_owned(), key: section.key(key) });
        }
        let option = options(&command).find(|option| option.get_long() == Some(&name)).cloned();
        command = if let Some(argument) = option {
            let values = value::texts(&argument, value).map_err(|invalid| section.invalid_value(key, invalid))?;
            let id = argument.get_id().clone();
            command.mut_arg(id, |argument| {
                // In clap a default does not satisfy a requirement, but a value in the file should.
                let still_required = argument.is_required_set() && values.is_empty();
                argument.required(still_required).default_values(values)
            })
        } else if let Some(subcommand) = command.find_subcommand(&name).cloned() {
            let Value::Table(inner) = value else {
                return Err(section.invalid_value(key, value::not_a_section(&name, value)));
            };
            let inner_section = Section { path: section.path, prefix: format!("{}.", section.key(key)) };
            let subcommand = apply_table(subcommand, inner, &inner_section)?;
            command.mut_subcommand(&name, |_| subcommand)
        } else {
            return Err(section.unknown_key(key, &command));
        };
    }
    Ok(command)
}

/// Returns the options that a file may set: all with a long flag, except for the one that names the file.
fn options(command: &Command) -> impl Iterator<Item = &Arg> {
    command
        .get_arguments()
        .filter(|argument| argument.get_long().is_some_and(|long| !matches!(long, CONFIG | "help" | "version")))
}

/// Returns the TOML key of an option.
pub(crate) fn key(long: &str) -> String {
    long.replace('-', "_")
}

impl Section<'_> {
    fn key(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    fn invalid_value(&self, key: &str, invalid: value::InvalidValue) -> SettingsError {
        SettingsError::Value {
            path: self.path.to_owned(),
            key: self.key(key),
            reason: invalid.reason,
            allowed: invalid.allowed,
        }
    }

    fn unknown_key(&self, unknown: &str, command: &Command) -> SettingsError {
        let sections = command.get_subcommands().filter(|sub| options(sub).next().is_some()).map(Command::get_name);
        let mut allowed: Vec<String> = options(command).filter_map(Arg::get_long).chain(sections).map(key).collect();
        allowed.sort_unstable();
        let near = |other: &&String| strsim::jaro_winkler(&key(unknown), other) >= SIMILARITY_MIN;
        let near = allowed.iter().filter(near).cloned().collect();
        SettingsError::UnknownKey { path: self.path.to_owned(), key: self.key(unknown), near, allowed }
    }
}
