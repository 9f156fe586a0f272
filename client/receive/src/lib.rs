//! Receives the messages of one `DoGet` with one copy: from the HTTP/2 frames into memory that the reader keeps.
//!
//! A [`Receiver`] has a thread, which drives the connection and answers its pings also while the reader computes. The
//! thread waits if the reader is some messages behind, so that memory is bounded. Arrow messages and their headers are
//! opaque here; retries are up to the caller.

#![forbid(unsafe_code)]

mod body;
mod call;
mod connect;
mod error;
mod link;
mod messages;
mod receiver;
mod status;
mod tls;

pub use self::{
    body::{Body, BodyBuffer},
    call::Call,
    error::ReceiveError,
    messages::Message,
    receiver::{Received, Receiver},
    tls::Tls,
};
