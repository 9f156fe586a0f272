//! Subcommands of `forebay`, one file each. Data goes to stdout, messages to stderr. Exit codes: 0 success, 1 failure,
//! 2 invalid usage or configuration.

mod cell_text;
mod convert;
mod credential_options;
mod delegated;
mod doctor;
mod explain;
mod failure;
mod fit;
mod head;
mod learned_text;
mod load;
mod load_text;
mod ls;
mod message;
mod output;
mod plan;
mod plan_file;
mod plans;
mod programs;
mod replay;
mod rows_text;
mod schema;
mod serve;
mod session;
mod show;
mod sizing;
mod sources_file;
mod stream_options;
mod take;
mod top;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use forebay_client::Client;
use tokio::runtime;

use self::{credential_options::CredentialOptions, failure::Failure, session::Session};

/// Command line client of Forebay: lists datasets, fits and previews plans, estimates costs, generates load,
/// converts files, and monitors servers
#[derive(Debug, Parser)]
#[command(name = "forebay", version)]
struct Options {
    #[arg(
        long,
        env = "FOREBAY_SERVER",
        value_name = "URL",
        default_value = "grpc://127.0.0.1:8815",
        global = true,
        help = "Server: grpc://HOST:PORT, grpc+tls://HOST:PORT, or grpc+unix://PATH for a Unix socket"
    )]
    server: String,

    #[command(flatten)]
    credentials: CredentialOptions,

    /// Print JSON instead of text
    #[arg(long, env = "FOREBAY_JSON", global = true)]
    json: bool,

    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    #[command(flatten)]
    Flight(FlightVerb),
    Top(top::Top),
    Convert(Box<convert::Convert>),
    Serve(serve::Serve),
    Doctor(doctor::Doctor),
    Prepare(delegated::Prepare),
    Compare(delegated::Compare),
}

/// Subcommands that call one server over Flight.
#[derive(Debug, Subcommand)]
enum FlightVerb {
    /// List the server's datasets: rows, bytes, files, row groups, snapshot
    Ls,
    Schema(schema::Schema),
    Head(head::Head),
    Take(take::Take),
    Fit(fit::Fit),
    Explain(Box<explain::Explain>),
    Replay(Box<replay::Replay>),
    Show(show::Show),
    Plan(plan::PlanTools),
    Plans(plans::Plans),
    Load(Box<load::Load>),
}

