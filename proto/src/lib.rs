//! Every message on Forebay's wire: the package `forebay.v1`, as protobuf bytes and as proto3 JSON.
//!
//! The `.proto` files under `forebay/v1/` are the source; `src/gen/` is generated from them and committed, and the
//! test `tests/generated.rs` holds the two equal. This crate knows nothing of Flight, plans' meaning or data.

#![forbid(unsafe_code)]

pub mod defaults;
mod encoding;
mod exact;
mod reason;

pub use encoding::{DecodeError, Encoding, JSON_BYTES_MAX, decode, encode, to_json, to_pretty_json};

/// The messages of the package `forebay.v1`.
pub mod v1 {
    #![expect(
        missing_docs,
        clippy::doc_markdown,
        clippy::large_enum_variant,
        reason = "generated from the .proto files by tests/generated.rs"
    )]
    include!("gen/forebay.v1.rs");
}

/// The descriptors of `forebay.v1`: an encoded `google.protobuf.FileDescriptorSet`.
pub const DESCRIPTORS: &[u8] = include_bytes!("gen/forebay.v1.bin");

/// The same of Flight's service, `arrow.flight.protocol`, and of what it imports.
pub const FLIGHT_DESCRIPTORS: &[u8] = include_bytes!("gen/arrow.flight.protocol.bin");

/// Messages of `forebay.v1`: they know their own full name, so that they can be read from and written as JSON.
pub trait Message: prost::Message + prost::Name + Default {}

impl<M: prost::Message + prost::Name + Default> Message for M {}
