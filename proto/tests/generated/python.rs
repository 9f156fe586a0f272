//! The messages of a plan, the classes of its ops, and the methods that add an op to a chain, in Python.

use prost_reflect::{EnumDescriptor, Kind};

use super::table::{Index, Op, Parameter, Presence, Table, presence, sorted};

const HEAD: &str = "Generated from plan.proto by the tests of forebay-proto.";
/// Ops whose methods take other arguments than their fields, and are written by hand.
const BY_HAND: [&str; 13] = [
    "bucketize",
    "clip",
    "cross",
    "decode_image",
    "fill_null",
    "lookup",
    "map_id",
    "multi_hot",
    "one_hot",
    "target_mean",
    "tokenize",
    "udf",
    "vocab",
];
const LINE_LENGTH: usize = 120;

/// The content of `messages.py`: messages with their fields, and enums.
pub(super) fn messages(table: &Table) -> String {
    let mut code = format!(
        "\"\"\"The messages of a plan, and its enums.\n\n{HEAD}\n\"\"\"\n\nfrom __future__ import annotations\n\nfrom typing import Literal\n\n\
         # Each field has a number and a kind. \"?\": explicit presence (optional, or in a oneof); \"*\": repeated. Kinds include\n\
         # the names of messages and enums.\nMESSAGES: dict[str, dict[str, tuple[int, str]]] = {{\n"
    );
    for message in &table.messages {
        let fields = sorted(message);
        if fields.is_empty() {
            code += &format!("    \"{}\": {{}},\n", message.name());
            continue;
        }
        code += &format!("    \"{}\": {{\n", message.name());
        for field in fields {
            let mark = match presence(&field) {
                Presence::Implicit => "",
                // The bytes of a canonical plan leave out FLOAT32, as those of a field that cannot be absent.
                Presence::Explicit if field.kind().as_enum().is_some_and(|kind| kind.name() == "DType") => "",
                Presence::Explicit => "?",
                Presence::Repeated => "*",
            };
            code +=
                &format!("        \"{}\": ({}, \"{mark}{}\"),\n", field.name(), field.number(), kind(&field.kind()));
        }
        code += "    },\n";
    }
    let enums = enums(table);
    code += "}\n\n# In the order of their numbers.\nENUMS: dict[str, tuple[str, ...]] = {\n";
    let quoted = |names: Vec<String>| names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
    let values = |kind: &EnumDescriptor| kind.values().map(|value| value.name().to_owned()).collect::<Vec<_>>();
    for kind in &enums {
        code += &format!("    \"{}\": ({}),\n", kind.name(), quoted(values(kind)));
    }
    code += "}\n\n# As methods take them.\n";
    for kind in enums.iter().filter(|kind| is_of_op(table, kind)) {
        let lower = values(kind).iter().map(|value| value.to_lowercase()).collect();
        code += &format!("{} = Literal[{}]\n", kind.name(), quoted(lower));
    }
    code
}

/// The enums of the messages, each where it is first named.
fn enums(table: &Table) -> Vec<EnumDescriptor> {
    let mut enums = Vec::new();
    for field in table.messages.iter().flat_map(sorted) {
        if let Kind::Enum(kind) = field.kind()
            && !enums.contains(&kind)
        {
            enums.push(kind);
        }
    }
    enums
}

fn is_of_op(table: &Table, kind: &EnumDescriptor) -> bool {
    table.ops.iter().flat_map(|op| &op.parameters).any(|parameter| parameter.kind.as_enum() == Some(kind))
}

/// The content of `ops.py`: a class for each op.
pub(super) fn ops(table: &Table) -> String {
    let mut code = format!(
        "\"\"\"The ops of a plan, one class per message of plan.proto. The server defines what they compute.\n\n{HEAD}\n\"\"\"\n\n\
         from __future__ import annotations\n\nfrom dataclasses import dataclass\nfrom math import inf\nfrom typing import ClassVar\n\n\
         from forebay._plan.arguments import INT64_MAX\nfrom forebay._plan.op import Op\nfrom forebay._plan.values import FittedRows, Normalize, Scales, VocabValues\n"
    );
    for op in &table.ops {
        code += &class(op);
    }
    code += "\n\nOPS: dict[str, type[Op]] = {\n";
    for op in &table.ops {
        code += &format!("    \"{}\": {},\n", op.name, op.message);
    }
    code + "}\n"
}

