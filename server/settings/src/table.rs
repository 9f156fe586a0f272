//! The options of a program as a Markdown table, for the book.

use std::fmt::Write;

use clap::{Arg, ArgAction, Command};

use crate::{file, with_config_option};

/// Renders every option with a long flag as a Markdown table: flag, environment variable, TOML key, default,
/// description. Options of subcommands follow those of the program, with the names of the subcommand and of its table
/// in the file.
pub fn markdown_table(command: &Command) -> String {
    let command = with_config_option(command.clone());
    let mut text = String::from("| flag | environment | TOML key | default | description |\n|---|---|---|---|---|\n");
    rows(&mut text, &command, "", "");
    text
}

fn rows(text: &mut String, command: &Command, path: &str, section: &str) {
    for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
        // A built command repeats its global options in every subcommand.
        if !path.is_empty() && argument.is_global_set() {
            continue;
        }
        let Some(long) = argument.get_long().filter(|long| !matches!(*long, "help" | "version")) else { continue };
        let flag = format!("`{path}--{long}{}`", value_name(argument));
        let environment = argument.get_env().map_or(NONE.to_owned(), |name| format!("`{}`", name.to_string_lossy()));
        let key = if long == file::CONFIG { NONE.to_owned() } else { format!("`{section}{}`", file::key(long)) };
        let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
        let cells = [flag, environment, key, default(argument), help].map(|cell| escaped(&cell));
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
        let name = subcommand.get_name();
        rows(text, subcommand, &format!("{path}{name} "), &format!("{section}{}.", file::key(name)));
    }
}

/// The text of an empty cell.
const NONE: &str = "–";

fn value_name(argument: &Arg) -> String {
    if !argument.get_action().takes_values() {
        return String::new();
    }
    let names = argument.get_value_names().unwrap_or_default();
    names.iter().fold(String::new(), |text, name| text + " " + name)
}

fn default(argument: &Arg) -> String {
    let values = argument.get_default_values();
    if argument.is_required_set() {
        "required".to_owned()
    } else if !values.is_empty() {
        let values: Vec<_> = values.iter().map(|value| value.to_string_lossy()).collect();
        format!("`{}`", values.join(" "))
    } else if matches!(argument.get_action(), ArgAction::SetTrue) {
        "`false`".to_owned()
    } else {
        NONE.to_owned()
    }
}

fn escaped(cell: &str) -> String {
    cell.replace('|', "\\|").replace('\n', " ")
}
