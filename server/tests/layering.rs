//! Layering: which crates may depend on which, which may have each large dependency, which modules of one crate import which,
//! and unique names of types. Cargo keeps crates free of circles; this test keeps the direction.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

#[path = "layering/code.rs"]
mod code;
#[path = "layering/imports.rs"]
mod imports;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use imports::Crate;

/// The crates of the server and what they share with the client, from the top layer down. A crate may depend only on crates
/// of lower layers.
const LAYERS: [&[&str]; 8] = [
    &["server/prepare"],
    &["server"],
    &["server/stream"],
    &["server/scan", "server/columns"],
    &["server/catalog", "server/expr", "server/engine", "server/cache", "server/plan"],
    &["server/runtime", "server/pages", "server/lake", "server/order", "kernels/media"],
    &["server/settings", "server/written", "kernels"],
    &["proto"],
];

/// The crates of the client, and all that they may depend on: crates without data or engine.
const CLIENT: [(&str, &[&str]); 5] = [
    ("client", &["proto"]),
    ("client/cli", &["client", "client/convert", "server/order", "server/settings", "proto"]),
    ("client/convert", &["server/order", "server/written"]),
    ("client/receive", &[]),
    ("client/python/native", &["client/receive"]),
];

/// Dependencies that only some of these crates may have.
const RESTRICTED: [(&str, &[&str]); 28] = [
    ("apache-avro", &["server/lake"]),
    ("arrow-flight", &["server", "client"]),
    ("brotli", &["server/pages", "server/scan"]),
    ("cudarc", &["kernels"]),
    ("datafusion", &["server/prepare"]),
    ("datafusion-common", &["server/expr", "server/engine"]),
    ("datafusion-expr", &["server/expr", "server/engine"]),
    ("datafusion-functions", &["server/expr"]),
    ("datafusion-optimizer", &["server/expr"]),
    ("datafusion-physical-plan", &["server/engine"]),
    ("datafusion-pruning", &["server/expr"]),
    ("datafusion-sql", &["server/expr"]),
    ("delta_kernel", &["server/lake"]),
    ("hyper", &["server", "client/cli", "client/receive"]),
    ("metrics", &["server/runtime"]),
    ("object_store", &["server/catalog", "server/lake", "server/prepare"]),
    ("opentelemetry", &["server/runtime"]),
    (
        "parquet",
        &["server/prepare", "server/catalog", "server/scan", "server/lake", "server/written", "client/convert"],
    ),
    ("plotters", &["client/cli"]),
    ("pyo3", &["client/python/native"]),
    ("ratatui", &["client/cli"]),
    ("regex", &["server/expr"]),
    ("reqwest", &["server/catalog"]),
    ("ring", &["server"]),
    ("rustls", &["server", "client", "client/receive"]),
    ("tokenizers", &["kernels/media"]),
    ("tonic", &["server", "client", "client/cli", "server/prepare"]),
    ("tracing-subscriber", &["server/runtime", "server/prepare"]),
];

/// Crates without I/O and waiting.
const WITHOUT_TOKIO: [&str; 11] = [
    "proto",
    "kernels",
    "kernels/media",
    "server/settings",
    "server/order",
    "server/pages",
    "server/plan",
    "server/expr",
    "server/written",
    "client/convert",
    "client/python/native",
];

/// Crates without columns.
const WITHOUT_ARROW: [&str; 5] = ["proto", "server/settings", "server/order", "client/receive", "client/python/native"];

/// The modules of the server's own crate, from the top down.
const SERVER_MODULES: [&str; 6] = ["daemon", "metrics_http", "gauges", "config", "flight", "auth"];

/// The parts of streams, from the top down.
const STREAM_PARTS: [&str; 4] = ["epoch", "prepare", "counts", "rows"];

