//! Errors of settings, and how they end the program.

use std::{
    error::Error,
    io::{self, Write},
    path::PathBuf,
    process,
};

/// Exit code for wrong usage or configuration.
const EXIT_USAGE: i32 = 2;

/// The reason why settings cannot be used. Every variant except `Usage` is about the configuration file.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// Wrong flags or environment variables, or the text of `--help` or `--version`.
    #[error(transparent)]
    Usage(#[from] clap::Error),

    /// The file cannot be read.
    #[error("cannot read the configuration file {}", path.display())]
    Read {
        /// Path of the file, as given.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },

    /// The file is not TOML.
    #[error("the configuration file {} is not TOML", path.display())]
    Syntax {
        /// Path of the file, as given.
        path: PathBuf,
        /// The mistake, with line and column.
        source: toml::de::Error,
    },

    /// No option has the key.
    #[error("{}: unknown key `{key}`; {}", path.display(), suggestion(near, allowed))]
    UnknownKey {
        /// Path of the file, as given.
        path: PathBuf,
        /// The key, including the names of its tables.
        key: String,
        /// Similar allowed keys.
        near: Vec<String>,
        /// All allowed keys.
        allowed: Vec<String>,
    },

    /// An option is set both as `some_key` and as `some-key`.
    #[error("{}: key `{key}` is set twice, with `-` and with `_`", path.display())]
    Twice {
        /// Path of the file, as given.
        path: PathBuf,
        /// The key, including the names of its tables.
        key: String,
    },

    /// A value has the wrong type, or the option does not allow it.
    #[error("{}: key `{key}`: {reason}; allowed: {allowed}", path.display())]
    Value {
        /// Path of the file, as given.
        path: PathBuf,
        /// The key, including the names of its tables.
        key: String,
        /// The mistake.
        reason: String,
        /// Values that the option accepts.
        allowed: String,
    },
}

impl SettingsError {
    /// Exits the process: prints help and version to stdout with code 0, errors to stderr with code 2.
    pub fn exit(&self) -> ! {
        if let Self::Usage(error) = self {
            error.exit();
        }
        // If stderr is closed, only the exit code reports the error.
        let _ = writeln!(io::stderr(), "error: {}", self.message().trim_end());
        process::exit(EXIT_USAGE)
    }

    /// Returns the error as one line, for a log: without usage and without quoted lines of the file.
    pub fn line(&self) -> String {
        let message = self.message();
        let first = message.split("\n\n").next().unwrap_or_default();
        let lines = first.lines().map(str::trim).filter(|line| !line.is_empty() && !is_excerpt(line));
        let line = lines.collect::<Vec<_>>().join(" ");
        line.strip_prefix("error: ").map_or(line.clone(), str::to_owned)
    }

    /// The message with those of its sources.
    fn message(&self) -> String {
        let mut message = self.to_string();
        let mut source = self.source();
        while let Some(error) = source {
            message = format!("{message}: {error}");
            source = error.source();
        }
        message
    }
}

/// Whether a line of the TOML parser's error quotes the file: "1 | key = ", "  | ^".
fn is_excerpt(line: &str) -> bool {
    line.trim_start_matches(|letter: char| letter.is_ascii_digit()).trim_start().starts_with('|')
}

fn suggestion(near: &[String], allowed: &[String]) -> String {
    let quoted = |keys: &[String]| keys.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ");
    match (near, allowed) {
        (_, []) => "no keys are allowed here".to_owned(),
        ([], allowed) => format!("allowed: {}", quoted(allowed)),
        (near, allowed) => format!("did you mean {}? allowed: {}", quoted(near), quoted(allowed)),
    }
}
