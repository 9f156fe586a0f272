//! The table of ops for Rust: names, bounds of parameters, and bounds of indices.

use prost_reflect::Kind;

use super::table::{Index, Op, Parameter, Presence, Table};

/// The content of `src/gen/ops.rs`.
pub(super) fn ops(table: &Table) -> String {
    let mut names: Vec<&str> = table.ops.iter().map(|op| op.name.as_str()).collect();
    names.sort_unstable();
    let listed: String = names.iter().map(|name| format!("    \"{name}\",\n")).collect();
    let mut code = "// Generated from the options of plan.proto by tests/generated.\n\n".to_owned();
    code += &format!("/// The names of the ops, sorted.\npub const NAMES: [&str; {}] = [\n{listed}];\n", names.len());
    let arms = |arm: &dyn Fn(&Op) -> Option<String>| -> String {
        table.ops.iter().filter_map(|op| Some(format!("        {}\n", arm(op)?))).collect()
    };
    let function =
        |head: &str, arms: String, rest: &str| format!("\n{head} {{\n    match op {{\n{arms}{rest}    }}\n}}\n");
    code += &function(
        "/// Returns the name of an op in a plan.\npub fn name(op: &OneOp) -> &'static str",
        arms(&|op| Some(format!("OneOp::{}(_) => \"{}\",", op.message, op.name))),
        "",
    );
    code += &function(
        "/// Returns why a parameter is not allowed.\npub fn problem(op: &OneOp) -> Option<Problem>",
        arms(&|op| {
            of_fields(op, &op.parameters.iter().filter_map(check).chain(together(op)).collect::<Vec<_>>(), |checks| {
                checks.join(".or_else(|| ") + &")".repeat(checks.len() - 1)
            })
        }),
        "        _ => None,\n",
    );
    let is_unbounded = |op: &&Op| op.is_indices && !op.parameters.iter().any(|one| one.index == Index::Bound);
    let unbounded: Vec<&Op> = table.ops.iter().filter(is_unbounded).collect();
    code += &function(
        "/// Returns a bound of the indices that an op computes; `None` for other ops.\npub fn index_bound(op: &OneOp) -> Option<u64>",
        arms(&|op| {
            let bounds: Vec<String> = op.parameters.iter().filter_map(bound).collect();
            of_fields(op, &bounds, |bounds| format!("Some(largest([{}]))", bounds.join(", ")))
        }),
        &format!("        {} => Some(0),\n        _ => None,\n", cases(&unbounded)),
    );
    code += &function(
        "/// Returns a bound of the indices that an op adds to a chain of indices; `None` for ops that do not keep indices.\n\
         pub fn added_index(op: &OneOp) -> Option<u64>",
        arms(&added),
        "        _ => None,\n",
    );
    let numeric: Vec<&Op> = table.ops.iter().filter(|op| op.takes.1 == "numbers" && !op.is_indices).collect();
    let quoted: Vec<String> = numeric.iter().map(|op| format!("\"{}\"", op.name)).collect();
    code += &format!(
        "\n/// The names of the ops that compute a number from a number.\npub const ARITHMETIC: [&str; {}] = [{}];\n\
         \n/// Returns whether an op computes a number from a number.\npub fn is_arithmetic(op: &OneOp) -> bool {{\n    \
         matches!(op, {})\n}}\n",
        numeric.len(),
        quoted.join(", "),
        cases(&numeric)
    );
    code += &function(
        "/// Returns whether a fit has yet to set parameters of an op.\npub fn learns(op: &OneOp) -> bool",
        arms(&learns),
        "        _ => false,\n",
    );
    code += &function(
        "/// Sets the parameters that are absent and have a default.\npub fn write_defaults(op: &mut OneOp)",
        arms(&|op| {
            let defaults: Vec<String> = op.parameters.iter().filter_map(default).collect();
            (!defaults.is_empty()).then(|| format!("OneOp::{}(op) => {{ {} }}", op.message, defaults.join(" ")))
        }),
        "        _ => {}\n",
    );
    code
}

/// Whether none of the parameters is set that a fit sets, or one is set that requires a fit.
fn learns(op: &Op) -> Option<String> {
    if let Some(trigger) = op.parameters.iter().find(|parameter| parameter.learns) {
        let choice = trigger.choice.as_ref().expect("a case of a oneof requires a fit");
        let case = format!("{}::{}::{}", module(&op.name), camel(choice), camel(&trigger.name));
        return Some(format!("OneOp::{}(op) => matches!(op.{choice}, Some({case}(_))),", op.message));
    }
    let absent = |parameter: &Parameter| match parameter.presence {
        Presence::Repeated => format!("{}.is_empty()", field(parameter)),
        _ => format!("{}.is_none()", field(parameter)),
    };
    let learned: Vec<String> = op.parameters.iter().filter(|one| one.is_learned).map(absent).collect();
    of_fields(op, &learned, |learned| learned.join(" && "))
}

