//! `--plan FILE`: reads a plan in JSON, YAML or TOML from a file or stdin. A mistake is reported with its line and column.

mod toml_text;
mod tree;
mod yaml;

use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use forebay_client::{Error, Plan, plan_from_json};
use forebay_proto::{DecodeError, JSON_BYTES_MAX};

use self::tree::{Mistake, Node, Position};
use super::failure::Failure;

/// A plan and where its fields are in the file.
#[derive(Debug)]
pub(crate) struct PlanFile {
    pub(crate) plan: Plan,
    path: PathBuf,
    text: String,
}

/// The format of a plan file, by its ending. Files without one of these endings, and stdin, are JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Json,
    Yaml,
    Toml,
}

/// Reads a plan or the result of a fit; `-` is stdin.
pub(crate) fn read(path: &Path) -> Result<Plan, Failure> {
    PlanFile::read(path).map(|file| file.plan)
}

// === impl PlanFile ===

impl PlanFile {
    /// Reads a plan or the result of a fit; `-` is stdin.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let text = text(path).map_err(Failure::Read).map_err(|source| named(path, source))?;
        let plan = plan(&text, Format::of(path)).map_err(|source| named(path, source))?;
        Ok(Self { plan, path: path.to_owned(), text })
    }

    /// Adds the place in the file to a server's error about a field of the plan: `plan.outputs[0].parts[1]: …`.
    pub(crate) fn located(&self, reason: &str) -> Option<Failure> {
        let field = reason.split_once("plan.")?.1.split([':', ' ']).next()?;
        let tree = Format::of(&self.path).tree(&self.text).ok()?;
        let place = tree.position_of("plan");
        // The result of a fit has the plan as a field.
        let path = if place == tree.position { field.to_owned() } else { format!("plan.{field}") };
        let position = tree.position_of(&path);
        let source = Failure::PlanText { line: position.line, column: position.column, reason: reason.to_owned() };
        Some(named(&self.path, source))
    }
}

// === impl Format ===

impl Format {
    fn of(path: &Path) -> Self {
        match path.extension().and_then(|ending| ending.to_str()).map(str::to_ascii_lowercase).as_deref() {
            Some("yaml" | "yml") => Self::Yaml,
            Some("toml") => Self::Toml,
            _ => Self::Json,
        }
    }

    /// JSON is YAML.
    fn tree(self, text: &str) -> Result<Node, Mistake> {
        match self {
            Self::Json | Self::Yaml => yaml::read(text),
            Self::Toml => toml_text::read(text),
        }
    }
}

fn named(path: &Path, source: Failure) -> Failure {
    Failure::PlanFile { path: path.to_owned(), source: Box::new(source) }
}

fn text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    // A byte more than a message may have, so that a larger file is not read as a part of itself.
    let limit = JSON_BYTES_MAX as u64 + 1;
    if path == Path::new("-") {
        io::stdin().lock().take(limit).read_to_string(&mut text)?;
    } else {
        fs::File::open(path)?.take(limit).read_to_string(&mut text)?;
    }
    Ok(text)
}

fn plan(text: &str, format: Format) -> Result<Plan, Failure> {
    if format == Format::Json {
        return plan_from_json(text.as_bytes()).map_err(|error| match error {
            Error::Plan(DecodeError::Json { ref path, .. }) if !path.is_empty() => {
                match yaml::read(text).map(|tree| tree.position_of(path)) {
                    Ok(position) => mistake(position, error),
                    Err(_) => error.into(),
                }
            }
            error => error.into(),
        });
    }
    let tree = format.tree(text).map_err(|Mistake { position: Position { line, column }, reason }| {
        Failure::PlanText { line, column, reason }
    })?;
    plan_from_json(tree.json().as_bytes()).map_err(|error| match error {
        Error::Plan(DecodeError::Json { ref path, .. }) => mistake(tree.position_of(path), error),
        error => error.into(),
    })
}