fn class(op: &Op) -> String {
    let mut code = format!("\n\n@dataclass(frozen=True)\nclass {}(Op):\n{}\n", op.message, docstring(&op.meaning, 4));
    code += &format!("    name: ClassVar[str] = \"{}\"\n", op.name);
    if op.is_indices {
        code += "    indexes: ClassVar[bool] = True\n";
    }
    let names = |is: &dyn Fn(&Parameter) -> bool| -> String {
        op.parameters.iter().filter(|one| is(one)).map(|one| format!("\"{}\",", one.name)).collect::<Vec<_>>().join(" ")
    };
    for (attribute, named) in [
        ("required", names(&|one| one.is_required)),
        ("learned", names(&|one| one.is_learned)),
        ("fit_triggers", names(&|one| one.learns)),
        ("bounds", names(&|one| one.index == Index::Bound)),
        ("one_of", names(&|one| one.choice.is_some())),
        ("fills", names(&|one| one.index == Index::Added)),
    ] {
        if !named.is_empty() {
            let listed = if named.matches(',').count() > 1 { named.trim_end_matches(',') } else { &named };
            code += &format!("    {attribute}: ClassVar[tuple[str, ...]] = ({listed})\n");
        }
    }
    let limits: Vec<String> = op.parameters.iter().filter_map(limit).collect();
    if !limits.is_empty() {
        code += &format!("    limits: ClassVar[dict[str, tuple[float, float]]] = {{\n{}    }}\n", limits.concat());
    }
    let renamed = op.parameters.iter().filter(|one| one.python != one.name);
    let renamed: Vec<String> = renamed.map(|one| format!("\"{}\": \"{}\"", one.name, one.python)).collect();
    if !renamed.is_empty() {
        code += &format!("    renamed: ClassVar[dict[str, str]] = {{{}}}\n", renamed.join(", "));
    }
    for parameter in &op.parameters {
        let (annotation, default) = attribute(parameter);
        code += &format!("    {}: {annotation} = {default}\n", parameter.python);
    }
    code
}

/// The bounds of a parameter, if the table has some.
fn limit(parameter: &Parameter) -> Option<String> {
    let (least, most) = parameter.bounds();
    let end = |bound: Option<f64>, open: &str| bound.map_or(open.to_owned(), |bound| format!("{bound:?}"));
    let ends = match (parameter.least.or(parameter.most), parameter.low.or(parameter.high)) {
        (Some(_), _) => (named(least), named(most)),
        (_, Some(_)) => (end(parameter.low, "-inf"), end(parameter.high, "inf")),
        _ => return None,
    };
    Some(format!("        \"{}\": ({}, {}),\n", parameter.name, ends.0, ends.1))
}

/// The type of a field in Python, and its value where a plan does not set it.
fn attribute(parameter: &Parameter) -> (String, String) {
    let (of_one, zero) = match &parameter.kind {
        Kind::Double => ("float", "0.0".to_owned()),
        Kind::String => ("str", "\"\"".to_owned()),
        Kind::Bool => ("bool", "False".to_owned()),
        Kind::Message(message) => (message.name(), "None".to_owned()),
        Kind::Enum(kind) => ("str", format!("\"{}\"", kind.values().next().unwrap().name())),
        _ => ("int", "0".to_owned()),
    };
    match parameter.presence {
        Presence::Implicit => (of_one.to_owned(), zero),
        Presence::Explicit => (format!("{of_one} | None"), "None".to_owned()),
        Presence::Repeated => (format!("tuple[{of_one}, ...]"), "()".to_owned()),
    }
}

fn kind(kind: &Kind) -> String {
    match kind {
        Kind::Message(message) => message.name().to_owned(),
        Kind::Enum(kind) => kind.name().to_owned(),
        Kind::Double => "double".to_owned(),
        Kind::Bool => "bool".to_owned(),
        Kind::String => "string".to_owned(),
        Kind::Int32 => "int32".to_owned(),
        Kind::Int64 => "int64".to_owned(),
        Kind::Uint32 => "uint32".to_owned(),
        Kind::Uint64 => "uint64".to_owned(),
        other => panic!("{other:?} has no kind in Python"),
    }
}

