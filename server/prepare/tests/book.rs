//! The book's table of options matches the program.
//!
//! `FOREBAY_REGENERATE=1 cargo test -p forebay-prepare --test book` rewrites it.

use std::{fs, path::Path};

use forebay_prepare::Flags;

#[test]
fn the_table_of_options_is_what_the_program_has() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().join("docs/src/guides/prepare.md");
    let text = fs::read_to_string(&page).unwrap();
    let (before, rest) = text.split_once("<!-- options: forebay-prepare -->\n").unwrap();
    let (inside, after) = rest.split_once("<!-- /options -->").unwrap();
    let table = forebay_settings::markdown_table(&forebay_settings::command::<Flags>());
    let table = table.trim().to_owned() + "\n";
    if std::env::var_os("FOREBAY_REGENERATE").is_some() {
        fs::write(&page, format!("{before}<!-- options: forebay-prepare -->\n{table}<!-- /options -->{after}"))
            .unwrap();
    } else {
        assert_eq!(inside, table, "docs/src/guides/prepare.md is stale: FOREBAY_REGENERATE=1 cargo test --test book");
    }
}
