//! Runs Forebay's kernels for the bench that compares them with other programs (`benches/kernels`).
//!
//! Each line of JSON on standard input is a request, answered by a line of JSON on standard output. Columns are read
//! once, from an Arrow file. A work is an output of a table's columns and runs as in a stream: one `BatchBuilder` per
//! batch, whose memory is freed before the next. There is no I/O while a clock runs. The allocator is the server's.

mod clock;
mod request;
mod table;
mod work;

use std::collections::HashMap;
use std::error::Error;
use std::io::{self, BufRead, Write};
use std::process::ExitCode;

use request::{Reply, Request};
use table::Table;
use work::Work;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Loaded tables and prepared works.
#[derive(Default)]
struct Runner {
    tables: HashMap<String, Table>,
    works: HashMap<String, Work>,
}

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("--version") {
        println!("forebay-kernels {}", env!("CARGO_PKG_VERSION"));
        return ExitCode::SUCCESS;
    }
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Answers requests until standard input ends.
fn serve() -> Result<(), io::Error> {
    let (mut runner, mut replies) = (Runner::default(), io::stdout().lock());
    for line in io::stdin().lock().lines() {
        let reply = runner.answer(&line?).unwrap_or_else(|error| Reply::Error { error: error.to_string() });
        serde_json::to_writer(&mut replies, &reply)?;
        replies.write_all(b"\n")?;
        replies.flush()?;
    }
    Ok(())
}

impl Runner {
    fn answer(&mut self, line: &str) -> Result<Reply, Box<dyn Error>> {
        match serde_json::from_str(line)? {
            Request::Load { table, path } => {
                let read = Table::read(&path)?;
                let rows = read.rows();
                self.tables.insert(table, read);
                Ok(Reply::Rows { rows })
            }
            Request::Prepare { work, table, batch_rows, output } => {
                let work_on = self.tables.get(&table).ok_or_else(|| format!("there is no table {table:?}"))?;
                self.works.insert(work, Work::new(work_on, batch_rows, output)?);
                Ok(Reply::Done {})
            }
            Request::Run { work, passes, rows } => Ok(Reply::Times(self.work(&work)?.run(passes, rows)?)),
            Request::Write { work, path } => {
                self.work(&work)?.write(&path)?;
                Ok(Reply::Done {})
            }
            Request::Copy { table, passes } => {
                let table = self.tables.get(&table).ok_or_else(|| format!("there is no table {table:?}"))?;
                Ok(Reply::Times(table.copy(passes)))
            }
        }
    }

    fn work(&self, name: &str) -> Result<&Work, String> {
        self.works.get(name).ok_or_else(|| format!("there is no work {name:?}"))
    }
}
