//! Error → reason → gRPC code: two exhaustive tables.

use std::borrow::Cow;

use forebay_catalog::{CatalogError, StoreError, view::ViewError};
use forebay_columns::{images::ImagesError, tokenizers::TokensError, udf::UdfError};
use forebay_engine::EngineError;
use forebay_expr::ExprError;
use forebay_kernels::KernelError;
use forebay_lake::LakeError;
use forebay_plan::PlanError;
use forebay_proto::{DecodeError, is_active, v1::Reason};
use forebay_runtime::{budget::BudgetError, cpu_pool::CpuError, error::Disclosure};
use forebay_scan::ScanError;
use forebay_stream::StreamError;
use tonic::{
    Code, Status,
    metadata::{BinaryMetadataValue, MetadataMap},
};

use crate::auth::AccessError;

/// The trailer with the milliseconds after which a client may retry (gRPC proposal A6).
const RETRY_PUSHBACK: &str = "grpc-retry-pushback-ms";

/// The trailer with what others than the caller may see of an error, from its producer to the access log, which removes it.
pub(super) const DISCLOSURE: &str = "forebay-disclosure-bin";

/// When memory may be free again.
const MEMORY_RETRY_MS: u64 = 1000;

/// The status of an error: its reason, and the whole message.
pub(super) fn of(error: &StreamError) -> Status {
    let reason = reason(error);
    let status = match reason {
        Reason::Overloaded => {
            let message = format!("{error}; it may fit once other streams end: try again in {MEMORY_RETRY_MS} ms");
            overloaded(&message, MEMORY_RETRY_MS)
        }
        _ => refusal(reason, &error.to_string()),
    };
    let disclosure = error.disclosure();
    if reason == Reason::Internal {
        // A bug of the server, which an operator should see.
        if disclosure.is_plain {
            tracing::error!(%error, "internal error");
        } else {
            tracing::error!("internal error; its text, which may have values of rows, is logged at level debug");
            tracing::debug!(%error, "internal error");
        }
    }
    disclosing(status, &disclosure)
}

/// The status with what others than the caller may see of it.
fn disclosing(mut status: Status, disclosure: &Disclosure) -> Status {
    // A text and a flag always have a JSON form.
    let encoded = serde_json::to_vec(disclosure).unwrap_or_default();
    status.metadata_mut().insert_bin(DISCLOSURE, BinaryMetadataValue::from_bytes(&encoded));
    status
}

/// What others than the caller may see of a status: nothing, unless its producer says so.
pub(super) fn disclosure_of(status: &Status) -> Disclosure {
    let encoded = status.metadata().get_bin(DISCLOSURE).and_then(|encoded| encoded.to_bytes().ok());
    encoded.and_then(|encoded| serde_json::from_slice(&encoded).ok()).unwrap_or_default()
}

/// The status for a reason: its code, and a message that begins with its name.
pub(super) fn refusal(reason: Reason, message: &str) -> Status {
    Status::new(code(reason), reason.prefix(&fitting(message)))
}

/// The status of a limit that is reached for now. A trailer says when to retry.
pub(super) fn overloaded(message: &str, retry_ms: u64) -> Status {
    let mut metadata = MetadataMap::new();
    metadata.insert(RETRY_PUSHBACK, retry_ms.into());
    let status =
        Status::with_metadata(code(Reason::Overloaded), Reason::Overloaded.prefix(&fitting(message)), metadata);
    disclosing(status, &Disclosure::plain())
}

/// The status of bytes that are not a message.
pub(super) fn of_bytes(error: &DecodeError) -> Status {
    let reason = match error {
        DecodeError::TooLarge { .. } => Reason::Limit,
        DecodeError::Json { .. } | DecodeError::Protobuf { .. } => Reason::InvalidRequest,
    };
    refusal(reason, &error.to_string())
}

/// The status of a call that is refused to its caller.
pub(super) fn of_refusal(error: &AccessError) -> Status {
    let message = error.to_string();
    let status = match error {
        AccessError::Anonymous { .. }
        | AccessError::Scheme
        | AccessError::UnknownToken
        | AccessError::UnknownCertificate => refusal(Reason::Unauthenticated, &message),
        AccessError::Rate { retry_ms, .. } | AccessError::Streams { retry_ms, .. } => overloaded(&message, *retry_ms),
    };
    disclosing(status, &Disclosure::plain())
}

/// The same status with another text, which is made from its own; the reason stays.
pub(super) fn reworded(status: &Status, text: impl FnOnce(&str) -> String) -> Status {
    let (reason, found) = reason_of(status);
    let details = status.details().to_vec().into();
    let message = reason.prefix(&text(found));
    Status::with_details_and_metadata(status.code(), message, details, status.metadata().clone())
}

