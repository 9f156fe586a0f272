//! Opens the state of a configuration, or checks it without leaving anything behind.

use std::{fs, io, path::Path, process, sync::Arc};

use forebay_runtime::{
    cpu_pool::CpuPool,
    state::{State, StateError, check_objects},
};

use crate::config::{StateKind, StatePlace};

/// Opens the state. A store must respond and support conditional writes; a directory is created, and must be writable.
pub(super) async fn open(place: &StatePlace, cpu: &CpuPool) -> Result<State, StateError> {
    let state = match &place.kind {
        StateKind::Directory(directory) => State::open(directory, &place.scratch, cpu)?,
        StateKind::Store(objects) => {
            check_objects(objects.as_ref()).await?;
            State::in_store(Arc::clone(objects) as _, &place.scratch, cpu)?
        }
    };
    for directory in place.directories() {
        let failed = |source| StateError::File { action: "write to", path: directory.to_owned(), source };
        writable(directory).map_err(failed)?;
    }
    Ok(state)
}

/// Checks that the state can be written, a line for each problem.
pub(super) async fn check(place: &StatePlace) -> Vec<String> {
    let mut problems = Vec::new();
    for directory in place.directories() {
        if let Err(error) = writable(directory) {
            problems.push(format!("--state \"{}\": cannot write to it: {error}", directory.display()));
        }
    }
    if let StateKind::Store(objects) = &place.kind
        && let Err(error) = check_objects(objects.as_ref()).await
    {
        problems.push(format!("--state: {error}"));
    }
    problems
}

/// Checks that a directory can be written to or created, and leaves nothing behind: the server may be another user.
pub(super) fn writable(directory: &Path) -> io::Result<()> {
    let absolute = std::path::absolute(directory)?;
    let existing: Option<&Path> = absolute.ancestors().find(|path| path.exists());
    let probe = existing.unwrap_or(Path::new("/")).join(format!(".forebay-check-{}", process::id()));
    fs::File::create_new(&probe)?;
    fs::remove_file(&probe)
}
