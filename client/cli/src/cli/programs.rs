//! The other programs of Forebay, and Python: found next to this one, or else on PATH.

use std::{
    env,
    ffi::OsStr,
    path::{Path, PathBuf},
};

/// The program that serves datasets.
pub(crate) const SERVER: &str = "forebay-server";

/// The environment variable that names another server program, as for `fb.local` of the Python package.
pub(crate) const SERVER_VARIABLE: &str = "FOREBAY_SERVER_BIN";

/// The environment variable that names another Python.
const PYTHON_VARIABLE: &str = "FOREBAY_PYTHON";

/// Returns the program of this name next to this one; otherwise its name, which PATH resolves.
pub(crate) fn program(name: &str) -> PathBuf {
    let sibling = env::current_exe().ok().and_then(|path| Some(path.parent()?.join(name)));
    sibling.filter(|path| path.is_file()).unwrap_or_else(|| PathBuf::from(name))
}

/// Returns the server program: the one that the environment names, or `program`.
pub(crate) fn server() -> PathBuf {
    named_by(SERVER_VARIABLE).unwrap_or_else(|| program(SERVER))
}

/// Returns the Python that has our package or its dependencies: the one that the environment names, or `program`, which is
/// that of the environment in which this program is installed.
pub(crate) fn python() -> PathBuf {
    named_by(PYTHON_VARIABLE).unwrap_or_else(|| program("python3"))
}

fn named_by(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// Returns the path of a program: its own, or that of the first file of its name on PATH.
pub(crate) fn found(program: &Path) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return program.is_file().then(|| program.to_owned());
    }
    on_path(program, env::var_os("PATH")?.as_os_str())
}

fn on_path(name: &Path, folders: &OsStr) -> Option<PathBuf> {
    env::split_paths(folders).map(|folder| folder.join(name)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsString, fs};

    use super::*;

    #[test]
    fn finds_the_first_program_on_the_path() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("b/tool")).unwrap();
        fs::create_dir_all(folder.path().join("c")).unwrap();
        fs::write(folder.path().join("c/tool"), "").unwrap();
        let mut folders = OsString::new();
        for name in ["a", "b", "c"] {
            folders.push(folder.path().join(name));
            folders.push(":");
        }
        assert_eq!(on_path(Path::new("tool"), &folders), Some(folder.path().join("c/tool")));
        assert_eq!(on_path(Path::new("none"), &folders), None);
        assert_eq!(found(&folder.path().join("c/tool")), Some(folder.path().join("c/tool")));
        assert_eq!(found(&folder.path().join("b/tool")), None, "a folder is not a program");
    }
}
