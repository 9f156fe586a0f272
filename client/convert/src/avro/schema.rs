//! The schema of a file, as its reader takes it, and how much it declares. A short schema that names types several times may
//! have any number of columns, and a record of few bytes may become any number of bytes.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value, json};

/// Fields of a schema, those of its records and items included.
const FIELDS_MAX: u64 = 100_000;

/// Levels of records, lists and maps.
const DEPTH_MAX: u32 = 64;

/// Names of types that none else may have.
const KINDS: [&str; 14] = [
    "null", "boolean", "int", "long", "float", "double", "bytes", "string", "record", "error", "enum", "fixed",
    "array", "map",
];

/// What a type declares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Extent {
    fields: u64,
    depth: u32,
    /// Whether a value may have no bytes.
    is_empty: bool,
    /// Bytes of its fields of fixed size outside of lists and maps. A null takes them, too.
    fixed_bytes: u64,
    /// Those within.
    item_fixed_bytes: u64,
}

/// Walks through a schema.
#[derive(Debug, Default)]
struct SchemaWalk {
    /// The named types so far, by their full names.
    named: HashMap<String, NamedType>,
    /// Their names in the result.
    used: HashSet<String>,
}

/// A record, enum or fixed.
#[derive(Debug)]
struct NamedType {
    name: String,
    /// `None` within its declaration.
    extent: Option<Extent>,
}

/// Checks a schema. Returns it with only what decides about values, and with names without namespaces, which its reader
/// does not resolve in every case.
pub(super) fn simplified(schema: &Value) -> Result<(Value, Extent), String> {
    if !schema.get("type").is_some_and(|kind| kind == "record") {
        return Err("its schema is not a record".to_owned());
    }
    SchemaWalk::default().any(schema, "")
}

// === impl Extent ===

impl Extent {
    /// Bytes that the values of fixed size of some records take at most, if these have so many bytes in the file.
    pub(super) fn fixed_bytes(&self, records: u64, bytes: u64) -> u64 {
        let of_items = bytes.saturating_mul(self.item_fixed_bytes);
        records.saturating_mul(self.fixed_bytes).saturating_add(of_items)
    }

    fn leaf(fixed_bytes: u64, is_empty: bool) -> Self {
        Self { fields: 1, depth: 0, is_empty, fixed_bytes, item_fixed_bytes: 0 }
    }

    /// Adds a part; an error if the sum is too large.
    fn with(self, part: Self) -> Result<Self, String> {
        let sum = Self {
            fields: self.fields + part.fields,
            depth: self.depth.max(part.depth + 1),
            is_empty: self.is_empty && part.is_empty,
            fixed_bytes: self.fixed_bytes.saturating_add(part.fixed_bytes),
            item_fixed_bytes: self.item_fixed_bytes.saturating_add(part.item_fixed_bytes),
        };
        if sum.fields > FIELDS_MAX {
            return Err(format!("its schema has more than {FIELDS_MAX} fields"));
        }
        if sum.depth > DEPTH_MAX {
            return Err(format!("its schema has more than {DEPTH_MAX} levels"));
        }
        Ok(sum)
    }

    /// The extent of a list or map of these.
    fn repeated(self) -> Result<Self, String> {
        let item_fixed_bytes = self.item_fixed_bytes.saturating_add(self.fixed_bytes);
        Self::leaf(0, false).with(Self { fixed_bytes: 0, item_fixed_bytes, ..self })
    }
}

// === impl SchemaWalk ===

impl SchemaWalk {
    fn any(&mut self, schema: &Value, namespace: &str) -> Result<(Value, Extent), String> {
        match schema {
            Value::String(name) => self.name(name, namespace),
            Value::Array(branches) => {
                let mut sum = Extent::leaf(0, false);
                let mut kinds = Vec::new();
                for branch in branches {
                    let (kind, extent) = self.any(branch, namespace)?;
                    sum = sum.with(extent)?;
                    kinds.push(kind);
                }
                Ok((Value::Array(kinds), sum))
            }
            Value::Object(object) => match object.get("type") {
                Some(Value::String(kind)) => self.object(kind, object, namespace),
                Some(kind) => self.any(kind, namespace),
                None => Err("its schema has a type without \"type\"".to_owned()),
            },
            _ => Err("its schema has a type that is no name, object or array".to_owned()),
        }
    }

