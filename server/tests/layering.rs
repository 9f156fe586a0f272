//! Layering: which modules may import which, which modules may use each large dependency, and unique names of types.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

#[path = "layering/code.rs"]
mod code;
#[path = "layering/imports.rs"]
mod imports;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use imports::Crate;

/// The crates whose source files are checked.
const CRATES: [&str; 22] = [
    "proto",
    "kernels",
    "kernels/media",
    "server",
    "server/settings",
    "server/order",
    "server/lake",
    "server/pages",
    "server/plan",
    "server/expr",
    "server/cache",
    "server/catalog",
    "server/columns",
    "server/engine",
    "server/scan",
    "server/stream",
    "server/runtime",
    "server/prepare",
    "client",
    "client/convert",
    "client/receive",
    "client/python/native",
];

/// The modules of the server, from the top layer down. A module may import only modules of lower layers.
const LAYERS: [&[&str]; 8] = [
    &["daemon"],
    &["flight", "metrics_http", "config", "gauges"],
    &["stream"],
    &["scan", "engine"],
    &["catalog", "expr"],
    &["plan", "view", "cache", "tokenizers", "images", "udf"],
    &["auth", "error", "metrics", "log", "budget", "cpu_pool", "shutdown", "state"],
    &["tenant"],
];

/// The parts of `stream`, from the top down.
const STREAM_PARTS: [&str; 4] = ["stream::epoch", "stream::prepare", "stream::counts", "stream::rows"];

/// Allowed imports within a layer or of a higher one: from, to, reason.
const EXCEPTIONS: [(&str, &str, &str); 3] = [
    ("budget", "metrics", "reserved memory is a metric"),
    ("auth", "metrics", "reloads of its files are counted"),
    ("state", "cpu_pool", "files are read and written on its threads"),
];

/// Crates that only some modules may use.
const RESTRICTED: [(&str, &[&str]); 30] = [
    ("ring", &["auth"]),
    ("reqwest", &["catalog"]),
    ("rustls", &["auth"]),
    ("tokio_rustls", &["flight"]),
    ("webpki", &["auth"]),
    ("cudarc", &[]),
    ("delta_kernel", &[]),
    ("forebay_lake", &["catalog", "flight"]),
    ("tonic", &["flight"]),
    ("arrow_flight", &["flight"]),
    ("arrow_ipc", &["cache", "catalog", "flight", "udf"]),
    ("brotli", &["scan"]),
    ("flate2", &["scan"]),
    ("lz4_flex", &["flight", "scan"]),
    ("parquet", &["scan", "catalog"]),
    ("object_store", &["scan", "catalog"]),
    ("datafusion_common", &["expr", "engine"]),
    ("datafusion_expr", &["expr", "engine"]),
    ("datafusion_functions", &["expr"]),
    ("datafusion_optimizer", &["expr"]),
    ("datafusion_pruning", &["expr"]),
    ("datafusion_sql", &["expr"]),
    ("datafusion_physical_plan", &["engine"]),
    ("regex", &["expr"]),
    ("hyper", &["flight", "metrics_http"]),
    ("opentelemetry", &["log"]),
    ("opentelemetry_otlp", &["log"]),
    ("opentelemetry_sdk", &["log"]),
    ("tracing_opentelemetry", &["log"]),
    ("tracing_subscriber", &["log"]),
];

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

/// Returns the modules that a source imports as `crate::module`, alone or in a list.
fn imports(code: &str) -> Vec<String> {
    let mut modules = Vec::new();
    for (start, found) in code.match_indices("crate::") {
        let rest = &code[start + found.len()..];
        if let Some(list) = rest.strip_prefix('{') {
            let mut depth = 0;
            let mut name = String::new();
            for letter in list.chars() {
                match letter {
                    '{' => depth += 1,
                    '}' if depth == 0 => break,
                    '}' => depth -= 1,
                    _ if depth > 0 => {}
                    ',' => modules.push(std::mem::take(&mut name)),
                    letter => name.push(letter),
                }
            }
            modules.push(name);
        } else {
            modules.push(rest.to_owned());
        }
    }
    let first = |path: &String| {
        path.trim().split(|letter: char| !letter.is_alphanumeric() && letter != '_').next().unwrap().to_owned()
    };
    modules.iter().map(first).filter(|module| !module.is_empty()).collect()
}