/// Dependencies of the server's own crate that only some of its modules may use.
const RESTRICTED_TO_MODULES: [(&str, &[&str]); 9] = [
    ("arrow_flight", &["flight"]),
    ("arrow_ipc", &["flight"]),
    ("hyper", &["flight", "metrics_http"]),
    ("lz4_flex", &["flight"]),
    ("ring", &["auth"]),
    ("rustls", &["auth"]),
    ("tokio_rustls", &["flight"]),
    ("tonic", &["flight"]),
    ("webpki", &["auth"]),
];

/// All crates whose sources and dependencies are checked.
fn crates() -> Vec<&'static str> {
    LAYERS.iter().flat_map(|layer| *layer).copied().chain(CLIENT.iter().map(|(name, _)| *name)).collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Returns the names of a crate's dependencies. Those of its tests are left out.
fn dependencies(name: &str) -> BTreeSet<String> {
    let manifest = fs::read_to_string(root().join(name).join("Cargo.toml")).unwrap();
    let (_, section) = manifest.split_once("\n[dependencies]\n").unwrap_or_default();
    let section = section.split("\n[").next().unwrap();
    section.lines().filter_map(|line| Some(line.split_once(['.', ' ', '='])?.0.to_owned())).collect()
}

/// Returns the dependencies of a crate that are crates of this workspace, by their folders.
fn own_dependencies(name: &str) -> Vec<&'static str> {
    let dependencies = dependencies(name);
    let is_one = |folder: &&str| {
        let package = folder.rsplit('/').next().unwrap();
        dependencies.contains(&format!("forebay-{package}"))
    };
    crates().into_iter().filter(is_one).collect()
}

#[test]
fn crates_depend_on_lower_layers_only() {
    let layer = |name: &str| LAYERS.iter().position(|crates| crates.contains(&name));
    let mut violations = Vec::new();
    let mut found = 0;
    for name in LAYERS.iter().flat_map(|layer| *layer) {
        for other in own_dependencies(name) {
            found += 1;
            if layer(other).is_none_or(|theirs| theirs <= layer(name).unwrap()) {
                violations.push(format!("{name} depends on {other}"));
            }
        }
    }
    for (name, allowed) in CLIENT {
        let others = own_dependencies(name).into_iter().filter(|other| !allowed.contains(other));
        violations.extend(others.map(|other| format!("{name} depends on {other}")));
    }
    assert!(violations.is_empty(), "{violations:#?}");
    assert!(found > 40, "dependencies are found");
}

#[test]
fn dependencies_are_those_of_their_crates_only() {
    let mut violations = Vec::new();
    for name in crates() {
        let dependencies = dependencies(name);
        for (restricted, allowed) in RESTRICTED {
            if dependencies.contains(restricted) && !allowed.contains(&name) {
                violations.push(format!("{name} depends on {restricted}"));
            }
        }
        for (without, forbidden) in [("tokio", &WITHOUT_TOKIO[..]), ("arrow", &WITHOUT_ARROW)] {
            if dependencies.contains(without) && forbidden.contains(&name) {
                violations.push(format!("{name} depends on {without}"));
            }
        }
    }
    for (restricted, allowed) in RESTRICTED {
        for name in allowed.iter().filter(|name| !dependencies(name).contains(restricted)) {
            violations.push(format!("{name} may depend on {restricted} and does not"));
        }
    }
    assert!(violations.is_empty(), "{violations:#?}");
}

#[test]
fn modules_of_the_server_use_their_dependencies_only() {
    let mut violations = Vec::new();
    for (module, code) in sources(&root().join("server/src")) {
        for (restricted, modules) in RESTRICTED_TO_MODULES {
            if uses(&code, restricted) && !modules.contains(&module.as_str()) {
                violations.push(format!("{module} uses {restricted}"));
            }
        }
    }
    assert!(violations.is_empty(), "{violations:#?}");
}

/// Returns the code of the files below a folder, each with the name of its module.
fn sources(root: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path: PathBuf = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let relative = path.strip_prefix(root).unwrap();
                let first = relative.components().next().unwrap().as_os_str().to_str().unwrap();
                found.push((first.trim_end_matches(".rs").to_owned(), code(&fs::read_to_string(&path).unwrap())));
            }
        }
    }
    found
}