/// The reason of a status and its text. A status of the gRPC library gets its code's reason.
pub(super) fn reason_of(status: &Status) -> (Reason, &str) {
    let (reason, text) = Reason::split(status.message());
    if reason != Reason::Unspecified {
        return (reason, text);
    }
    let reason = match status.code() {
        Code::InvalidArgument | Code::OutOfRange | Code::AlreadyExists | Code::FailedPrecondition => {
            Reason::InvalidRequest
        }
        Code::NotFound => Reason::UnknownDataset,
        Code::Aborted => Reason::SnapshotChanged,
        Code::DataLoss => Reason::CorruptData,
        Code::ResourceExhausted => Reason::Limit,
        Code::Unavailable => Reason::Interrupted,
        Code::DeadlineExceeded => Reason::Deadline,
        Code::Cancelled => Reason::Cancelled,
        Code::Unauthenticated => Reason::Unauthenticated,
        Code::PermissionDenied => Reason::PermissionDenied,
        Code::Unimplemented => Reason::Unimplemented,
        Code::Ok | Code::Unknown | Code::Internal => Reason::Internal,
    };
    (reason, text)
}

/// A message that fits into a trailer. gRPC clients accept some 8 KiB of metadata, in which every byte outside of ASCII
/// takes three. Control characters and marks of direction, which names of files and columns
/// may contain, are escaped.
fn fitting(message: &str) -> String {
    const ENCODED_BYTES_MAX: usize = 4096;
    let clean: Cow<'_, str> = if message.contains(is_active) {
        message
            .chars()
            .map(|letter| if is_active(letter) { letter.escape_default().to_string() } else { letter.to_string() })
            .collect()
    } else {
        message.into()
    };
    let (mut encoded, message) = (0, clean.as_ref());
    for (index, letter) in message.char_indices() {
        encoded += if letter.is_ascii_graphic() || letter == ' ' { 1 } else { letter.len_utf8() * 3 };
        if encoded > ENCODED_BYTES_MAX {
            return format!("{}…", &message[..index]);
        }
    }
    message.to_owned()
}

/// The gRPC code of each reason.
fn code(reason: Reason) -> Code {
    match reason {
        Reason::InvalidRequest | Reason::InvalidValue | Reason::OrderChanged => Code::InvalidArgument,
        Reason::UnknownDataset | Reason::UnknownPlan => Code::NotFound,
        Reason::NotFitted
        | Reason::NotFittable
        | Reason::EmptyDataset
        | Reason::SchemaDrift
        | Reason::Unrepresentable
        | Reason::StoreRefused
        | Reason::ViewFailed
        | Reason::UdfFailed
        | Reason::TokenizerChanged
        | Reason::IncompatibleVersion => Code::FailedPrecondition,
        Reason::SnapshotChanged => Code::Aborted,
        Reason::CorruptData => Code::DataLoss,
        Reason::Limit | Reason::Overloaded => Code::ResourceExhausted,
        Reason::ShuttingDown | Reason::StoreUnavailable | Reason::Interrupted | Reason::UdfUnavailable => {
            Code::Unavailable
        }
        Reason::Deadline => Code::DeadlineExceeded,
        Reason::Cancelled => Code::Cancelled,
        Reason::Unauthenticated => Code::Unauthenticated,
        Reason::PermissionDenied => Code::PermissionDenied,
        Reason::Unimplemented => Code::Unimplemented,
        Reason::Unspecified | Reason::Internal => Code::Internal,
    }
}

fn table_reason(error: &LakeError) -> Reason {
    match error {
        LakeError::NotATable(_) | LakeError::NoVersion(_) => Reason::EmptyDataset,
        LakeError::Unsupported(_) | LakeError::NotBuilt => Reason::Unimplemented,
        LakeError::Gone(_) => Reason::SnapshotChanged,
        LakeError::Corrupt(_) => Reason::CorruptData,
        LakeError::Storage { .. } => Reason::StoreUnavailable,
    }
}

