//! `forebay show PLAN_ID`: what a fit has learned, from the server that keeps it.

use clap::Args;

use super::failure::Failure;
use super::session::Session;
use super::{learned_text, output};

/// Shows a fitted plan op by op; `--json > plan.json` makes a file of it, the one that `fit --json` makes
#[derive(Debug, Args)]
pub(crate) struct Show {
    /// Id of a fitted plan on the server
    #[arg(value_name = "PLAN_ID")]
    plan_id: String,
}

impl Show {
    pub(crate) async fn run(self, session: &Session) -> Result<(), Failure> {
        let result = session.client.show(&self.plan_id).await?;
        output::write(&if session.json { artifact(&result) } else { learned_text::table(&result) })
    }
}

/// A fit's result as a file to check in: equal fits give equal bytes, and every learned value has a line of its own.
pub(crate) fn artifact(result: &forebay_client::FitResult) -> String {
    forebay_proto::to_pretty_json(result) + "\n"
}
