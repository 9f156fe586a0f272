//! Checks of this machine: programs, limits, the GPU's driver, shared memory.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use rustix::{
    fs::{MemfdFlags, memfd_create, statvfs},
    process::{Resource, getrlimit},
};

use super::finding::Finding;
use crate::cli::{output, programs};

/// Descriptors that a server needs at least: connections, files that are read, and spilled aggregates.
const DESCRIPTORS_MIN: u64 = 4096;

/// Descriptors of any program, below which not even a client works well.
const DESCRIPTORS_TOO_FEW: u64 = 256;

/// The folder of POSIX shared memory, which worker processes of a `DataLoader` use.
const SHARED: &str = "/dev/shm";

/// Space that one batch of every worker needs, roughly.
const SHARED_BYTES_MIN: u64 = 256 << 20;

/// The library of the NVIDIA driver, which the server loads.
const DRIVER: &str = "libcuda.so.1";

/// Where the system's loader finds libraries, besides `LD_LIBRARY_PATH`.
const LIBRARY_FOLDERS: [&str; 7] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/cuda/compat",
    "/usr/lib/wsl/lib",
];

/// The version of this program, and of the server program that it would run.
pub(super) fn programs() -> Finding {
    let own = format!("forebay {}", env!("CARGO_PKG_VERSION"));
    let program = programs::server();
    let Some(path) = programs::found(&program) else {
        let advice = "only a server elsewhere can be used; the wheel and `make build` include it";
        return Finding::note("programs", format!("{own}, and no {}", program.display()), advice);
    };
    let printed = Command::new(&path).arg("--version").output();
    let version = match printed {
        Ok(printed) if printed.status.success() => String::from_utf8_lossy(&printed.stdout).trim().to_owned(),
        Ok(printed) => {
            let found = format!("{} ends with {}", path.display(), printed.status);
            return Finding::wrong("programs", found, "install one that is made for this machine");
        }
        Err(error) => {
            let found = format!("{} does not run: {error}", path.display());
            return Finding::wrong("programs", found, "install one that is made for this machine");
        }
    };
    let found = format!("{own}, {version} ({})", path.display());
    if version == format!("forebay-server {}", env!("CARGO_PKG_VERSION")) {
        Finding::ok("programs", found)
    } else {
        Finding::note("programs", found, "install the same version of both")
    }
}

/// The limit of open files.
pub(super) fn descriptors() -> Finding {
    let limit = getrlimit(Resource::Nofile);
    of_limit(limit.current, limit.maximum)
}

fn of_limit(current: Option<u64>, maximum: Option<u64>) -> Finding {
    let check = "descriptors";
    let Some(current) = current else { return Finding::ok(check, "no limit") };
    let most = maximum.map_or_else(|| "no limit".to_owned(), |maximum| maximum.to_string());
    let found = format!("{current} at once, at most {most}");
    let advice = format!(
        "raise it with `ulimit -n {}` before the server starts, or LimitNOFILE= of its unit",
        DESCRIPTORS_MIN.max(65_536)
    );
    match current {
        DESCRIPTORS_MIN.. => Finding::ok(check, found),
        DESCRIPTORS_TOO_FEW.. => Finding::note(check, found, advice),
        _ => Finding::wrong(check, found, advice),
    }
}

/// The driver of an NVIDIA GPU.
pub(super) fn driver() -> Finding {
    let kernel = fs::read_to_string("/proc/driver/nvidia/version").ok();
    let has_device = Path::new("/dev/nvidia0").exists() || Path::new("/dev/dxg").exists();
    of_driver(kernel.as_deref(), has_device, library(DRIVER).as_deref())
}

fn of_driver(kernel: Option<&str>, has_device: bool, library: Option<&Path>) -> Finding {
    let check = "driver";
    let version = kernel.and_then(|text| text.lines().next()).and_then(driver_version);
    match (kernel.is_some() || has_device, library) {
        (_, None) if kernel.is_none() && !has_device => {
            Finding::note(check, "no NVIDIA GPU", "features are computed on the CPU, which is the default")
        }
        (_, None) => {
            let advice = "install the driver's user libraries; in a container, pass --gpus all";
            Finding::wrong(check, format!("an NVIDIA GPU without {DRIVER}"), advice)
        }
        (true, Some(path)) => {
            let version = version.map(|version| format!("NVIDIA {version}, ")).unwrap_or_default();
            Finding::ok(check, format!("{version}{}", path.display()))
        }
        (false, Some(path)) => {
            let found = format!("{} without a GPU", path.display());
            Finding::note(check, found, "features are computed on the CPU; in a container, pass --gpus all")
        }
    }
}

