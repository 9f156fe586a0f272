//! Error → gRPC code: one exhaustive table.

use std::borrow::Cow;

use forebay_kernels::KernelError;
use forebay_proto::DecodeError;
use tonic::{Code, Status, metadata::MetadataMap};

use crate::{
    auth::Refused,
    catalog::{CatalogError, StoreError},
    cpu_pool::CpuError,
    engine::EngineError,
    plan::PlanError,
    scan::ScanError,
    stream::StreamError,
};

/// The trailer by which a server says after how many milliseconds a call may be tried again (gRPC's proposal A6).
const RETRY_PUSHBACK: &str = "grpc-retry-pushback-ms";

/// When memory may be free again.
const MEMORY_RETRY_MS: u64 = 1000;

/// The status of an error: the code that a client acts on, and the whole sentence.
pub(super) fn of(error: &StreamError) -> Status {
    let status = match error {
        StreamError::Budget(source) | StreamError::Scan(ScanError::Memory { source, .. }) if source.may_pass() => {
            let message = format!("{error}; it may fit once others have ended: try again in {MEMORY_RETRY_MS} ms");
            exhausted(fitting(&message), MEMORY_RETRY_MS)
        }
        _ => Status::new(code(error), fitting(&error.to_string())),
    };
    match status.code() {
        // A person should look: this is our bug.
        Code::Internal => tracing::error!(%error, "internal error"),
        code => tracing::debug!(?code, %error, "request failed"),
    }
    status
}

/// A status whose sentence holds words of the client's.
pub(super) fn of_words(code: Code, message: &str) -> Status {
    Status::new(code, fitting(message))
}

/// The status of bytes that are no message.
pub(super) fn of_bytes(error: &DecodeError) -> Status {
    let code = match error {
        DecodeError::TooLarge { .. } => Code::ResourceExhausted,
        DecodeError::Json { .. } | DecodeError::Protobuf { .. } => Code::InvalidArgument,
    };
    Status::new(code, fitting(&error.to_string()))
}

/// The status of a call that is not answered.
pub(super) fn of_refusal(refused: &Refused) -> Status {
    let message = fitting(&refused.to_string());
    match refused {
        Refused::Anonymous { .. } | Refused::Scheme | Refused::UnknownToken | Refused::UnknownCertificate => {
            Status::unauthenticated(message)
        }
        Refused::Rate { retry_ms, .. } | Refused::Streams { retry_ms, .. } => exhausted(message, *retry_ms),
    }
}

/// A limit is reached for now: gRPC's own trailer says when to ask again.
pub(super) fn exhausted(message: String, retry_ms: u64) -> Status {
    let mut metadata = MetadataMap::new();
    metadata.insert(RETRY_PUSHBACK, retry_ms.into());
    Status::with_metadata(Code::ResourceExhausted, message, metadata)
}

/// A message that fits into a trailer: gRPC clients take some 8 KiB of metadata, in which every byte outside of ASCII
/// takes three. Names of files and columns may hold anything: what would steer a terminal is written out.
fn fitting(message: &str) -> String {
    const ENCODED_BYTES_MAX: usize = 4096;
    let clean: Cow<'_, str> = if message.contains(char::is_control) {
        message
            .chars()
            .map(|letter| if letter.is_control() { letter.escape_default().to_string() } else { letter.to_string() })
            .collect()
    } else {
        message.into()
    };
    let (mut encoded, message) = (0, clean.as_ref());
    for (place, letter) in message.char_indices() {
        encoded += if letter.is_ascii_graphic() || letter == ' ' { 1 } else { letter.len_utf8() * 3 };
        if encoded > ENCODED_BYTES_MAX {
            return format!("{}…", &message[..place]);
        }
    }
    message.to_owned()
}

fn code(error: &StreamError) -> Code {
    match error {
        StreamError::Plan(plan) => match plan {
            PlanError::NotFitted { .. } => Code::FailedPrecondition,
            PlanError::Field { .. }
            | PlanError::UnknownColumn { .. }
            | PlanError::Outputs(_)
            | PlanError::Chain { .. } => Code::InvalidArgument,
        },
        StreamError::Kernel(kernel) => match kernel {
            // Dictionaries of several row groups that do not fit one key type, say.
            KernelError::Arrow { .. } => Code::FailedPrecondition,
            // Another replica, or this one without the device, has the same batch.
            KernelError::Device { .. } => Code::Unavailable,
            _ => Code::InvalidArgument,
        },
        StreamError::Expression { .. } | StreamError::Rank { .. } | StreamError::ColumnsMissing { .. } => {
            Code::InvalidArgument
        }
        StreamError::Catalog(catalog) => match catalog {
            CatalogError::Unknown { .. } => Code::NotFound,
            CatalogError::Empty { .. } | CatalogError::SchemaDrift { .. } => Code::FailedPrecondition,
            CatalogError::Corrupt { .. } => Code::DataLoss,
            CatalogError::LinkOut { .. } => Code::PermissionDenied,
            CatalogError::Changed { .. } => Code::Aborted,
            CatalogError::Storage { source, .. } => store_code(source),
            CatalogError::Cpu(cpu) => cpu_code(cpu),
        },
        StreamError::Scan(scan) => match scan {
            ScanError::Corrupt { .. } => Code::DataLoss,
            ScanError::OutOfRange { .. } => Code::FailedPrecondition,
            ScanError::Changed { .. } => Code::Aborted,
            ScanError::Storage { source, .. } => store_code(source),
            ScanError::Memory { .. } => Code::ResourceExhausted,
            ScanError::Cpu(cpu) => cpu_code(cpu),
        },
        StreamError::Unlearnable { .. } | StreamError::NoRows { .. } | StreamError::InputDrift { .. } => {
            Code::FailedPrecondition
        }
        StreamError::Engine(engine) => match engine {
            EngineError::Memory(_) => Code::ResourceExhausted,
            EngineError::TooManyValues { .. } => Code::FailedPrecondition,
            EngineError::Stopped | EngineError::Spill { .. } => Code::Unavailable,
            EngineError::Aggregate(_) => Code::Internal,
        },
        StreamError::UnknownPlan { .. } => Code::NotFound,
        StreamError::BatchBytes { .. } | StreamError::Budget(_) => Code::ResourceExhausted,
        // The client goes on where it was as soon as it reads again.
        StreamError::State(_) | StreamError::Idle { .. } => Code::Unavailable,
        StreamError::Cpu(cpu) => cpu_code(cpu),
        StreamError::Arrow(_) | StreamError::Miscounted { .. } => Code::Internal,
    }
}

fn store_code(error: &StoreError) -> Code {
    // Who comes back with the same credentials meets the same.
    if error.is_refusal() { Code::FailedPrecondition } else { Code::Unavailable }
}

fn cpu_code(error: &CpuError) -> Code {
    match error {
        CpuError::Panicked(_) => Code::Internal,
        CpuError::Gone => Code::Unavailable,
    }
}

#[cfg(test)]
mod tests {
    use super::fitting;

    #[test]
    fn long_messages_are_cut_where_a_letter_ends() {
        assert_eq!(fitting("short"), "short");
        assert_eq!(fitting("a\0b\u{1b}[31m"), "a\\u{0}b\\u{1b}[31m");
        assert_eq!(fitting(&"x".repeat(9000)).chars().count(), 4097);
        assert_eq!(fitting(&"ü".repeat(9000)).chars().count(), 4096 / 6 + 1);
    }
}
