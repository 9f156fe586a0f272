//! The book's tables of options, metrics and reasons match the program.
//!
//! `FOREBAY_REGENERATE=1 cargo test -p forebay-server --test book` rewrites them.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::{fs, path::Path};

use forebay_runtime::metrics;
use forebay_server::config::Flags;

fn between<'a>(text: &'a str, start: &str, end: &str) -> (&'a str, &'a str, &'a str) {
    let (before, rest) = text.split_once(start).unwrap();
    let (inside, after) = rest.split_once(end).unwrap();
    (before, inside, after)
}

/// The table of reasons; each has a comment that begins with its gRPC code.
fn reasons() -> String {
    let source = include_str!("../../proto/forebay/v1/reason.proto");
    let (_, entries, _) = between(source, "enum Reason {", "\n}");
    let (mut comment, mut rows) = (String::new(), Vec::new());
    for line in entries.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("// ") {
            comment = format!("{comment} {text}");
        } else if let Some((name, _)) = line.split_once(" = ")
            && let Some((code, meaning)) = std::mem::take(&mut comment).split_once(": ")
            && name != "UNSPECIFIED"
        {
            rows.push(format!("| `{name}` | {} | {meaning} |\n", code.trim()));
        }
    }
    let rows = rows.concat();
    format!("| reason | code | meaning |\n|---|---|---|\n{rows}")
}

#[test]
fn tables_are_what_the_program_has() {
    let book = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("docs/src");
    let options = forebay_settings::markdown_table(&forebay_settings::command::<Flags>());
    let metrics = metrics::NAMES.map(|(name, meaning)| format!("| `{name}` | {meaning} |\n")).concat();
    let metrics = format!("| metric | meaning |\n|---|---|\n{metrics}");
    let tables = [
        (
            "reference/configuration.md",
            "<!-- options: forebay-server -->\n",
            "<!-- /options -->",
            options.trim().to_owned() + "\n",
        ),
        ("reference/metrics.md", "<!-- metrics -->\n", "<!-- /metrics -->", metrics),
        ("reference/errors.md", "<!-- reasons -->\n", "<!-- /reasons -->", reasons()),
    ];
    for (chapter, start, end, table) in tables {
        let path = book.join(chapter);
        let text = fs::read_to_string(&path).unwrap();
        let (before, inside, after) = between(&text, start, end);
        if std::env::var_os("FOREBAY_REGENERATE").is_some() {
            fs::write(&path, format!("{before}{start}{table}{end}{after}")).unwrap();
        } else {
            assert_eq!(
                inside, table,
                "docs/src/{chapter} is stale: FOREBAY_REGENERATE=1 cargo test -p forebay-server --test book"
            );
        }
    }
}
