//! What is stored, and under which names.

use std::time::SystemTime;

/// Folder of spilled data.
pub(super) const SPILL_FOLDER: &str = "spill";

/// Folder of results of views.
pub(super) const VIEW_FOLDER: &str = "views";

/// The kind of what is stored; each has a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Fitted plans, by plan id, as protobuf: a vocabulary of megabytes loads ten times as fast as from JSON.
    Plan,
    /// Plans that clients sent in requests and that are kept so that tickets are short, in the same form.
    InlinePlan,
    /// The columns that a fitted plan reads and their loaded types, by plan id, as JSON.
    PlanColumns,
    /// The datasets of a plan and when it was stored, by plan id, as JSON.
    PlanRecord,
    /// Rows that pass a filter, per row group, by snapshot and filter, as a digest and protobuf.
    RowCounts,
    /// Rows of each group, per row group, by snapshot, filter and column, as a digest and protobuf.
    GroupCounts,
    /// What columns hold, by snapshot, columns and filter, as a digest and protobuf.
    Description,
    /// The id of the fitted plan, by snapshot, sample and plan before the fit, as a digest and text.
    Fit,
}

/// The id, size and time of what is stored.
#[derive(Clone, Debug)]
pub struct StateEntry {
    /// Its id.
    pub id: String,
    /// Its size.
    pub bytes: u64,
    /// The time at which it was written or used.
    pub used: SystemTime,
}

/// The size of the state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateUsage {
    /// Bytes of all files or objects, without spilled ones.
    pub bytes: u64,
    /// Number of plans.
    pub plans: usize,
}

/// Returns whether a text is a valid id: lowercase hexadecimal digits and dashes, so never a path.
pub fn is_id(text: &str) -> bool {
    !text.is_empty() && text.len() <= 160 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-'))
}

// === impl Kind ===

impl Kind {
    /// The kinds of plans, by plan id.
    pub const PLANS: [Self; 2] = [Self::Plan, Self::InlinePlan];

    pub(super) const ALL: [Self; 8] = [
        Self::Plan,
        Self::InlinePlan,
        Self::PlanColumns,
        Self::PlanRecord,
        Self::RowCounts,
        Self::GroupCounts,
        Self::Description,
        Self::Fit,
    ];

    /// The path of a file or object below the root.
    pub(super) fn file_name(self, id: &str) -> String {
        debug_assert!(is_id(id), "ids are checked where they are received");
        format!("{}/{id}.{}", self.folder(), self.extension())
    }

    pub(super) fn folder(self) -> &'static str {
        match self {
            Self::Plan => "plans",
            Self::InlinePlan => "inline-plans",
            Self::PlanColumns => "plan-columns",
            Self::PlanRecord => "plan-records",
            Self::RowCounts => "row-counts",
            Self::GroupCounts => "group-counts",
            Self::Description => "descriptions",
            Self::Fit => "fits",
        }
    }

    pub(super) fn extension(self) -> &'static str {
        match self {
            Self::Plan | Self::InlinePlan | Self::RowCounts | Self::GroupCounts | Self::Description => "binpb",
            Self::PlanColumns | Self::PlanRecord => "json",
            Self::Fit => "txt",
        }
    }
}