/// An error with its place in the file instead of that in its JSON.
fn mistake(position: Position, error: Error) -> Failure {
    let Error::Plan(DecodeError::Json { reason, .. }) = error else { return error.into() };
    Failure::PlanText { line: position.line, column: position.column, reason: without_place(&reason) }
}

/// Removes ` at line 1 column 7`, which the JSON reader adds.
fn without_place(reason: &str) -> String {
    let Some(start) = reason.find(" at line ") else { return reason.to_owned() };
    let rest = &reason[start + " at line ".len()..];
    let end = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
    let Some(column) = rest[end..].strip_prefix(" column ") else { return reason.to_owned() };
    format!("{}{}", &reason[..start], column.trim_start_matches(|letter: char| letter.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &str = r#"{"filter": "a > 0", "derive": {"z": "b", "a": "c"},
 "outputs": [{"name": "x", "parts": [{"columns": ["a"], "ops": [{"clip": {"min": -1.5}}, {"standardize": {}}]}]}]}"#;
    const YAML: &str = "filter: a > 0\nderive:\n  z: b\n  a: c\noutputs:\n  - name: x\n    parts:\n      - columns: [a]\n        \
                        ops:\n          - clip: {min: -1.5}\n          - standardize: {}\n";
    const TOML: &str = "filter = 'a > 0'\n[derive]\nz = 'b'\na = 'c'\n[[outputs]]\nname = 'x'\n[[outputs.parts]]\n\
                        columns = ['a']\nops = [{ clip = { min = -1.5 } }, { standardize = {} }]\n";

    fn error(text: &str, format: Format) -> (usize, String) {
        match plan(text, format).unwrap_err() {
            Failure::PlanText { line, reason, .. } => (line, reason),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn the_formats_have_the_same_plans() {
        use Format::{Json, Toml, Yaml};
        let expected = plan(JSON, Json).unwrap();
        assert_eq!(expected.derive[0].name, "z");
        assert_eq!(plan(YAML, Yaml).unwrap(), expected);
        assert_eq!(plan(TOML, Toml).unwrap(), expected);
        let formats = ["a.yaml", "a.YML", "a.toml", "a.json", "-", "a"].map(|path| Format::of(Path::new(path)));
        assert_eq!(formats, [Yaml, Yaml, Toml, Json, Json, Json]);
    }

    #[test]
    fn a_misspelled_field_is_reported_with_its_place_and_the_closest_name() {
        for (text, format, line) in [(JSON, Format::Json, 2), (YAML, Format::Yaml, 11), (TOML, Format::Toml, 9)] {
            let (found, reason) = error(&text.replace("standardize", "standardise"), format);
            assert_eq!(found, line, "{reason}");
            assert!(reason.starts_with("outputs[0].parts[0].ops[1]: "), "{reason}");
            assert!(reason.ends_with("did you mean \"standardize\"?") && !reason.contains(" at line "), "{reason}");
            let (found, reason) =
                error(&text.replace("-1.5", "'low'").replace('\'', if line == 2 { "\"" } else { "'" }), format);
            assert!(reason.starts_with("outputs[0].parts[0].ops[0].clip.min: "), "{reason}");
            assert_eq!(found, if line == 11 { 10 } else { line });
        }
    }

    #[test]
    fn fields_that_the_server_names_are_found() {
        let file =
            |text: &str, path: &str| PlanFile { plan: Plan::default(), path: path.into(), text: text.to_owned() };
        let line = |file: PlanFile, reason: &str| match file.located(reason) {
            Some(Failure::PlanFile { source, .. }) => match *source {
                Failure::PlanText { line, .. } => Some(line),
                _ => None,
            },
            _ => None,
        };
        let reason = "INVALID_REQUEST: plan.outputs[0].parts[0].columns: no column \"a\"";
        assert_eq!(line(file(YAML, "a.yaml"), reason), Some(8));
        assert_eq!(line(file(&format!("{{\"version\": 1,\n\"plan\":\n{JSON}}}"), "a.json"), reason), Some(4));
        assert_eq!(line(file(YAML, "a.yaml"), "no such dataset"), None);
    }
}
