//! Flight messages: batches → messages → the body of a response, and the messages of a client → batches.

mod body;
mod encode;
mod ipc_stream;
mod zero_nulls;

pub(crate) mod decode;

pub(crate) use body::message_length;
pub use body::response;
pub use encode::{Encoder, Message};
pub(crate) use ipc_stream::ipc_stream;