    fn object(&mut self, kind: &str, object: &Map<String, Value>, space: &str) -> Result<(Value, Extent), String> {
        match kind {
            "record" | "error" | "enum" | "fixed" => self.declared(kind, object, space),
            "array" => {
                let (item, extent) = self.any(part(object, kind, "items")?, space)?;
                if extent.is_empty {
                    return Err("its schema has lists of values without bytes".to_owned());
                }
                Ok((json!({"type": "array", "items": item}), extent.repeated()?))
            }
            "map" => {
                let (value, extent) = self.any(part(object, kind, "values")?, space)?;
                Ok((json!({"type": "map", "values": value}), extent.repeated()?))
            }
            name => {
                let (name, extent) = self.name(name, space)?;
                // Identifiers that are stored as text stay text.
                Ok((if name == "string" { name } else { logical(json!({"type": name}), object) }, extent))
            }
        }
    }

    fn declared(&mut self, kind: &str, object: &Map<String, Value>, space: &str) -> Result<(Value, Extent), String> {
        let name = part(object, kind, "name")?.as_str().unwrap_or_default();
        let full = full_name(name, object.get("namespace").and_then(Value::as_str).unwrap_or(space));
        let (space, short) = full.rsplit_once('.').unwrap_or(("", &full));
        let mut name = short.to_owned();
        let mut number = self.used.len();
        while KINDS.contains(&name.as_str()) || !self.used.insert(name.clone()) {
            name = format!("{short}_{number}");
            number += 1;
        }
        if self.named.insert(full.clone(), NamedType { name: name.clone(), extent: None }).is_some() {
            return Err(format!("its schema declares the type \"{}\" twice", full.escape_debug()));
        }
        let (declared, extent) = match kind {
            "enum" => {
                let symbols = part(object, kind, "symbols")?;
                (json!({"type": kind, "name": name, "symbols": symbols}), Extent::leaf(0, false))
            }
            "fixed" => {
                let size = part(object, kind, "size")?;
                let bytes = size.as_u64().unwrap_or(u64::MAX);
                (logical(json!({"type": kind, "name": name, "size": size}), object), Extent::leaf(bytes, bytes == 0))
            }
            _ => {
                let (fields, extent) = self.fields(part(object, kind, "fields")?, space)?;
                (json!({"type": "record", "name": name, "fields": fields}), extent)
            }
        };
        self.named.insert(full, NamedType { name, extent: Some(extent) });
        Ok((declared, extent))
    }

    fn fields(&mut self, fields: &Value, namespace: &str) -> Result<(Vec<Value>, Extent), String> {
        let mut sum = Extent::leaf(0, true);
        let mut kept = Vec::new();
        for field in fields.as_array().into_iter().flatten() {
            let part = |key: &str| field.get(key).ok_or_else(|| format!("its schema has a field without \"{key}\""));
            let name = part("name")?;
            let (kind, extent) = self.any(part("type")?, namespace)?;
            sum = sum.with(extent)?;
            kept.push(json!({"name": name, "type": kind}));
        }
        Ok((kept, sum))
    }

    fn name(&self, name: &str, namespace: &str) -> Result<(Value, Extent), String> {
        match name {
            "null" => return Ok((name.into(), Extent::leaf(0, true))),
            "boolean" | "int" | "long" | "float" | "double" | "bytes" | "string" => {
                return Ok((name.into(), Extent::leaf(0, false)));
            }
            _ => {}
        }
        let shown = name.escape_debug();
        match self.named.get(&full_name(name, namespace)).or_else(|| self.named.get(name)) {
            Some(NamedType { name, extent: Some(extent) }) => Ok((name.as_str().into(), *extent)),
            Some(_) => Err(format!("its schema has the type \"{shown}\" within itself, which columns cannot hold")),
            None => Err(format!("its schema has the unknown type \"{shown}\"")),
        }
    }
}

fn part<'a>(object: &'a Map<String, Value>, kind: &str, key: &str) -> Result<&'a Value, String> {
    object.get(key).ok_or_else(|| format!("its schema has a type \"{kind}\" without \"{key}\""))
}

/// Adds what a logical type has.
fn logical(mut simple: Value, object: &Map<String, Value>) -> Value {
    for key in ["logicalType", "precision", "scale"] {
        if let Some(value) = object.get(key) {
            simple[key] = value.clone();
        }
    }
    simple
}

