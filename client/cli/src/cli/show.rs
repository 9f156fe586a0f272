//! `forebay show PLAN_ID`: a fitted plan stored on the server.

use clap::Args;

use super::{failure::Failure, learned_text, output, session::Session};

/// Show a fitted plan op by op; `--json > plan.json` saves it to a file, as `fit --json` does
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

/// Formats a fit's result for version control: equal fits give equal bytes, and every learned value has its own line.
pub(crate) fn artifact(result: &forebay_client::FitResult) -> String {
    // Whether the result is from the cache is not part of it.
    let result = forebay_client::FitResult { cached: None, ..result.clone() };
    forebay_proto::to_pretty_json(&result) + "\n"
}