/// Returns a source without comment lines.
fn code(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns whether a source uses a crate: `ring::hmac`, not `String::new`.
fn uses(code: &str, name: &str) -> bool {
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    code.match_indices(&format!("{name}::")).any(|(start, _)| !code[..start].ends_with(is_word))
}

#[test]
fn unsafe_code_is_forbidden_but_for_devices_and_two_functions() {
    let root = root();
    for name in crates() {
        let lib = root.join(name).join("src/lib.rs");
        let file = if lib.exists() { lib } else { root.join(name).join("src/main.rs") };
        let is_forbidden = fs::read_to_string(file).unwrap().contains("#![forbid(unsafe_code)]");
        let is_exempt = matches!(name, "kernels" | "server/pages" | "client/python/native");
        assert_ne!(is_forbidden, is_exempt, "{name}");
    }
    // Pages allow it in one function, which makes dictionary arrays of keys that it has checked.
    let pages = root.join("server/pages/src");
    assert!(fs::read_to_string(pages.join("lib.rs")).unwrap().contains("#![deny(unsafe_code)]"));
    assert_eq!(sources(&pages).iter().map(|(_, code)| code.matches("unsafe {").count()).sum::<usize>(), 1);
    // Python's native module allows it in one function, which hashes memory of pyarrow.
    let native = fs::read_to_string(root.join("client/python/native/src/lib.rs")).unwrap();
    assert!(native.contains("#![deny(unsafe_code)]"));
    assert_eq!(native.matches("unsafe {").count(), 1);
    // The kernels allow it where they call the CUDA driver and its compiler, and in the test that loads a program.
    let kernels = root.join("kernels/src");
    assert!(fs::read_to_string(kernels.join("lib.rs")).unwrap().contains("#![deny(unsafe_code)]"));
    let allowed = ["cuda/compiler.rs", "cuda/driver.rs", "cuda/gpu.rs", "cuda/tests/host.rs"];
    let expects = sources(&kernels).iter().filter(|(_, code)| code.contains("(unsafe_code,")).count();
    assert_eq!(expects, allowed.len());
    for file in allowed {
        assert!(fs::read_to_string(kernels.join(file)).unwrap().contains("#![expect(unsafe_code,"), "{file}");
    }
}

#[test]
fn files_import_each_other_in_no_circle() {
    assert_none(Crate::circles);
}

#[test]
fn modules_import_lower_layers_only() {
    for (name, parts) in [("server", &SERVER_MODULES[..]), ("server/stream", &STREAM_PARTS)] {
        let sources = Crate::read(&root().join(name).join("src"));
        assert_eq!(sources.upward_imports(parts), Vec::<String>::new(), "{name}");
        let upside_down: Vec<&str> = parts.iter().rev().copied().collect();
        assert!(!sources.upward_imports(&upside_down).is_empty(), "imports of {name} are found");
    }
}

#[test]
fn type_names_are_unique_within_a_crate() {
    assert_none(|sources| {
        let duplicates = sources.types().into_iter().filter(|(_, files)| files.len() > 1);
        duplicates.map(|(name, files)| format!("{name} in {}", files.join(", "))).collect()
    });
}

#[test]
fn imports_are_grouped() {
    assert_none(Crate::ungrouped_imports);
}

/// Fails if a check finds anything in the sources of the crates.
fn assert_none(check: impl Fn(&Crate) -> Vec<String>) {
    let found_in = |name: &str| {
        let found = check(&Crate::read(&root().join(name).join("src")));
        found.into_iter().map(|line| format!("{name}: {line}")).collect::<Vec<_>>()
    };
    let found: Vec<String> = crates().into_iter().flat_map(found_in).collect();
    assert!(found.is_empty(), "{found:#?}");
}
