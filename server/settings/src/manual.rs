//! Man pages and shell completions of a program, from its clap definition.
//!
//! `PROGRAM write-manual FOLDER` writes them, for packages. It is in no help, and means this only as a program's first
//! argument. Reads no configuration file, so that the texts do not depend on the machine's settings.

use std::{ffi::OsString, fs, io, path::Path};

use clap::Command;
use clap_complete::{Shell, generate_to};

/// First argument of a process that writes its manual and ends.
const WRITE: &str = "write-manual";

/// Where packages of systems install man pages, below `/usr` or `/usr/local`.
const MAN_FOLDER: &str = "share/man/man1";

/// Where the shells look for completions, below the same folder.
const SHELL_FOLDERS: [(Shell, &str); 3] = [
    (Shell::Bash, "share/bash-completion/completions"),
    (Shell::Fish, "share/fish/vendor_completions.d"),
    (Shell::Zsh, "share/zsh/site-functions"),
];

/// Returns the folder if the arguments (the first is the program's name) ask for the manual.
pub(crate) fn folder(arguments: &[OsString]) -> Option<&Path> {
    match arguments {
        [_, first, folder] if first == WRITE => Some(Path::new(folder)),
        _ => None,
    }
}

/// Writes a man page for the program and each of its subcommands, and completions for three shells.
pub(crate) fn write(mut command: Command, folder: &Path) -> io::Result<()> {
    let name = command.get_name().to_owned();
    let pages = folder.join(MAN_FOLDER);
    fs::create_dir_all(&pages)?;
    clap_mangen::generate_to(command.clone(), pages)?;
    for (shell, place) in SHELL_FOLDERS {
        let completions = folder.join(place);
        fs::create_dir_all(&completions)?;
        generate_to(shell, &mut command, &name, completions)?;
    }
    Ok(())
}
