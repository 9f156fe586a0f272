//! `forebay fit DATASET --plan FILE`: fits a plan on the server and prints the result.

use std::path::PathBuf;

use clap::Args;
use forebay_client::{FitProgress, FitRequest};
use indicatif::{ProgressBar, ProgressStyle};

use super::{
    cell_text::plain, failure::Failure, learned_text, message, output, plan_file::PlanFile, session::Session,
    show::artifact, stream_options::SampleOptions,
};

/// Fit a plan to a dataset; `--json > plan.json` saves the fitted plan to a file for version control
#[derive(Debug, Args)]
pub(crate) struct Fit {
    /// Name of the dataset on the server
    dataset: String,

    /// JSON file of the plan; - reads stdin
    #[arg(long, env = "FOREBAY_PLAN", value_name = "FILE", required = true)]
    plan: PathBuf,

    #[command(flatten)]
    sample: SampleOptions,

    /// Learn again, even if the server keeps the result of this fit on the dataset's current files
    #[arg(long, env = "FOREBAY_REFIT", visible_alias = "no-cache")]
    refit: bool,
}

impl Fit {
    pub(crate) async fn run(self, session: &Session) -> Result<(), Failure> {
        let file = PlanFile::read(&self.plan)?;
        // Drawn on stderr if that is a terminal.
        let bar = ProgressBar::no_length().with_style(style());
        let request = FitRequest {
            dataset: self.dataset,
            plan: Some(file.plan.clone()),
            sample: self.sample.sample,
            sample_seed: self.sample.sample_seed,
            refit: self.refit,
        };
        let result = session.client.fit_request(&request, |progress| draw(&bar, progress)).await;
        bar.finish_and_clear();
        let result = result.map_err(|error| file.located(&error.to_string()).unwrap_or_else(|| error.into()))?;
        for warning in &result.warnings {
            message::say(&format!("warning: {}", plain(warning)));
        }
        if result.cached == Some(true) {
            message::say("note: kept from an earlier fit on these files; --refit learns again");
        }
        output::write(&if session.json { artifact(&result) } else { learned_text::table(&result) })
    }
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("{msg} {wide_bar} {human_pos}/{human_len} rows, {per_sec}, {eta} left")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn draw(bar: &ProgressBar, progress: &FitProgress) {
    bar.set_length(progress.rows_total);
    bar.set_message(format!("pass {} of {}", progress.pass, progress.passes));
    bar.set_position(progress.rows_done);
}
