//! `forebay plan init DATASET`: a first plan, guessed from types and cardinalities.

use std::{
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
};

use clap::Args;
use forebay_client::plan_from_json;

use super::{
    describe::measure,
    guess::{self, Guess},
    yaml_text,
};
use crate::cli::{cell_text::plain, failure::Failure, message, output, session::Session};

/// Rows that are measured by default.
const SAMPLE_ROWS: u64 = 1_000_000;

/// Write a first plan for a dataset, guessed from the types of its columns and the number of their values: numbers are
/// standardized, columns of few values become indices, ids and constants are left out. Prints YAML, or JSON with --json
#[derive(Debug, Args)]
pub(super) struct PlanInit {
    /// Name of the dataset on the server
    dataset: String,

    /// New file to write, in JSON (.json) or YAML (.yaml, .yml) [default: stdout]
    #[arg(short, long, env = "FOREBAY_OUTPUT", value_name = "FILE")]
    output: Option<PathBuf>,

    /// Column to predict: becomes the output label, and rows without it are left out
    #[arg(long, env = "FOREBAY_LABEL", value_name = "COLUMN")]
    label: Option<String>,

    /// Measure about this many rows of a larger dataset
    #[arg(long, env = "FOREBAY_SAMPLE_ROWS", value_name = "N", default_value_t = SAMPLE_ROWS,
          value_parser = clap::value_parser!(u64).range(1..))]
    sample_rows: u64,
}

impl PlanInit {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let is_json = match &self.output {
            Some(path) => is_json(path)?,
            None => session.json,
        };
        let measured = measure(session, &self.dataset, self.sample_rows).await?;
        let guess = guess::plan(&measured, self.label.as_deref())?;
        // A guess that the server does not accept is not written.
        session.client.check_plan(&self.dataset, plan_from_json(guess.plan.to_string().as_bytes())?).await?;
        if is_json {
            guess.notes.iter().for_each(|note| message::say(&format!("note: {}", plain(note))));
        }
        let text = text(&guess, is_json);
        match self.output {
            None => output::write(&text),
            Some(path) => {
                let written = write_new(&path, &text);
                written.map_err(|source| Failure::WriteFile { path: path.clone(), source })?;
                message::say(&format!("wrote {}", path.display()));
                Ok(())
            }
        }
    }
}

fn is_json(path: &Path) -> Result<bool, Failure> {
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("json") => Ok(true),
        Some("yaml" | "yml") => Ok(false),
        _ => Err(Failure::Usage(format!(
            "--output {}: expected a name that ends in .json, .yaml or .yml",
            path.display()
        ))),
    }
}

fn text(guess: &Guess, is_json: bool) -> String {
    if is_json { format!("{:#}\n", guess.plan) } else { yaml_text::write(&guess.plan, &guess.notes) }
}

/// Writes a file that does not exist yet: a plan that was edited is not lost.
fn write_new(path: &Path, text: &str) -> io::Result<()> {
    File::create_new(path)?.write_all(text.as_bytes())
}