fn full_name(name: &str, namespace: &str) -> String {
    if name.contains('.') || namespace.is_empty() { name.to_owned() } else { format!("{namespace}.{name}") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of_fields(fields: &Value) -> Result<Extent, String> {
        let schema = json!({"type": "record", "name": "r", "namespace": "a.b", "fields": fields});
        simplified(&schema).map(|(_, extent)| extent)
    }

    #[test]
    fn names_lose_their_namespaces() {
        let inner = json!({"type": "record", "name": "c.d.E", "doc": "d", "fields": [{"name": "y", "type": "int"}]});
        let fields = json!([
            {"name": "x", "type": inner, "default": {}, "aliases": ["k"]},
            {"name": "z", "type": ["null", "c.d.E"]},
            {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A"]}},
            {"name": "f", "type": "E"},
            {"name": "u", "type": {"type": "string", "logicalType": "uuid"}},
            {"name": "v", "type": {"type": "fixed", "name": "a.int", "size": 2}},
        ]);
        let (simple, _) = simplified(&json!({"type": "record", "name": "r", "fields": fields})).unwrap();
        let inner = json!({"type": "record", "name": "E", "fields": [{"name": "y", "type": "int"}]});
        let expected = json!([
            {"name": "x", "type": inner},
            {"name": "z", "type": ["null", "E"]},
            {"name": "e", "type": {"type": "enum", "name": "E_2", "symbols": ["A"]}},
            {"name": "f", "type": "E_2"},
            {"name": "u", "type": "string"},
            {"name": "v", "type": {"type": "fixed", "name": "int_3", "size": 2}},
        ]);
        assert_eq!(simple, json!({"type": "record", "name": "r", "fields": expected}));
    }

    #[test]
    fn named_types_are_counted_where_they_are_used() {
        let mut fields = vec![
            json!({"name": "f", "type": {"type": "fixed", "name": "F", "size": 20}}),
            json!({"name": "g", "type": ["null", "F"]}),
            json!({"name": "l", "type": {"type": "array", "items": "a.b.F"}}),
        ];
        let extent = of_fields(&json!(fields)).unwrap();
        assert_eq!((extent.fixed_bytes, extent.item_fixed_bytes, extent.depth), (40, 20, 2));
        assert_eq!(extent.fixed_bytes(3, 100), 120 + 2000);
        fields.push(json!({"name": "h", "type": {"type": "fixed", "name": "F", "size": 1}}));
        assert_eq!(of_fields(&json!(fields)).unwrap_err(), "its schema declares the type \"a.b.F\" twice");
    }

    #[test]
    fn short_schemas_of_many_fields_are_refused() {
        let before = |level: u32| if level == 0 { json!("int") } else { json!(format!("T{}", level - 1)) };
        let record =
            |level: u32, fields: &[Value]| json!({"type": "record", "name": format!("T{level}"), "fields": fields});
        let mut fields = vec![json!({"name": "x", "type": "int"})];
        for level in 0..30 {
            let inner = [0, 1].map(|at| json!({"name": format!("f{at}"), "type": before(level)}));
            fields.push(json!({"name": format!("t{level}"), "type": record(level, &inner)}));
        }
        assert_eq!(of_fields(&json!(fields)).unwrap_err(), "its schema has more than 100000 fields");
        let chain = (0..100).map(|level| {
            json!({"name": format!("t{level}"), "type": record(level, &[json!({"name": "f", "type": before(level)})])})
        });
        assert_eq!(of_fields(&chain.collect()).unwrap_err(), "its schema has more than 64 levels");
    }

    #[test]
    fn other_types_are_refused_by_name() {
        for (kind, reason) in [
            (json!("r"), "the type \"r\" within itself"),
            (json!(["null", "a.b.r"]), "the type \"a.b.r\" within itself"),
            (json!("other"), "the unknown type \"other\""),
            (json!({"type": "array", "items": "null"}), "lists of values without bytes"),
            (json!({"type": "array", "items": {"type": "fixed", "name": "z", "size": 0}}), "values without bytes"),
            (json!({"type": "record", "name": "s", "fields": [{"type": "int"}]}), "a field without \"name\""),
            (json!({"type": "map"}), "without \"values\""),
            (json!(7), "no name, object or array"),
        ] {
            let error = of_fields(&json!([{"name": "x", "type": kind}])).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
        assert!(simplified(&json!("string")).is_err());
    }
}