/// The version in the first line of the driver's file:
/// `NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue …`.
fn driver_version(line: &str) -> Option<&str> {
    let is_version = |word: &&str| word.contains('.') && word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    line.split_whitespace().find(is_version)
}

fn library(name: &str) -> Option<PathBuf> {
    let listed = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let folders = env::split_paths(&listed).chain(LIBRARY_FOLDERS.into_iter().map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|path| path.exists())
}

/// Shared memory for the ring and for the workers of a `DataLoader`.
pub(super) fn shared_memory(url: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    if cfg!(target_os = "linux") {
        findings.push(ring(url));
        if let Ok(of) = statvfs(SHARED) {
            findings.push(of_space(of.f_bavail.saturating_mul(of.f_frsize)));
        }
    }
    findings
}

fn ring(url: &str) -> Finding {
    let check = "ring";
    let is_off = env::var("FOREBAY_RING").is_ok_and(|value| value.trim().eq_ignore_ascii_case("off"));
    if is_off {
        return Finding::note(
            check,
            "FOREBAY_RING=off",
            "unset it to read from a server on this machine in shared memory",
        );
    }
    if let Err(error) = memfd_create("forebay-doctor", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING) {
        let advice = "Unix sockets work without it, over Flight; allow memfd_create in the container's seccomp profile";
        return Finding::note(check, format!("no sealed shared memory: {error}"), advice);
    }
    let socket = ["grpc+unix://", "grpc+unix:", "unix://", "unix:"].iter().find_map(|scheme| url.strip_prefix(scheme));
    match socket.map(|path| PathBuf::from(format!("{path}.ring"))) {
        Some(path) if path.exists() => Finding::ok(check, path.display().to_string()),
        Some(path) => {
            Finding::note(check, format!("no {}", path.display()), "the server has no ring; batches arrive over Flight")
        }
        None => Finding::ok(check, "possible: serve on --listen unix:PATH to use it"),
    }
}

fn of_space(bytes: u64) -> Finding {
    let (check, found) = ("shared memory", format!("{} free in {SHARED}", output::bytes(bytes)));
    if bytes >= SHARED_BYTES_MIN {
        return Finding::ok(check, found);
    }
    let advice = "workers of a DataLoader may run out of it; in a container, pass --shm-size=2g, or use num_workers=0";
    Finding::note(check, found, advice)
}

#[cfg(test)]
mod tests {
    use super::{super::finding::Health, *};

    #[test]
    fn few_descriptors_are_reported() {
        let status = |current| of_limit(current, None).status;
        assert_eq!(
            [None, Some(65_536), Some(1024), Some(64)].map(status),
            [Health::Ok, Health::Ok, Health::Note, Health::Wrong]
        );
        assert!(of_limit(Some(1024), Some(4096)).advice.contains("ulimit -n"));
    }

    #[test]
    fn a_gpu_needs_the_drivers_library() {
        let kernel = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\nGCC";
        let path = Path::new("/usr/lib64/libcuda.so.1");
        let found = of_driver(Some(kernel), true, Some(path));
        assert_eq!((found.status, found.found.as_str()), (Health::Ok, "NVIDIA 550.54.15, /usr/lib64/libcuda.so.1"));
        assert_eq!(of_driver(Some(kernel), false, None).status, Health::Wrong);
        assert_eq!(of_driver(None, true, None).status, Health::Wrong);
        assert_eq!(of_driver(None, false, None).status, Health::Note);
        assert_eq!(of_driver(None, false, Some(path)).status, Health::Note);
    }

    #[test]
    fn little_shared_memory_has_a_remedy() {
        assert_eq!(of_space(1 << 30).status, Health::Ok);
        assert!(of_space(64 << 20).advice.contains("--shm-size"));
    }
}
