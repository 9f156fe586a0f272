//! A TOML file laid under a clap definition: each key becomes the default of the argument it names.
//!
//! Defaults rank below flags and environment variables in clap itself, so precedence needs no code here.

use std::fs;
use std::path::Path;

use clap::{Arg, Command};
use toml::{Table, Value};

use crate::{error::SettingsError, value};

/// The option that names the file, without its dashes.
pub(crate) const CONFIG: &str = "config";

/// Jaro-Winkler similarity from which a key is offered in place of an unknown one: catches a typo, a dropped letter or
/// a wrong ending, and leaves unrelated words out.
const NEAR: f64 = 0.8;

/// Returns the command with the file's values as its defaults.
pub(crate) fn apply(command: Command, path: &Path) -> Result<Command, SettingsError> {
    let text = fs::read_to_string(path).map_err(|source| SettingsError::Read { path: path.to_owned(), source })?;
    let table =
        toml::from_str::<Table>(&text).map_err(|source| SettingsError::Syntax { path: path.to_owned(), source })?;
    apply_table(command, &table, &Place { path, section: String::new() })
}

/// Where in the file a key stands.
struct Place<'a> {
    path: &'a Path,
    /// The names of the enclosing tables, each followed by a dot.
    section: String,
}

fn apply_table(mut command: Command, table: &Table, place: &Place) -> Result<Command, SettingsError> {
    for (key, value) in table {
        let name = key.replace('_', "-");
        if key.contains('-') && table.contains_key(&key.replace('-', "_")) {
            return Err(SettingsError::Twice { path: place.path.to_owned(), key: place.key(key) });
        }
        let option = options(&command).find(|option| option.get_long() == Some(&name)).cloned();
        command = if let Some(argument) = option {
            let values = value::texts(&argument, value).map_err(|wrong| place.wrong_value(key, wrong))?;
            let id = argument.get_id().clone();
            command.mut_arg(id, |argument| {
                // To clap a default does not satisfy a requirement; to the user a value in the file does.
                let still_required = argument.is_required_set() && values.is_empty();
                argument.required(still_required).default_values(values)
            })
        } else if let Some(subcommand) = command.find_subcommand(&name).cloned() {
            let Value::Table(inner) = value else {
                return Err(place.wrong_value(key, value::not_a_section(&name, value)));
            };
            let inner_place = Place { path: place.path, section: format!("{}.", place.key(key)) };
            let subcommand = apply_table(subcommand, inner, &inner_place)?;
            command.mut_subcommand(&name, |_| subcommand)
        } else {
            return Err(place.unknown_key(key, &command));
        };
    }
    Ok(command)
}

/// The options that a file may set: all that have a long flag, but not the one that names the file.
fn options(command: &Command) -> impl Iterator<Item = &Arg> {
    command
        .get_arguments()
        .filter(|argument| argument.get_long().is_some_and(|long| !matches!(long, CONFIG | "help" | "version")))
}

/// The TOML key of an option.
pub(crate) fn key(long: &str) -> String {
    long.replace('-', "_")
}

impl Place<'_> {
    fn key(&self, key: &str) -> String {
        format!("{}{key}", self.section)
    }

    fn wrong_value(&self, key: &str, wrong: value::Wrong) -> SettingsError {
        SettingsError::Value {
            path: self.path.to_owned(),
            key: self.key(key),
            reason: wrong.reason,
            allowed: wrong.allowed,
        }
    }

    fn unknown_key(&self, unknown: &str, command: &Command) -> SettingsError {
        let sections = command.get_subcommands().filter(|sub| options(sub).next().is_some()).map(Command::get_name);
        let mut allowed: Vec<String> = options(command).filter_map(Arg::get_long).chain(sections).map(key).collect();
        allowed.sort_unstable();
        let near = |other: &&String| strsim::jaro_winkler(&key(unknown), other) >= NEAR;
        let near = allowed.iter().filter(near).cloned().collect();
        SettingsError::UnknownKey { path: self.path.to_owned(), key: self.key(unknown), near, allowed }
    }
}