fn reason(error: &StreamError) -> Reason {
    match error {
        StreamError::Plan(plan) => match plan {
            PlanError::NotFitted { .. } => Reason::NotFitted,
            PlanError::OrderChanged { .. } => Reason::OrderChanged,
            PlanError::TakeRows { .. } => Reason::Limit,
            PlanError::Field { .. }
            | PlanError::UnknownColumn { .. }
            | PlanError::Outputs(_)
            | PlanError::Chain { .. } => Reason::InvalidRequest,
        },
        StreamError::Kernel(kernel) => match kernel {
            // Dictionaries of several row groups that do not fit one key type, say.
            KernelError::Arrow { .. } => Reason::Unrepresentable,
            // Another replica, or this one without the device, has the same batch.
            KernelError::Device { .. } => Reason::Interrupted,
            _ => Reason::InvalidValue,
        },
        StreamError::Budget(source)
        | StreamError::Memory { source, .. }
        | StreamError::Expression { source: ExprError::Memory { source, .. }, .. } => memory_reason(source),
        StreamError::Expression { .. } | StreamError::Rank { .. } | StreamError::ColumnsMissing { .. } => {
            Reason::InvalidRequest
        }
        StreamError::Catalog(catalog) => catalog_reason(catalog),
        StreamError::Scan(scan) => match scan {
            ScanError::Corrupt { .. } => Reason::CorruptData,
            ScanError::OutOfRange { .. } => Reason::Unrepresentable,
            ScanError::Changed { .. } => Reason::SnapshotChanged,
            ScanError::Storage { source, .. } => store_reason(source),
            ScanError::Memory { source, .. } => memory_reason(source),
            ScanError::Cpu(cpu) => cpu_reason(cpu),
        },
        StreamError::InputDrift { .. } => Reason::SchemaDrift,
        StreamError::NoRows { .. } | StreamError::NoSourceRows { .. } => Reason::EmptyDataset,
        StreamError::Unlearnable { .. } => Reason::NotFittable,
        StreamError::Engine(engine) => match engine {
            EngineError::Memory(_) => Reason::Limit,
            EngineError::Budget(_) => Reason::Overloaded,
            EngineError::TooManyValues { .. } => Reason::NotFittable,
            EngineError::Stopped => Reason::ShuttingDown,
            EngineError::Spill { .. } => Reason::Interrupted,
            EngineError::Aggregate(_) => Reason::Internal,
            EngineError::Cpu(cpu) => cpu_reason(cpu),
        },
        StreamError::UnknownPlan { .. } => Reason::UnknownPlan,
        StreamError::BatchBytes { .. } | StreamError::Groups { .. } | StreamError::PlansFull(_) => Reason::Limit,
        StreamError::State(state) if state.is_refused() => Reason::StoreRefused,
        StreamError::State(state) if state.is_unavailable() => Reason::StoreUnavailable,
        // The client resumes where it was as soon as it reads again.
        StreamError::State(_) | StreamError::Idle { .. } | StreamError::Paused(_) | StreamError::Elsewhere(_) => {
            Reason::Interrupted
        }
        StreamError::Cpu(cpu) => cpu_reason(cpu),
        StreamError::Udf { source, .. } => udf_reason(source),
        StreamError::Tokens { source, .. } => tokens_reason(source),
        StreamError::Images { source, .. } => images_reason(source),
        StreamError::Shared(error) => reason(error),
        StreamError::Source { source, .. } => reason(source),
        StreamError::SourceNotFitted { .. } => Reason::NotFitted,
        StreamError::SourcesChanged { .. } => Reason::SnapshotChanged,
        StreamError::Arrow(_) | StreamError::Miscounted { .. } => Reason::Internal,
    }
}

fn catalog_reason(error: &CatalogError) -> Reason {
    match error {
        CatalogError::Unknown { .. } => Reason::UnknownDataset,
        CatalogError::Empty { .. } => Reason::EmptyDataset,
        CatalogError::SchemaDrift { .. } | CatalogError::PinnedDrift { .. } | CatalogError::Partition { .. } => {
            Reason::SchemaDrift
        }
        CatalogError::Corrupt { .. } => Reason::CorruptData,
        CatalogError::Unserved { .. } => Reason::Unimplemented,
        CatalogError::LinkOut { .. } => Reason::PermissionDenied,
        CatalogError::Changed { .. } | CatalogError::Gone { .. } => Reason::SnapshotChanged,
        CatalogError::Table { source, .. } => table_reason(source),
        CatalogError::TooManyFiles { .. } => Reason::Limit,
        CatalogError::Unsent { .. } => Reason::InvalidRequest,
        CatalogError::Lookup { source, .. } if source.is_missing() => Reason::EmptyDataset,
        CatalogError::Lookup { source, .. } | CatalogError::Storage { source, .. } => store_reason(source),
        CatalogError::View { source, .. } => view_reason(source),
        CatalogError::Cpu(cpu) => cpu_reason(cpu),
    }
}

fn memory_reason(error: &BudgetError) -> Reason {
    if error.may_pass() { Reason::Overloaded } else { Reason::Limit }
}

