//! The memory of this machine or container: the smallest limit of the machine and of the control groups of the process.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Assumed if the system reports no size.
const UNKNOWN: u64 = 4 << 30;

/// The files with the limit of a control group, of version 2 and 1.
const LIMIT_V2: &str = "memory.max";
const LIMIT_V1: &str = "memory.limit_in_bytes";

/// The controller of memory, in version 1.
const MEMORY: &str = "memory";

/// Returns the memory available to this process.
pub(super) fn memory_bytes() -> u64 {
    memory_bytes_under(Path::new("/"))
}

/// The same, for the system whose files are under a folder.
fn memory_bytes_under(root: &Path) -> u64 {
    let text = |path: &str| fs::read_to_string(root.join(path)).ok();
    let total = |text: String| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:").map(str::to_owned))?;
        line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()
    };
    let machine = text("proc/meminfo").and_then(total).map(|kib| kib.saturating_mul(1024));
    let groups = text("proc/self/cgroup").unwrap_or_default();
    let mounts = mounts(&text("proc/self/mountinfo").unwrap_or_default());
    let groups: Vec<OwnControlGroup<'_>> = groups.lines().filter_map(OwnControlGroup::parse).collect();
    let limits = groups.iter().flat_map(|group| group.limits(root, &mounts));
    machine.into_iter().chain(limits).min().unwrap_or(UNKNOWN)
}

/// A hierarchy of control groups that limits memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hierarchy {
    V1,
    V2,
}

/// A control group of the process, by its path in a hierarchy.
#[derive(Debug, PartialEq, Eq)]
struct OwnControlGroup<'a> {
    hierarchy: Hierarchy,
    path: &'a str,
}

/// Where a hierarchy is mounted.
#[derive(Debug, PartialEq, Eq)]
struct ControlGroupMount {
    hierarchy: Hierarchy,
    /// The group that is the root of the mount: in a container, often its own.
    group: String,
    /// The folder.
    folder: PathBuf,
}

// === impl OwnControlGroup ===

impl<'a> OwnControlGroup<'a> {
    /// Parses a line of `/proc/self/cgroup`, such as `0::/a` or `5:memory:/a`; none for a hierarchy without memory.
    fn parse(line: &'a str) -> Option<Self> {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let hierarchy = match controllers {
            "" => Hierarchy::V2,
            some if some.split(',').any(|name| name == MEMORY) => Hierarchy::V1,
            _ => return None,
        };
        Some(Self { hierarchy, path })
    }

    /// The limits of the group and of those above it, as far as they are mounted. A limit that is not a number is
    /// ignored, and the number by which version 1 says that there is none exceeds every machine.
    fn limits(&self, root: &Path, mounts: &[ControlGroupMount]) -> Vec<u64> {
        let mounts: Vec<&ControlGroupMount> = mounts.iter().filter(|mount| mount.hierarchy == self.hierarchy).collect();
        let (usual, file) = match self.hierarchy {
            Hierarchy::V1 => ("/sys/fs/cgroup/memory", LIMIT_V1),
            Hierarchy::V2 => ("/sys/fs/cgroup", LIMIT_V2),
        };
        // Without a known mount, the usual places.
        let mut folders: Vec<(PathBuf, PathBuf)> =
            mounts.iter().map(|mount| (mount.folder.clone(), self.below(&mount.group))).collect();
        folders.push((PathBuf::from(usual), self.below("/")));
        let limit = |folder: PathBuf| fs::read_to_string(folder.join(file)).ok()?.trim().parse::<u64>().ok();
        let all = folders.into_iter().flat_map(|(mount, below)| {
            let mount = root.join(mount.strip_prefix("/").unwrap_or(&mount));
            let ancestors: Vec<PathBuf> = below.ancestors().map(|part| mount.join(part)).collect();
            ancestors.into_iter().filter_map(limit)
        });
        all.collect()
    }

    /// The path of the group below the root of a mount. A group that is not below it, as one outside of the container's
    /// namespace, is looked for below the mount as it is.
    fn below(&self, mounted: &str) -> PathBuf {
        let own = Path::new(self.path);
        let below = own.strip_prefix(mounted).or_else(|_| own.strip_prefix("/")).unwrap_or(own);
        // `/../a` is a group outside of the namespace.
        below.components().filter(|part| matches!(part, std::path::Component::Normal(_))).collect()
    }
}

