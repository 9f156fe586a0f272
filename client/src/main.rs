//! `forebay`: the command line of Forebay's client.

#![forbid(unsafe_code)]

mod cli;
mod load;
mod top;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
