//! The folders that the files of a table may be in: its own, and those that the operator names in addition.
//!
//! A log is written by anyone who may write the table. It must not choose which other files of a disk or bucket are served.

use object_store::path::Path;

use crate::error::LakeError;

/// The folders of a table in its store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableFolders {
    /// The folder of the table.
    pub root: Path,
    /// Further folders that files of the table are in, as after a shallow clone.
    pub further: Vec<Path>,
}

impl TableFolders {
    /// The folder of a table that has all of its files.
    pub fn of(root: Path) -> Self {
        Self { root, further: Vec::new() }
    }

    /// The part of a path below the folder of the table; `None` if it is not in it.
    pub fn below_root<'a>(&self, path: &'a Path) -> Option<&'a str> {
        below(&self.root, path)
    }

    /// Whether a path is in one of the folders.
    pub fn contain(&self, path: &Path) -> bool {
        [&self.root].into_iter().chain(&self.further).any(|folder| below(folder, path).is_some())
    }

    /// Refuses a path that is in none of the folders. `file` and `shown` are for the message: the file as the log names
    /// it, and paths as users know them.
    pub fn check(&self, path: &Path, file: &str, shown: impl Fn(&Path) -> String) -> Result<(), LakeError> {
        if self.contain(path) {
            return Ok(());
        }
        Err(LakeError::Unsupported(format!(
            "\"{file}\" is not in the folder of the table, \"{}\", and no other files are read: give the table's \
             original path, or name the folder of these files in --dataset after the URL, as @root=URL",
            shown(&self.root)
        )))
    }
}

fn below<'a>(folder: &Path, path: &'a Path) -> Option<&'a str> {
    match folder.as_ref() {
        "" => Some(path.as_ref()),
        folder => path.as_ref().strip_prefix(folder).filter(|rest| rest.is_empty() || rest.starts_with('/')),
    }
    .map(|below| below.trim_start_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_in_the_folders_or_refused() {
        let folders = TableFolders { root: Path::from("a/t"), further: vec![Path::from("b")] };
        let check = |path: &str| folders.check(&Path::from(path), path, |path| format!("s3://x/{path}"));
        for inside in ["a/t", "a/t/x", "b/c/d"] {
            check(inside).unwrap();
        }
        for outside in ["a/tt/x", "a/x", "bb", "t/x", ""] {
            let error = check(outside).unwrap_err().to_string();
            assert!(error.contains("not in the folder of the table, \"s3://x/a/t\"") && error.contains("@root=URL"));
        }
        assert_eq!(folders.below_root(&Path::from("a/t/x/y")), Some("x/y"));
        assert_eq!(TableFolders::of(Path::default()).below_root(&Path::from("x/y")), Some("x/y"));
    }
}