fn view_reason(error: &ViewError) -> Reason {
    match error {
        ViewError::NotInstalled | ViewError::Program { .. } | ViewError::Failed(_) | ViewError::NotRun => {
            Reason::ViewFailed
        }
        ViewError::Memory(source) => memory_reason(source),
        ViewError::State { .. } => Reason::Interrupted,
        ViewError::Stopped => Reason::ShuttingDown,
    }
}

fn udf_reason(error: &UdfError) -> Reason {
    match error {
        UdfError::Unreachable { .. } => Reason::UdfUnavailable,
        UdfError::TimedOut { .. }
        | UdfError::Raised { .. }
        | UdfError::Died { .. }
        | UdfError::Result { .. }
        | UdfError::Changed { .. }
        | UdfError::Protocol { .. } => Reason::UdfFailed,
        UdfError::Unknown { .. } => Reason::InvalidRequest,
        UdfError::TooLarge { .. } => Reason::Limit,
        UdfError::Memory { source, .. } => memory_reason(source),
        UdfError::Cpu(cpu) => cpu_reason(cpu),
    }
}

fn images_reason(error: &ImagesError) -> Reason {
    match error {
        ImagesError::Image { .. } => Reason::InvalidValue,
        ImagesError::Memory { source, .. } | ImagesError::Tensors { source, .. } => memory_reason(source),
        ImagesError::Arrow(_) => Reason::Internal,
        ImagesError::Cpu(cpu) => cpu_reason(cpu),
    }
}

fn tokens_reason(error: &TokensError) -> Reason {
    match error {
        TokensError::Changed { .. } => Reason::TokenizerChanged,
        TokensError::Text { .. } => Reason::InvalidValue,
        TokensError::Memory { source, .. } => memory_reason(source),
        TokensError::Cpu(cpu) => cpu_reason(cpu),
    }
}

fn store_reason(error: &StoreError) -> Reason {
    // A retry with the same credentials is refused again.
    if error.is_denied() { Reason::StoreRefused } else { Reason::StoreUnavailable }
}

fn cpu_reason(error: &CpuError) -> Reason {
    match error {
        CpuError::Panicked(_) => Reason::Internal,
        CpuError::Gone => Reason::Interrupted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_match_the_comments_of_the_proto_file() {
        let mut documented = None;
        for line in include_str!("../../../proto/forebay/v1/reason.proto").lines().map(str::trim) {
            if let Some((code, _)) = line.strip_prefix("// ").and_then(|comment| comment.split_once(": ")) {
                documented = Some(code.replace('_', "").to_lowercase());
            } else if let Some(reason) = line.split_once(" = ").and_then(|(name, _)| Reason::from_str_name(name))
                && reason != Reason::Unspecified
            {
                assert_eq!(documented.take(), Some(format!("{:?}", code(reason)).to_lowercase()), "{reason}");
            }
        }
    }

    #[test]
    fn reworded_keeps_the_reason() {
        let status = refusal(Reason::SchemaDrift, "schema drift: column \"fit\"");
        let reworded = reworded(&status, |text| format!("batch 3: {text}"));
        assert_eq!(reworded.code(), Code::FailedPrecondition);
        assert_eq!(reworded.message(), "SCHEMA_DRIFT: batch 3: schema drift: column \"fit\"");
    }

    #[test]
    fn others_than_the_caller_see_nothing_unless_the_producer_says_so() {
        let lossy = KernelError::Lossy {
            output: "o".to_owned(),
            column: "card".to_owned(),
            row: 3,
            value: "4111".to_owned(),
            dtype: "INT32",
        };
        let status = reworded(&of(&lossy.into()), str::to_owned);
        let want = Disclosure { column: Some("card".to_owned()), is_plain: false };
        assert_eq!(disclosure_of(&status), want);
        assert_eq!(disclosure_of(&refusal(Reason::InvalidRequest, "name = 'x'")), Disclosure::hidden());
        let rank = StreamError::Rank { rank: 2, world_size: 2 };
        assert_eq!(disclosure_of(&of(&rank)), Disclosure::plain());
    }

    #[test]
    fn reworded_adds_the_reason_of_a_code() {
        let reworded = reworded(&Status::unimplemented("DoPut"), str::to_owned);
        assert_eq!((reworded.code(), reworded.message()), (Code::Unimplemented, "UNIMPLEMENTED: DoPut"));
    }

    #[test]
    fn truncates_long_messages_at_a_character() {
        assert_eq!(fitting("short"), "short");
        assert_eq!(fitting("a\0b\u{1b}[31m"), "a\\u{0}b\\u{1b}[31m");
        assert_eq!(fitting(&"x".repeat(9000)).chars().count(), 4097);
        assert_eq!(fitting(&"ü".repeat(9000)).chars().count(), 4096 / 6 + 1);
    }
}