#[test]
fn modules_import_lower_layers_only() {
    let layer: BTreeMap<&str, usize> = LAYERS
        .iter()
        .enumerate()
        .flat_map(|(layer, modules)| modules.iter().map(move |module| (*module, layer)))
        .collect();
    let mut violations = Vec::new();
    for (module, code) in sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")) {
        if module == "lib" || module == "main" {
            continue;
        }
        let own = layer.get(module.as_str()).unwrap_or_else(|| panic!("the module {module} is in no layer"));
        for other in imports(&code) {
            let Some(theirs) = layer.get(other.as_str()) else { continue };
            let is_exception = EXCEPTIONS.iter().any(|(from, to, _)| (*from, *to) == (module.as_str(), other.as_str()));
            if other != module && theirs <= own && !is_exception {
                violations.push(format!("{module} imports {other}"));
            }
        }
    }
    assert!(violations.is_empty(), "{violations:#?}");
}

#[test]
fn restricted_crates_are_used_by_their_modules_only() {
    let mut violations = Vec::new();
    for (module, code) in sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")) {
        for (restricted, modules) in RESTRICTED {
            if uses(&code, restricted) && !modules.contains(&module.as_str()) {
                violations.push(format!("{module} uses {restricted}"));
            }
        }
        let records = ["counter!(", "gauge!(", "histogram!("].iter().any(|name| code.contains(name));
        if records && module != "metrics" {
            violations.push(format!("{module} uses a metric macro"));
        }
    }
    assert!(violations.is_empty(), "{violations:#?}");
}

/// Returns whether a source uses a crate: `ring::hmac`, not `String::new`.
fn uses(code: &str, name: &str) -> bool {
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    code.match_indices(&format!("{name}::")).any(|(start, _)| !code[..start].ends_with(is_word))
}

#[test]
fn crates_depend_on_lower_layers_only() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let manifest = |name: &str| fs::read_to_string(root.join(name).join("Cargo.toml")).unwrap();
    for (name, forbidden) in [
        ("proto", &["forebay-", "arrow", "tonic"][..]),
        ("kernels", &["forebay-", "tokio", "tonic", "datafusion", "parquet", "object_store", "prost"]),
        ("server", &["forebay-client", "forebay-prepare"]),
        ("server/lake", &["forebay-", "tonic", "datafusion", "prost"]),
        ("server/prepare", &["forebay-client", "forebay-kernels", "tonic", "arrow-flight"]),
        ("client", &["forebay-server", "forebay-kernels", "datafusion"]),
        ("client/convert", &["forebay-client", "forebay-proto", "forebay-server", "tokio", "tonic", "datafusion"]),
        ("client/receive", &["forebay-", "arrow", "tonic", "prost", "pyo3"]),
        ("client/python/native", &["forebay-server", "forebay-client", "arrow", "tokio", "hyper"]),
    ] {
        let text = manifest(name);
        let dependencies = text.split("[dependencies]").nth(1).unwrap().split("\n[").next().unwrap();
        // Optional dependencies belong to a feature that is off by default.
        let always: Vec<&str> = dependencies.lines().filter(|line| !line.contains("optional = true")).collect();
        for word in forbidden {
            assert!(!always.iter().any(|line| line.starts_with(word)), "{name} must not depend on {word}");
        }
    }
}

#[test]
fn unsafe_code_is_forbidden_but_for_devices_and_one_hash() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for library in [
        "proto",
        "server",
        "server/settings",
        "server/order",
        "server/lake",
        "server/prepare",
        "server/simulation",
        "client",
        "client/convert",
        "client/receive",
    ] {
        let text = fs::read_to_string(root.join(library).join("src/lib.rs")).unwrap();
        assert!(text.contains("#![forbid(unsafe_code)]"), "{library}");
    }
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
fn imports_are_found_in_lists_and_paths() {
    let code = "use crate::{\n    catalog::{File, Snapshot},\n    metrics,\n};\nlet x = crate::error::near_names();";
    assert_eq!(imports(code), ["catalog", "metrics", "error"]);
}

#[test]
fn files_import_each_other_in_no_circle() {
    assert_none(Crate::circles);
}

#[test]
fn parts_of_streams_import_lower_parts_only() {
    let server = Crate::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    assert_eq!(server.upward_imports(&STREAM_PARTS), Vec::<String>::new());
    assert!(!server.upward_imports(&["stream::rows", "stream::counts"]).is_empty(), "imports are found");
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
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let found_in = |name: &str| {
        let found = check(&Crate::read(&root.join(name).join("src")));
        found.into_iter().map(|line| format!("{name}: {line}")).collect::<Vec<_>>()
    };
    let found: Vec<String> = CRATES.into_iter().flat_map(found_in).collect();
    assert!(found.is_empty(), "{found:#?}");
}
