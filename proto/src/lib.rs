//! All messages of Forebay's protocol: the package `forebay.v1`, as protobuf bytes and as proto3 JSON.
//!
//! `src/gen/` is generated from the `.proto` files in `forebay/` and committed; `tests/generated` checks that they match.
//! This crate does not depend on Flight or on data, and has of ops what their options say ([`ops`]).

#![forbid(unsafe_code)]

mod decoded_memory;
pub mod defaults;
mod derive;
mod encoding;
mod exact;
mod lifted;
pub mod ops;
mod plain_text;
mod plan_bytes;
pub mod protocol;
mod reason;
pub mod resume;
mod spelling;

pub use decoded_memory::decoded_bytes;
pub use encoding::{DecodeError, Encoding, JSON_BYTES_MAX, decode, descriptor, encode, to_json, to_pretty_json};
pub use plain_text::{is_active, plain_text};
pub use plan_bytes::{plan_from_bytes, plan_to_bytes};

/// The messages of the package `forebay.v1`.
pub mod v1 {
    #![expect(
        missing_docs,
        clippy::doc_markdown,
        clippy::large_enum_variant,
        reason = "generated from the .proto files by tests/generated"
    )]
    include!("gen/forebay.v1.rs");
}

/// The descriptors of `forebay.v1`: an encoded `google.protobuf.FileDescriptorSet`.
pub const DESCRIPTORS: &[u8] = include_bytes!("gen/forebay.v1.bin");

/// The descriptors of Flight's service, `arrow.flight.protocol`, and of its imports.
pub const FLIGHT_DESCRIPTORS: &[u8] = include_bytes!("gen/arrow.flight.protocol.bin");

/// A message of `forebay.v1`, with its full name, which JSON needs.
pub trait Message: prost::Message + prost::Name + Default {}

impl<M: prost::Message + prost::Name + Default> Message for M {}
