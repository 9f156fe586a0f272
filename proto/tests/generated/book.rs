//! The table of ops in the book.

use super::table::{Op, Parameter, Presence, Table};
use prost_reflect::Kind;

const START: &str = "<!-- ops -->\n";
const END: &str = "<!-- /ops -->";

/// The page with the table between its marks.
pub(super) fn with_table(page: &str, table: &Table) -> String {
    let (before, rest) = page.split_once(START).expect("ops.md has a mark before the table");
    let (_, after) = rest.split_once(END).expect("ops.md has a mark after the table");
    let mut ops: Vec<&Op> = table.ops.iter().collect();
    ops.sort_by_key(|op| op.takes.0);
    let mut rows = "| op | values | parameters (*learned* if omitted) | meaning | reference | agreement |\n|---|---|---|---|---|---|\n".to_owned();
    for op in ops {
        let takes = format!("{}{}", op.takes.1, if op.is_indices { " → indices" } else { "" });
        let name = format!("`{}`", op.name);
        let cells = [name, takes, parameters(op), op.meaning.clone(), code(&op.reference), op.agreement.clone()];
        rows += &format!("| {} |\n", cells.map(|cell| cell.replace('|', "\\|")).join(" | "));
    }
    format!("{before}{START}{rows}{END}{after}")
}

/// The name of a function as code, other words as they are.
fn code(reference: &str) -> String {
    let is_name = !reference.contains(' ') && reference != "NumPy" && reference != "Pillow";
    if is_name { format!("`{reference}`") } else { reference.to_owned() }
}

fn parameters(op: &Op) -> String {
    op.chosen().map(parameter).collect::<Vec<_>>().join(", ")
}

fn parameter(parameter: &Parameter) -> String {
    let Parameter { name, default, .. } = parameter;
    let named = if parameter.is_learned { format!("*`{name}`*") } else { format!("`{name}`") };
    let first = match &parameter.kind {
        // The value of an absent field.
        Kind::Enum(kind) if parameter.presence == Presence::Implicit => {
            kind.values().next().map(|value| value.name().to_owned()).unwrap_or_default()
        }
        _ => String::new(),
    };
    match (default.as_str(), first.as_str()) {
        ("", "") => named,
        ("", value) | (value, _) => format!("{named} ({value})"),
    }
}
