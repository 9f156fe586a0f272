//! The splits of a folder whose files or folders are named as those of datasets on a hub: `train`, `test` and so on.
//!
//! This module works on names only. A file belongs to a split if
//! - it is one of several shards, `data/train-00000-of-00002.parquet`,
//! - it is in a folder that is named as a split, `train/a.parquet`, or
//! - its own name begins as one, `train.parquet`, `test_1.parquet`.

use std::collections::BTreeMap;

use glob::Pattern;

/// Names of splits.
const NAMES: [&str; 10] =
    ["train", "training", "validation", "valid", "val", "dev", "test", "testing", "eval", "evaluation"];

/// Digits of the number of a shard.
const SHARD_DIGITS: usize = 5;

/// The name of a split's shards after that of the split, and what may follow the name of a split in that of a file.
const SHARDS: &str = "-[0-9][0-9][0-9][0-9][0-9]-of-*";
const FURTHER: &str = "[-._0-9]*";

/// A split of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatasetSplit {
    /// Its name; with the folder that it is in, if several have splits: `en-train`.
    pub name: String,
    /// Its files: a folder or a pattern.
    pub files: String,
}

/// Where a split is, and its name there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place<'a> {
    /// The folder above.
    above: &'a str,
    name: &'a str,
    kind: PlaceKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PlaceKind {
    Folder,
    Shards,
    Names,
}

/// The splits of a folder with these data files, by their paths below it, as the URLs of datasets; none unless there are at least two, one of
/// which has a name that splits have. Files of no split are of none of them.
pub(super) fn find<'a>(folder: &str, files: impl IntoIterator<Item = &'a str>) -> Vec<DatasetSplit> {
    let mut places: BTreeMap<(&str, &str), PlaceKind> = BTreeMap::new();
    // Partitions have files of any name.
    let found = files.into_iter().filter_map(Place::of).filter(|place| !place.above.contains('='));
    for Place { above, name, kind } in found {
        places.entry((above, name)).and_modify(|known| *known = (*known).min(kind)).or_insert(kind);
    }
    if places.len() < 2 || !places.keys().any(|(_, name)| is_name(name)) {
        return Vec::new();
    }
    let is_one_folder = places.keys().all(|(above, _)| places.keys().next().is_some_and(|(first, _)| above == first));
    let split = |(&(above, name), kind): (&(&str, &str), &PlaceKind)| {
        let title = if is_one_folder || above.is_empty() {
            name.to_owned()
        } else {
            format!("{}-{name}", above.replace('/', "-"))
        };
        let parts = [folder.trim_end_matches('/'), above, name];
        let path = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/");
        let files = match kind {
            PlaceKind::Folder => path,
            PlaceKind::Shards => format!("{}{SHARDS}", Pattern::escape(&path)),
            PlaceKind::Names => format!("{}{FURTHER}", Pattern::escape(&path)),
        };
        DatasetSplit { name: title, files }
    };
    places.iter().map(split).collect()
}

impl<'a> Place<'a> {
    /// The split of a file, if its path tells.
    fn of(file: &'a str) -> Option<Self> {
        let (folders, own) = file.rsplit_once('/').unwrap_or(("", file));
        if let Some(name) = of_shard(own) {
            return Some(Self { above: folders, name, kind: PlaceKind::Shards });
        }
        let mut start = 0;
        for folder in folders.split('/') {
            if is_name(folder) {
                return Some(Self {
                    above: folders[..start].trim_end_matches('/'),
                    name: folder,
                    kind: PlaceKind::Folder,
                });
            }
            start += folder.len() + 1;
        }
        let end = own.find(|letter: char| matches!(letter, '-' | '.' | '_' | '0'..='9'))?;
        let name = &own[..end];
        is_name(name).then_some(Self { above: folders, name, kind: PlaceKind::Names })
    }
}

