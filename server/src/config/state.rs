//! `--state` and `--scratch-dir` → the place of the state.

use std::{
    env,
    path::{Path, PathBuf},
    sync::Arc,
};

use forebay_catalog::StoreObjects;

use super::{
    error::{ConfigError, wrong},
    flags::Flags,
};

/// Where state and scratch data are.
#[derive(Clone, Debug)]
pub struct StatePlace {
    /// The value of `--state`, or the default.
    pub shown: String,
    /// Where state is.
    pub kind: StateKind,
    /// The directory of spilled data and results of views.
    pub scratch: PathBuf,
}

/// The kinds of places for state.
#[derive(Clone, Debug)]
pub enum StateKind {
    /// A directory, which may not exist.
    Directory(PathBuf),
    /// A prefix in an object store.
    Store(Arc<StoreObjects>),
}

/// Parses the settings. Nothing is opened.
pub(super) fn place(flags: &Flags) -> Result<StatePlace, ConfigError> {
    let scratch = flags.scratch_dir.clone();
    match flags.state.as_deref().map(|text| (text, text.split_once("://"))) {
        None => Ok(StatePlace::of_directory(default_directory("state", "a directory")?, scratch)),
        Some((text, None)) => Ok(StatePlace::of_directory(text.into(), scratch)),
        Some((_, Some(("file", path)))) => Ok(StatePlace::of_directory(path.into(), scratch)),
        Some((text, Some(_))) => {
            let objects = StoreObjects::parse(text).map_err(|reason| wrong("state", text, reason))?;
            let scratch =
                scratch.map_or_else(|| default_directory("scratch-dir", "a directory on this machine"), Ok)?;
            Ok(StatePlace { shown: text.to_owned(), kind: StateKind::Store(Arc::new(objects)), scratch })
        }
    }
}

// === impl StatePlace ===

impl StatePlace {
    fn of_directory(directory: PathBuf, scratch: Option<PathBuf>) -> Self {
        Self {
            shown: directory.display().to_string(),
            scratch: scratch.unwrap_or_else(|| directory.clone()),
            kind: StateKind::Directory(directory),
        }
    }

    /// The directories that a server writes to.
    pub fn directories(&self) -> Vec<&Path> {
        match &self.kind {
            StateKind::Directory(directory) if *directory != self.scratch => vec![directory, &self.scratch],
            StateKind::Directory(_) | StateKind::Store(_) => vec![&self.scratch],
        }
    }
}

fn default_directory(flag: &'static str, named: &str) -> Result<PathBuf, ConfigError> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || set("HOME").map(|home| home.join(".local").join("state"));
    set("XDG_STATE_HOME")
        .or_else(home)
        .map(|base| base.join("forebay"))
        .ok_or_else(|| wrong(flag, "", format!("XDG_STATE_HOME and HOME are not set: name {named}")))
}