/// Runs the subcommand of this process's arguments.
pub(crate) fn main() -> ExitCode {
    if let Err(failure) = delegated::run_if_first() {
        return failure.report();
    }
    let options: Options = forebay_settings::parse();
    // Only a load run needs several cores.
    let mut runtime = match options.verb {
        Verb::Flight(FlightVerb::Load(_)) => runtime::Builder::new_multi_thread(),
        _ => runtime::Builder::new_current_thread(),
    };
    let outcome = runtime.enable_all().build().map_err(Failure::Runtime).and_then(|runtime| {
        let outcome = runtime.block_on(run(options));
        // Do not wait for a pending DNS lookup.
        runtime.shutdown_background();
        outcome
    });
    match outcome {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

async fn run(options: Options) -> Result<ExitCode, Failure> {
    let done = match options.verb {
        Verb::Flight(verb) => call(verb, options.server, &options.credentials, options.json).await,
        Verb::Top(verb) => verb.run(options.json).await,
        Verb::Convert(verb) => verb.run(options.json).await,
        Verb::Serve(verb) => return verb.run(options.json).await,
        Verb::Doctor(verb) => return verb.run(&options.server, &options.credentials.read()?, options.json).await,
        Verb::Prepare(verb) => Err(verb.run(options.json)),
        Verb::Compare(verb) => Err(verb.run(options.json)),
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// Runs a subcommand that calls a server.
async fn call(verb: FlightVerb, server: String, credentials: &CredentialOptions, json: bool) -> Result<(), Failure> {
    if let FlightVerb::Load(verb) = &verb {
        verb.check()?;
    }
    if let FlightVerb::Explain(verb) = &verb
        && verb.is_arithmetic()
    {
        return verb.estimate(json);
    }
    let credentials = credentials.read()?;
    let client = Client::connect_with(&server, &credentials).await?;
    let session = Session { server, credentials, client, json };
    match verb {
        FlightVerb::Ls => ls::run(&session).await,
        FlightVerb::Schema(verb) => verb.run(&session).await,
        FlightVerb::Head(verb) => verb.run(&session).await,
        FlightVerb::Take(verb) => verb.run(&session).await,
        FlightVerb::Fit(verb) => verb.run(&session).await,
        FlightVerb::Explain(verb) => verb.run(&session).await,
        FlightVerb::Replay(verb) => verb.run(&session).await,
        FlightVerb::Show(verb) => verb.run(&session).await,
        FlightVerb::Plan(verb) => verb.run(&session).await,
        FlightVerb::Plans(verb) => verb.run(&session).await,
        FlightVerb::Load(verb) => verb.run(&session).await,
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use clap::Command;

    use super::*;

    /// `FOREBAY_REGENERATE=1 cargo test -p forebay-client --bins` rewrites the table.
    #[test]
    fn the_page_of_convert_has_its_options() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/guides/convert.md");
        let text = fs::read_to_string(&page).unwrap();
        let (before, rest) = text.split_once("<!-- options: forebay convert -->\n").unwrap();
        let (inside, after) = rest.split_once("<!-- /options -->").unwrap();
        let command = forebay_settings::command::<Options>();
        let table = forebay_settings::markdown_table(command.find_subcommand("convert").unwrap());
        let table = table.trim().to_owned() + "\n";
        if std::env::var_os("FOREBAY_REGENERATE").is_some() {
            let page_text = format!("{before}<!-- options: forebay convert -->\n{table}<!-- /options -->{after}");
            fs::write(&page, page_text).unwrap();
        } else {
            assert_eq!(inside, table, "docs/src/guides/convert.md is stale: set FOREBAY_REGENERATE=1");
        }
    }

    #[test]
    fn the_page_of_the_command_line_lists_the_subcommands() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/reference/command-line.md");
        let text = fs::read_to_string(&page).unwrap();
        let command = forebay_settings::command::<Options>();
        let mut names = BTreeSet::new();
        for verb in command.get_subcommands() {
            names.extend(verb.get_subcommands().map(|inner| format!("{} {}", verb.get_name(), inner.get_name())));
            if verb.get_subcommands().count() == 0 {
                names.insert(verb.get_name().to_owned());
            }
        }
        let rows = text.lines().filter_map(|line| line.strip_prefix("| `forebay ")?.split_once('`'));
        let mut listed: Vec<&str> = rows.map(|(usage, _)| usage.split(" [").next().unwrap()).collect();
        let name_of = |usage: &&str| {
            let words: Vec<&str> = usage.split(' ').take_while(|word| word.chars().all(char::is_lowercase)).collect();
            words.join(" ")
        };
        let found: BTreeSet<String> = listed.iter().map(name_of).collect();
        assert_eq!(found, names);
        listed.dedup();
        assert_eq!(listed.len(), names.len(), "each once");
    }

    #[test]
    fn every_option_has_an_environment_variable() {
        fn check(command: &Command) {
            for argument in command.get_arguments() {
                let Some(long) = argument.get_long() else { continue };
                let expected = format!("FOREBAY_{}", long.replace('-', "_").to_uppercase());
                assert_eq!(argument.get_env().and_then(|name| name.to_str()), Some(expected.as_str()), "--{long}");
            }
            command.get_subcommands().for_each(check);
        }
        let command = forebay_settings::command::<Options>();
        check(&command);
        let verbs: BTreeSet<_> = command.get_subcommands().map(Command::get_name).collect();
        assert_eq!(
            verbs,
            [
                "compare", "convert", "doctor", "explain", "fit", "head", "load", "ls", "plan", "plans", "prepare",
                "replay", "schema", "serve", "show", "take", "top"
            ]
            .into()
        );
        command.debug_assert();
    }
}
