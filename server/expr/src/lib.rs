//! SQL expressions of a plan: parsed, type-checked, evaluated on record batches, and used to prune row groups.
//!
//! Only this crate and `forebay-engine` depend on DataFusion. It reads no files and has no access to plans: the input is a
//! schema and a text, the output is arrays. Queries are planned elsewhere, and their expressions [typed](typed_in_query) here.

#![forbid(unsafe_code)]

mod aliases;
mod align;
mod casts;
mod compare;
mod conditions;
mod constant;
mod cost;
mod decimals;
mod error;
mod expression;
mod filter;
mod floats;
mod fold;
mod forms;
mod functions;
mod nodes;
mod numbers;
mod operands;
mod parse;
mod patterns;
mod pruning;
mod query;
mod rewrite;
mod sent;
mod size;
mod text_argument;
mod times;
mod type_names;
mod typed;
mod unsigned;

pub use error::ExprError;
pub use expression::Expression;
pub use filter::Filter;
pub use functions::own_functions;
pub use parse::{OPERATORS_MAX, TEXT_BYTES_MAX, operator_count};
pub use pruning::{ColumnStatistics, PruningStatistics};
pub use query::{QueryError, SQL_BYTES_MAX, find_name, lower_first, parse_query, query_tables};
pub use sent::{decode_function, encode_function};
pub use typed::{at_time_of_query, refused_in_query, typed_in_query};

#[cfg(test)]
mod tests;
