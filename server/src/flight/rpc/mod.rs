//! The Flight calls, one module each. None uses tonic's service or the transport: a call gets its context and its
//! message, and returns messages or a status.

pub(super) mod do_action;
pub(super) mod do_exchange;
pub(super) mod do_get;
pub(super) mod get_flight_info;
pub(super) mod get_schema;
pub(super) mod list_flights;
pub(super) mod unimplemented;

mod epoch_info;
mod groups_info;
mod table_info;
mod take_info;
