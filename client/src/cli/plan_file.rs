//! `--plan FILE`: reads a plan from a file or stdin.

use std::{
    fs,
    io::{self, Read},
    path::Path,
};

use forebay_client::{Plan, plan_from_json};

use super::failure::Failure;

/// Reads a plan or the result of a fit; `-` is stdin.
pub(crate) fn read(path: &Path) -> Result<Plan, Failure> {
    let text = if path == Path::new("-") {
        let mut text = Vec::new();
        io::stdin().lock().read_to_end(&mut text).map(|_| text)
    } else {
        fs::read(path)
    };
    let plan = text.map_err(Failure::Read).and_then(|text| Ok(plan_from_json(&text)?));
    plan.map_err(|source| Failure::PlanFile { path: path.to_owned(), source: Box::new(source) })
}