/// The name before the number of a shard: of `train-00000-of-00002.parquet`.
fn of_shard(file: &str) -> Option<&str> {
    let is_number = |text: &str| text.len() == SHARD_DIGITS && text.bytes().all(|byte| byte.is_ascii_digit());
    let (before, after) = file.split_once("-of-")?;
    let (name, number) = before.rsplit_once('-')?;
    let count = after.get(..SHARD_DIGITS)?;
    (!name.is_empty() && is_number(number) && is_number(count)).then_some(name)
}

fn is_name(text: &str) -> bool {
    NAMES.iter().any(|name| text.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[&str]) -> Vec<String> {
        find("", files.iter().copied())
            .into_iter()
            .map(|DatasetSplit { name, files }| format!("{name}={files}"))
            .collect()
    }

    #[test]
    fn names_of_shards_folders_and_files_tell_splits() {
        let shards = [
            "data/train-00000-of-00002.parquet",
            "data/train-00001-of-00002.parquet",
            "data/all_1-00000-of-00001.parquet",
        ];
        assert_eq!(found(&shards), [format!("all_1=data/all_1{SHARDS}"), format!("train=data/train{SHARDS}")]);
        let folders = ["train/a.parquet", "train/more/b.parquet", "Test/test/0.parquet", "extra.parquet"];
        assert_eq!(found(&folders), ["Test=Test", "train=train"]);
        let names = ["train.parquet", "test_1.parquet", "test-2.parquet", "trainer.parquet"];
        assert_eq!(found(&names), [format!("test=test{FURTHER}"), format!("train=train{FURTHER}")]);
        let converted = ["en/train/0000.parquet", "en/test/0000.parquet", "de/train/0000.parquet"];
        assert_eq!(found(&converted), ["de-train=de/train", "en-test=en/test", "en-train=en/train"]);
        let configured = ["en/train-00000-of-00001.parquet", "de/train-00000-of-00001-0f.parquet"];
        assert_eq!(found(&configured), [format!("de-train=de/train{SHARDS}"), format!("en-train=en/train{SHARDS}")]);
        let odd = ["a[1]/train.parquet", "a[1]/val.parquet"];
        assert_eq!(found(&odd), [format!("train=a[[]1[]]/train{FURTHER}"), format!("val=a[[]1[]]/val{FURTHER}")]);
    }

    #[test]
    fn folders_are_literal() {
        let found = |folder| find(folder, ["a/train", "a/test"].map(|name| name)).len();
        assert_eq!(found("/x"), 0, "names without an ending are no files of splits");
        let of = |folder, names: [&'static str; 2]| find(folder, names)[0].files.clone();
        assert_eq!(of("/x/[1]/", ["test/a", "train/a"]), "/x/[1]/test");
        assert_eq!(of("/x/[1]", ["test.parquet", "train.parquet"]), format!("/x/[[]1[]]/test{FURTHER}"));
        assert_eq!(of("hf://datasets/o/n", ["test/a", "train/a"]), "hf://datasets/o/n/test");
    }

    #[test]
    fn patterns_match_the_files_of_their_split_alone() {
        for (pattern, matching, others) in [
            (
                SHARDS,
                "train-00000-of-00002.parquet",
                ["train-extra-00000-of-00001.parquet", "training-00000-of-00001.parquet"],
            ),
            (FURTHER, "train_1.parquet", ["training.parquet", "trainer.parquet"]),
        ] {
            let pattern = Pattern::new(&format!("train{pattern}")).unwrap();
            assert!(pattern.matches(matching));
            assert!(!others.iter().any(|other| pattern.matches(other)));
        }
        assert!(Pattern::new(&format!("train{FURTHER}")).unwrap().matches("train.parquet"));
    }

    #[test]
    fn other_folders_have_no_splits() {
        for files in [
            &["train-00000-of-00001.parquet"][..],
            &["a.parquet", "b.parquet"],
            &["part-00000-of-00002.parquet", "part-00001-of-00002.parquet"],
            &["clicks-00000-of-00001.parquet", "views-00000-of-00001.parquet"],
            &["day=1/train.parquet", "day=2/test.parquet", "day=2/train/a.parquet"],
            &[],
        ] {
            assert_eq!(found(files), [""; 0], "{files:?}");
        }
    }
}
