//! `forebay`: Forebay's command line client.

#![forbid(unsafe_code)]

mod cli;
mod load;
mod top;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
