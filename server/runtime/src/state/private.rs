//! Folders and files that only their owner can read: plans and finished rows hold values of the data.

use std::{
    fs::{self, DirBuilder, OpenOptions, Permissions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::Path,
};

use super::{
    bucket::USED_FOLDER,
    kind::{Kind, SPILL_FOLDER, VIEW_FOLDER},
};

/// The permissions of a folder, and of a file.
const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// The permissions of everyone but the owner.
const OTHERS: u32 = 0o077;

const STICKY: u32 = 0o1000;

/// Creates a folder with those above it, as far as they do not exist. Takes the permissions of others from one that exists,
/// and from what is in it.
pub fn create_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(path)?;
    withdraw(path);
    Ok(())
}

/// Writes a file, or replaces its content.
pub fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(FILE_MODE).open(path)?.write_all(bytes)
}

/// Takes the permissions of others from a folder itself, unless it is one for all users (`/tmp`) or has folders of others.
pub(super) fn withdraw_from_root(root: &Path) {
    let Ok(found) = fs::symlink_metadata(root) else { return };
    let is_own = |entry: fs::DirEntry| !entry.file_type().is_ok_and(|kind| kind.is_dir()) || is_known_folder(&entry);
    let is_for_all = found.mode() & STICKY != 0;
    if found.is_dir() && !is_for_all && fs::read_dir(root).into_iter().flatten().flatten().all(is_own) {
        let _ = fs::set_permissions(root, Permissions::from_mode(found.mode() & FOLDER_MODE));
    }
}

fn is_known_folder(entry: &fs::DirEntry) -> bool {
    let mut folders = Kind::ALL.into_iter().map(Kind::folder).chain([SPILL_FOLDER, VIEW_FOLDER, USED_FOLDER]);
    entry.file_name().to_str().is_some_and(|name| folders.any(|folder| folder == name))
}

/// Takes the permissions of others from a folder that they can read, and from what is in it. Follows no links.
fn withdraw(path: &Path) {
    let Ok(found) = fs::symlink_metadata(path) else { return };
    if found.is_symlink() || found.mode() & OTHERS == 0 {
        return;
    }
    if found.is_dir() {
        fs::read_dir(path).into_iter().flatten().flatten().for_each(|entry| withdraw(&entry.path()));
    }
    // Fails for a folder of another user, who has to know.
    let _ = fs::set_permissions(path, Permissions::from_mode(found.mode() & 0o700));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn others_can_read_neither_new_nor_earlier_files() {
        let top = tempfile::tempdir().unwrap();
        let folder = top.path().join("a/b");
        fs::create_dir_all(folder.join("c")).unwrap();
        let outside = top.path().join("outside");
        for path in [folder.join("c/file"), outside.clone()] {
            fs::write(&path, "x").unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        }
        std::os::unix::fs::symlink(&outside, folder.join("link")).unwrap();
        for path in [folder.clone(), folder.join("c")] {
            fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        }
        create_folder(&folder).unwrap();
        create_folder(&folder.join("new/deep")).unwrap();
        write_file(&folder.join("new/file"), b"y").unwrap();
        for (path, want) in
            [("", 0o700), ("c", 0o700), ("c/file", 0o600), ("new", 0o700), ("new/deep", 0o700), ("new/file", 0o600)]
        {
            assert_eq!(mode(&folder.join(path)), want, "{path}");
        }
        assert_eq!(mode(&outside), 0o644);
        for (name, want) in [("plans", 0o700), ("other", 0o755)] {
            let root = top.path().join(format!("root-{name}"));
            fs::create_dir_all(root.join(name)).unwrap();
            fs::set_permissions(&root, Permissions::from_mode(0o755)).unwrap();
            withdraw_from_root(&root);
            assert_eq!(mode(&root), want, "{name}");
        }
    }
}
