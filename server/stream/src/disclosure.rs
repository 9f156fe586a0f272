//! What of each error others than the caller may see. An error that is added must be added here, too.

use forebay_catalog::{CatalogError, view::ViewError};
use forebay_columns::{images::ImagesError, tokenizers::TokensError, udf::UdfError};
use forebay_engine::EngineError;
use forebay_kernels::KernelError;
use forebay_plan::PlanError;
use forebay_runtime::{cpu_pool::CpuError, error::Disclosure};
use forebay_scan::ScanError;

use super::error::StreamError;

impl StreamError {
    /// What others than the caller may see.
    pub fn disclosure(&self) -> Disclosure {
        match self {
            Self::Plan(error) => of_plan(error),
            Self::Catalog(error) => of_catalog(error),
            Self::Scan(error) => of_scan(error),
            Self::Kernel(error) => of_kernel(error),
            Self::Engine(error) => of_engine(error),
            Self::Udf { source, .. } => of_udf(source),
            Self::Tokens { source, .. } => of_tokens(source),
            Self::Images { source, .. } => of_images(source),
            Self::Cpu(error) => of_cpu(error),
            Self::Shared(error) => error.disclosure(),
            Self::Source { source, .. } => source.disclosure(),
            Self::InputDrift { column, .. } => Disclosure::plain().of_column(column),
            Self::NoRows { .. }
            | Self::Rank { .. }
            | Self::BatchBytes { .. }
            | Self::Idle { .. }
            | Self::Memory { .. }
            | Self::Budget(_)
            | Self::Paused(_)
            | Self::State(_)
            | Self::PlansFull(_)
            | Self::NoSourceRows { .. }
            | Self::SourcesChanged { .. }
            | Self::Miscounted { .. } => Disclosure::plain(),
            // Texts of the request, of rows, and ids of plans.
            Self::Expression { .. }
            | Self::Unlearnable { .. }
            | Self::UnknownPlan { .. }
            | Self::Groups { .. }
            | Self::ColumnsMissing { .. }
            | Self::SourceNotFitted { .. }
            | Self::Elsewhere(_)
            | Self::Arrow(_) => Disclosure::hidden(),
        }
    }
}

fn of_plan(error: &PlanError) -> Disclosure {
    match error {
        PlanError::TakeRows { .. } | PlanError::NotFitted { .. } | PlanError::OrderChanged { .. } => {
            Disclosure::plain()
        }
        // SQL reads a literal in double quotes as the name of a column.
        PlanError::UnknownColumn { .. } | PlanError::Field { .. } | PlanError::Outputs(_) | PlanError::Chain { .. } => {
            Disclosure::hidden()
        }
    }
}

fn of_catalog(error: &CatalogError) -> Disclosure {
    match error {
        CatalogError::SchemaDrift { column, .. } | CatalogError::PinnedDrift { column, .. } => {
            Disclosure::plain().of_column(column)
        }
        CatalogError::Partition { column, .. } => Disclosure::hidden().of_column(column),
        CatalogError::View { source, .. } => match source {
            ViewError::Failed(_) => Disclosure::hidden(),
            ViewError::NotInstalled
            | ViewError::Program { .. }
            | ViewError::Memory(_)
            | ViewError::State { .. }
            | ViewError::NotRun
            | ViewError::Stopped => Disclosure::plain(),
        },
        CatalogError::Cpu(error) => of_cpu(error),
        CatalogError::Unknown { .. }
        | CatalogError::Empty { .. }
        | CatalogError::Lookup { .. }
        | CatalogError::Table { .. }
        | CatalogError::Gone { .. }
        | CatalogError::Corrupt { .. }
        | CatalogError::Unserved { .. }
        | CatalogError::LinkOut { .. }
        | CatalogError::Changed { .. }
        | CatalogError::TooManyFiles { .. }
        | CatalogError::Storage { .. }
        | CatalogError::Unsent { .. } => Disclosure::plain(),
    }
}

fn of_scan(error: &ScanError) -> Disclosure {
    match error {
        ScanError::OutOfRange { column, .. } => Disclosure::hidden().of_column(column),
        ScanError::Cpu(error) => of_cpu(error),
        ScanError::Corrupt { .. }
        | ScanError::Changed { .. }
        | ScanError::Storage { .. }
        | ScanError::Memory { .. } => Disclosure::plain(),
    }
}

fn of_kernel(error: &KernelError) -> Disclosure {
    match error {
        KernelError::MissingColumn { column }
        | KernelError::ColumnType { column, .. }
        | KernelError::NullElement { column, .. }
        | KernelError::Unmapped { column, .. }
        | KernelError::ByteCount { column, .. } => Disclosure::plain().of_column(column),
        // The advice about a null may repeat an expression of the plan.
        KernelError::Null { column, .. }
        | KernelError::Lossy { column, .. }
        | KernelError::HistoryOverflow { column, .. }
        | KernelError::OneHotIndex { column, .. } => Disclosure::hidden().of_column(column),
        KernelError::OutOfRange { .. } | KernelError::Full { .. } | KernelError::Device { .. } => Disclosure::plain(),
        KernelError::Arrow { .. } => Disclosure::hidden(),
    }
}

fn of_engine(error: &EngineError) -> Disclosure {
    match error {
        EngineError::Memory(_)
        | EngineError::Budget(_)
        | EngineError::Spill { .. }
        | EngineError::TooManyValues { .. }
        | EngineError::Stopped => Disclosure::plain(),
        EngineError::Aggregate(_) => Disclosure::hidden(),
        EngineError::Cpu(error) => of_cpu(error),
    }
}

fn of_udf(error: &UdfError) -> Disclosure {
    match error {
        UdfError::Unreachable { .. }
        | UdfError::TimedOut { .. }
        | UdfError::Changed { .. }
        | UdfError::TooLarge { .. }
        | UdfError::Memory { .. } => Disclosure::plain(),
        UdfError::Cpu(error) => of_cpu(error),
        UdfError::Unknown { .. }
        | UdfError::Raised { .. }
        | UdfError::Died { .. }
        | UdfError::Result { .. }
        | UdfError::Protocol { .. } => Disclosure::hidden(),
    }
}

fn of_tokens(error: &TokensError) -> Disclosure {
    match error {
        TokensError::Changed { .. } | TokensError::Memory { .. } => Disclosure::plain(),
        TokensError::Text { column, .. } => Disclosure::hidden().of_column(column),
        TokensError::Cpu(error) => of_cpu(error),
    }
}

fn of_images(error: &ImagesError) -> Disclosure {
    match error {
        ImagesError::Memory { column, .. } | ImagesError::Tensors { column, .. } => {
            Disclosure::plain().of_column(column)
        }
        ImagesError::Image { column, .. } => Disclosure::hidden().of_column(column),
        ImagesError::Arrow(_) => Disclosure::hidden(),
        ImagesError::Cpu(error) => of_cpu(error),
    }
}

fn of_cpu(error: &CpuError) -> Disclosure {
    match error {
        CpuError::Gone => Disclosure::plain(),
        // A panic may quote the bytes that it failed on.
        CpuError::Panicked(_) => Disclosure::hidden(),
    }
}