/// The mounts of control groups in `/proc/self/mountinfo`.
fn mounts(text: &str) -> Vec<ControlGroupMount> {
    text.lines().filter_map(mount).collect()
}

/// Parses a line: `36 35 98:0 /group /folder options - type source super-options`.
fn mount(line: &str) -> Option<ControlGroupMount> {
    let (mounted, kind) = line.split_once(" - ")?;
    let mut fields = mounted.split(' ').skip(3);
    let (group, folder) = (unescaped(fields.next()?), PathBuf::from(unescaped(fields.next()?)));
    let mut kind = kind.split(' ');
    let hierarchy = match (kind.next()?, kind.nth(1)) {
        ("cgroup2", _) => Hierarchy::V2,
        ("cgroup", Some(options)) if options.split(',').any(|name| name == MEMORY) => Hierarchy::V1,
        _ => return None,
    };
    Some(ControlGroupMount { hierarchy, group, folder })
}

/// A field in which the kernel writes spaces and backslashes as octal numbers.
fn unescaped(field: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(field.to_owned(), |text, (escaped, letter)| text.replace(escaped, letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    /// The memory under a system with these files.
    fn memory_with(files: &[(&str, &str)]) -> u64 {
        let system = tempfile::tempdir().unwrap();
        for (path, text) in [("proc/meminfo", "MemFree: 1 kB\nMemTotal:       67108864 kB\n")].iter().chain(files) {
            let path = system.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        memory_bytes_under(system.path())
    }

    #[test]
    fn the_smallest_limit_of_the_group_and_those_above_it_counts() {
        const UNLIMITED: &str = "9223372036854771712\n";
        let v1_mount = "36 25 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        for (want, files) in [
            (64 * GIB, vec![]),
            (64 * GIB, vec![("proc/self/cgroup", "0::/\n"), ("sys/fs/cgroup/memory.max", "max\n")]),
            (GIB, vec![("proc/self/cgroup", "0::/\n"), ("sys/fs/cgroup/memory.max", "1073741824\n")]),
            (GIB, vec![("proc/self/cgroup", "0::/a/b.service\n"), ("sys/fs/cgroup/a/memory.max", "1073741824\n")]),
            (
                GIB,
                vec![
                    ("proc/self/cgroup", "0::/a/b\n"),
                    ("sys/fs/cgroup/a/memory.max", "2147483648\n"),
                    ("sys/fs/cgroup/a/b/memory.max", "1073741824\n"),
                ],
            ),
            // Version 1, without and with a limit; above the group; hybrid; mounted elsewhere; in a container, whose mount
            // is the group.
            (
                64 * GIB,
                vec![
                    ("proc/self/cgroup", "5:cpu:/x\n4:memory:/d/1\n"),
                    ("sys/fs/cgroup/memory/d/1/memory.limit_in_bytes", UNLIMITED),
                ],
            ),
            (
                GIB,
                vec![
                    ("proc/self/cgroup", "4:hugetlb,memory:/d/1\n0::/d/1\n"),
                    ("proc/self/mountinfo", v1_mount),
                    ("sys/fs/cgroup/memory/d/memory.limit_in_bytes", "1073741824\n"),
                    ("sys/fs/cgroup/memory/d/1/memory.limit_in_bytes", UNLIMITED),
                ],
            ),
            (
                GIB,
                vec![
                    ("proc/self/cgroup", "4:memory:/\n0::/x\n"),
                    ("proc/self/mountinfo", "40 25 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"),
                    ("sys/fs/cgroup/unified/x/memory.max", "1073741824\n"),
                ],
            ),
            (
                GIB,
                vec![
                    ("proc/self/cgroup", "4:memory:/docker/1/inner\n"),
                    ("proc/self/mountinfo", "36 25 0:32 /docker/1 /odd\\040place rw - cgroup cgroup rw,memory\n"),
                    ("odd place/inner/memory.limit_in_bytes", "1073741824\n"),
                ],
            ),
        ] {
            assert_eq!(memory_with(&files), want, "{files:?}");
        }
    }
}