/// The content of `builder.py`: a method for each op that takes its fields as arguments.
pub(super) fn builder(table: &Table) -> String {
    let by_fields = table.ops.iter().filter(|op| !BY_HAND.contains(&op.name.as_str()));
    let methods: String = by_fields.map(method).collect();
    let checks = [
        "INT64_MAX",
        "INT64_MIN",
        "choice",
        "column_names",
        "fill_value",
        "in_range",
        "number",
        "together",
        "whole_number",
    ];
    let is_used = |name: &&str| {
        methods.split(|letter: char| letter != '_' && !letter.is_alphanumeric()).any(|word| word == *name)
    };
    let checks: String = checks.iter().filter(|name| is_used(name)).map(|name| format!("    {name},\n")).collect();
    let sequence = if is_used(&"Sequence") { "from collections.abc import Sequence\n" } else { "" };
    let mut enums: Vec<String> = enums(table).iter().map(|kind| kind.name().to_owned()).collect();
    enums.sort_unstable();
    let enums: String = enums.iter().filter(|name| is_used(&name.as_str())).map(|name| format!(", {name}")).collect();
    format!(
        "\"\"\"The methods that add an op to a chain, of ops that take their fields as arguments.\n\n{HEAD}\n\"\"\"\n\n\
         from __future__ import annotations\n\n{sequence}from typing import TypeVar\n\n\
         from forebay._plan.arguments import (\n{checks})\nfrom forebay._plan.op import Op\n\n\
         from . import ops\nfrom .messages import ENUMS{enums}\n\n\
         Chain = TypeVar(\"Chain\", bound=\"OpMethods\")\n\n\n\
         class OpMethods:\n    \"\"\"A chain of ops that these methods extend.\"\"\"\n\n    def _then(self: Chain, op: Op) -> Chain:\n        \
         raise NotImplementedError\n{methods}"
    )
}

fn method(op: &Op) -> String {
    // A fit alone gives lists and vocabularies.
    let learned = op.learned_numbers();
    let mut given: Vec<&Parameter> = op.chosen().filter(|one| !one.is_learned).collect();
    given.extend(&learned);
    given.sort_by_key(|one| (one.is_keyword, !one.is_required));
    let mut arguments = vec!["self: Chain".to_owned()];
    for (place, one) in given.iter().enumerate() {
        if one.is_keyword && (place == 0 || !given[place - 1].is_keyword) {
            arguments.push("*".to_owned());
        }
        arguments.push(argument(one));
    }
    let mut code = signature(&op.name, &arguments);
    let suffix = match learned[..] {
        [] => String::new(),
        [first, second] => format!("; learned unless {} and {} are given", first.python, second.python),
        _ => "; learned unless given".to_owned(),
    };
    code += &docstring(&format!("{}{suffix}", op.meaning), 8);
    if let [first, second] = learned[..] {
        let by = if given.iter().any(|one| one.name == "by") { ", by" } else { "" };
        code += &format!(
            "        together(\"{}\", {{\"{}\": {}, \"{}\": {}}}{by})\n",
            op.name, first.name, first.python, second.name, second.python
        );
    }
    if given.is_empty() {
        return code + &format!("        return self._then(ops.{}())\n", op.message);
    }
    code += &format!("        return self._then(\n            ops.{}(\n", op.message);
    for one in given {
        code += &format!("                {}={},\n", one.python, checked(op, one));
    }
    code + "            )\n        )\n"
}

/// The first lines of a method: on one line if they fit.
fn signature(name: &str, arguments: &[String]) -> String {
    const SHADOWS: &str = "  # noqa: A002";
    let shadows = |argument: &str| argument.starts_with("min:") || argument.starts_with("max:");
    let (joined, is_noted) = (arguments.join(", "), arguments.iter().any(|argument| shadows(argument)));
    let line = format!("\n    def {name}({joined}) -> Chain:");
    if line.len() <= LINE_LENGTH {
        return line + if is_noted { SHADOWS } else { "" } + "\n";
    }
    if !is_noted {
        return format!("\n    def {name}(\n        {joined}\n    ) -> Chain:\n");
    }
    let lines = arguments.iter().map(|argument| {
        let note = if shadows(argument) { SHADOWS } else { "" };
        format!("        {argument},{note}\n")
    });
    format!("\n    def {name}(\n{}    ) -> Chain:\n", lines.collect::<String>())
}

