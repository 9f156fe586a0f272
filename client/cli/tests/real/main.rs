//! The client library and the command line against a real `forebay-server` over real Parquet files.

#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests stop at the first surprise")]

mod command_line;
mod data;
mod doctor;
mod exchange;
mod failover;
mod head;
mod health;
mod library;
mod load;
mod plan;
mod proxy;
mod secured;
mod serve;
mod server;
mod shuffled;
mod terminal;
mod top;
mod version;