fn default(parameter: &Parameter) -> Option<String> {
    let Parameter { default, .. } = parameter;
    let is_absent = parameter.presence == Presence::Explicit && !default.is_empty();
    let fraction = if parameter.kind == Kind::Double && !default.contains('.') { ".0" } else { "" };
    is_absent.then(|| format!("{}.get_or_insert({default}{fraction});", field(parameter)))
}

fn cases(ops: &[&Op]) -> String {
    ops.iter().map(|op| format!("OneOp::{}(_)", op.message)).collect::<Vec<_>>().join(" | ")
}

fn of_fields(op: &Op, parts: &[String], code: impl Fn(&[String]) -> String) -> Option<String> {
    (!parts.is_empty()).then(|| format!("OneOp::{}(op) => {},", op.message, code(parts)))
}

/// The field of a message in Rust.
fn field(parameter: &Parameter) -> String {
    format!("op.{}", parameter.name)
}

/// The check of a parameter's bounds.
fn check(parameter: &Parameter) -> Option<String> {
    let (name, field) = (&parameter.name, field(parameter));
    if let (Kind::Enum(kind), Presence::Implicit) = (&parameter.kind, parameter.presence) {
        let names: Vec<String> = kind.values().map(|value| format!("\"{}\"", value.name())).collect();
        return Some(format!("named(\"{name}\", {field}, &[{}])", names.join(", ")));
    }
    let bounded = match (parameter.least.or(parameter.most), parameter.low.or(parameter.high)) {
        (Some(_), _) => {
            let (least, most) = parameter.bounds();
            let most = if most == i128::from(i64::MAX) { "i64::MAX.into()".to_owned() } else { most.to_string() };
            format!("whole(\"{name}\", VALUE.into(), {least}, {most})")
        }
        (_, Some(_)) => {
            let end = |bound: Option<f64>, open: &str| bound.map_or(open.to_owned(), |bound| format!("{bound:?}"));
            let (low, high) = (end(parameter.low, "f64::NEG_INFINITY"), end(parameter.high, "f64::INFINITY"));
            format!("number(\"{name}\", VALUE, {low}, {high})")
        }
        _ => return None,
    };
    Some(match parameter.presence {
        Presence::Implicit => bounded.replace("VALUE", &field),
        Presence::Explicit => format!("{field}.and_then(|value| {})", bounded.replace("VALUE", "value")),
        Presence::Repeated => panic!("{name}: lists have no bounds"),
    })
}

/// The check that all numbers are set that a fit learns, or none.
fn together(op: &Op) -> Option<String> {
    let [first, second] = op.learned_numbers()[..] else { return None };
    Some(format!(
        "together([(\"{}\", {}.is_some()), (\"{}\", {}.is_some())])",
        first.name,
        field(first),
        second.name,
        field(second)
    ))
}

fn bound(parameter: &Parameter) -> Option<String> {
    if parameter.index != Index::Bound {
        return None;
    }
    let is_signed = matches!(parameter.kind, Kind::Int32 | Kind::Int64);
    let field = field(parameter);
    Some(match (parameter.presence, is_signed) {
        (Presence::Implicit, true) => format!("Some({field}.unsigned_abs())"),
        (Presence::Implicit, false) if parameter.kind == Kind::Uint64 => format!("Some({field})"),
        (Presence::Implicit, false) => format!("Some({field}.into())"),
        (Presence::Explicit, true) => format!("{field}.map(i64::unsigned_abs)"),
        (Presence::Repeated, true) => format!("{field}.iter().map(|value| value.unsigned_abs()).max()"),
        (Presence::Explicit | Presence::Repeated, false) => panic!("{}: a bound of another form", parameter.name),
    })
}

/// The index that a fill adds.
fn added(op: &Op) -> Option<String> {
    let fills: Vec<&Parameter> = op.parameters.iter().filter(|one| one.index == Index::Added).collect();
    let first = fills.first()?;
    if let Some(choice) = &first.choice {
        let case = |one: &&Parameter| {
            let value = match one.kind {
                Kind::Double => "magnitude(*value)",
                Kind::Int64 => "Some(value.unsigned_abs())",
                _ => "Some(*value)",
            };
            format!("Some({}::{}::{}(value)) => {value}", module(&op.name), camel(choice), camel(&one.name))
        };
        let cases = fills.iter().map(case).collect::<Vec<_>>().join(", ");
        return Some(format!("OneOp::{}(op) => match &op.{choice} {{ {cases}, _ => None }},", op.message));
    }
    let field = field(first);
    Some(match first.presence {
        Presence::Explicit => format!("OneOp::{}(op) => {field}.map_or(Some(0), magnitude),", op.message),
        _ => format!("OneOp::{}(op) => magnitude({field}),", op.message),
    })
}

fn module(op: &str) -> String {
    format!("v1::{op}")
}

fn camel(name: &str) -> String {
    let capitalized = |word: &str| word[..1].to_uppercase() + &word[1..];
    name.split('_').map(capitalized).collect()
}