fn argument(parameter: &Parameter) -> String {
    let (annotation, zero) = attribute(parameter);
    let (annotation, zero) = match &parameter.kind {
        Kind::Enum(kind) => (kind.name().to_owned(), zero.to_lowercase()),
        Kind::String if parameter.presence == Presence::Repeated => ("str | Sequence[str]".to_owned(), zero),
        _ => (annotation, zero),
    };
    match (parameter.is_required, parameter.default.as_str()) {
        (true, "") => format!("{}: {annotation}", parameter.python),
        (true, default) if parameter.is_integer() => format!("{}: {annotation} = {default}", parameter.python),
        _ => format!("{}: {annotation} = {zero}", parameter.python),
    }
}

/// The value of an argument after its check.
fn checked(op: &Op, parameter: &Parameter) -> String {
    let Parameter { name, python, .. } = parameter;
    let place = format!("\"{}: {python}\", {python}", op.name);
    let check = match &parameter.kind {
        Kind::Enum(kind) => format!("choice({place}, ENUMS[\"{}\"])", kind.name()),
        Kind::String if parameter.presence == Presence::Repeated => format!("column_names({place})"),
        Kind::Double if parameter.index == Index::Added => format!("fill_value({place})"),
        Kind::Double => match (parameter.low, parameter.high) {
            (None, None) => format!("number({place})"),
            (low, None) => format!("in_range({place}, {:?})", low.unwrap_or(f64::NEG_INFINITY)),
            (low, Some(high)) => format!("in_range({place}, {:?}, {high:?})", low.unwrap_or(f64::NEG_INFINITY)),
        },
        _ if parameter.is_integer() => {
            let mut arguments = vec![format!("\"{}: {python}\"", op.name), python.clone()];
            arguments.extend(bounds(parameter));
            if parameter.instead.is_empty() {
                format!("whole_number({})", arguments.join(", "))
            } else {
                arguments.push(format!("instead='{}'", parameter.instead));
                let space = " ".repeat(20);
                let lines: String = arguments.iter().map(|argument| format!("{space}{argument},\n")).collect();
                format!("whole_number(\n{lines}                )")
            }
        }
        other => panic!("{name}: write the method of {} by hand: {other:?}", op.name),
    };
    if parameter.presence == Presence::Explicit { format!("None if {python} is None else {check}") } else { check }
}

/// The bounds of a whole number as arguments, without those of every number.
fn bounds(parameter: &Parameter) -> Vec<String> {
    let (least, most) = parameter.bounds();
    let is_given = |bound: i128| ![0, i128::from(u64::MAX)].contains(&bound);
    let ends = [("least", least), ("most", most)];
    ends.iter().filter(|(_, bound)| is_given(*bound)).map(|(end, bound)| format!("{end}={}", named(*bound))).collect()
}

fn named(bound: i128) -> String {
    match bound {
        _ if bound == i128::from(i64::MAX) => "INT64_MAX".to_owned(),
        _ if bound == i128::from(i64::MIN) => "INT64_MIN".to_owned(),
        _ => bound.to_string(),
    }
}

/// A docstring: a summary of one line and, if the text is longer, lines that fit.
fn docstring(meaning: &str, indent: usize) -> String {
    let space = " ".repeat(indent);
    let sentence = |text: &str| format!("{}{}.", text[..1].to_uppercase(), &text[1..]);
    let text = without_links(meaning);
    if indent + text.len() + "\"\"\".\"\"\"".len() <= LINE_LENGTH {
        return format!("{space}\"\"\"{}\"\"\"\n", sentence(&text));
    }
    // The longest part that fits.
    let parts = text.match_indices("; ").chain(text.match_indices(": ")).map(|(place, _)| place);
    let fits = |place: &usize| indent + place + "\"\"\".".len() <= LINE_LENGTH;
    let end = parts.filter(fits).max().expect("a long meaning has short parts");
    let (summary, rest) = (&text[..end], &text[end + 2..]);
    let mut lines = vec![String::new()];
    for word in sentence(rest).split_whitespace() {
        let is_full = lines.last().is_some_and(|line| indent + line.len() + 1 + word.len() > LINE_LENGTH);
        if is_full {
            lines.push(String::new());
        }
        let line = lines.last_mut().unwrap();
        *line += if line.is_empty() { "" } else { " " };
        *line += word;
    }
    let rest: String = lines.iter().map(|line| format!("{space}{line}\n")).collect();
    format!("{space}\"\"\"{}\n\n{rest}{space}\"\"\"\n", sentence(summary))
}

/// Markdown's links as their texts.
fn without_links(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("](") {
        let (start, name) = before.rsplit_once('[').unwrap();
        plain += start;
        plain += name;
        rest = after.split_once(')').unwrap().1;
    }
    plain + rest
}
