//! `forebay plan check | init`: plans before they are fitted or streamed.

mod check;
mod describe;
mod guess;
mod init;
mod yaml_text;

use clap::{Args, Subcommand};

use super::{failure::Failure, session::Session};

/// Check a plan on a dataset, or write a first one
#[derive(Debug, Args)]
pub(crate) struct PlanTools {
    #[command(subcommand)]
    verb: PlanVerb,
}

#[derive(Debug, Subcommand)]
enum PlanVerb {
    Check(check::PlanCheckOptions),
    Init(init::PlanInit),
}

impl PlanTools {
    pub(crate) async fn run(self, session: &Session) -> Result<(), Failure> {
        match self.verb {
            PlanVerb::Check(verb) => verb.run(session).await,
            PlanVerb::Init(verb) => verb.run(session).await,
        }
    }
}
