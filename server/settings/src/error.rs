//! Why settings cannot be used, and how a program ends because of it.

use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process;

/// The exit code of bad usage or configuration.
const EXIT_USAGE: i32 = 2;

/// Why no settings came out. Every variant but `Usage` is about the configuration file.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// What clap answers: wrong flags or environment variables, or the text of `--help` or `--version`.
    #[error(transparent)]
    Usage(#[from] clap::Error),

    /// The file cannot be read.
    #[error("cannot read the configuration file {}", path.display())]
    Read {
        /// The file as it was named.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },

    /// The file is not TOML.
    #[error("the configuration file {} is not TOML", path.display())]
    Syntax {
        /// The file as it was named.
        path: PathBuf,
        /// Line and column of the mistake.
        source: toml::de::Error,
    },

    /// A key that no option has.
    #[error("{}: unknown key `{key}`; {}", path.display(), suggestion(near, allowed))]
    UnknownKey {
        /// The file as it was named.
        path: PathBuf,
        /// The key, with the tables it stands in.
        key: String,
        /// Allowed keys that look like it.
        near: Vec<String>,
        /// Every key that may stand in its place.
        allowed: Vec<String>,
    },

    /// An option that is given both as `some_key` and as `some-key`.
    #[error("{}: key `{key}` is given twice, with `-` and with `_`", path.display())]
    Twice {
        /// The file as it was named.
        path: PathBuf,
        /// The key, with the tables it stands in.
        key: String,
    },

    /// A value of a wrong type, or outside what the option allows.
    #[error("{}: key `{key}`: {reason}; allowed: {allowed}", path.display())]
    Value {
        /// The file as it was named.
        path: PathBuf,
        /// The key, with the tables it stands in.
        key: String,
        /// What is wrong with the value.
        reason: String,
        /// What the option takes.
        allowed: String,
    },
}

impl SettingsError {
    /// Ends the process: help and version go to stdout with code 0, everything else to stderr with code 2.
    pub fn exit(&self) -> ! {
        if let Self::Usage(error) = self {
            error.exit();
        }
        let mut message = self.to_string();
        let mut source = self.source();
        while let Some(error) = source {
            message = format!("{message}: {error}");
            source = error.source();
        }
        // Where stderr is closed, the exit code is all that can be said.
        let _ = writeln!(io::stderr(), "error: {}", message.trim_end());
        process::exit(EXIT_USAGE)
    }
}

fn suggestion(near: &[String], allowed: &[String]) -> String {
    let quoted = |keys: &[String]| keys.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ");
    match (near, allowed) {
        (_, []) => "no keys are allowed here".to_owned(),
        ([], allowed) => format!("allowed: {}", quoted(allowed)),
        (near, allowed) => format!("did you mean {}? allowed: {}", quoted(near), quoted(allowed)),
    }
}
