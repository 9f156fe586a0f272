//! What is known about a call, for its line in the access log. Texts of clients are truncated.

use std::sync::Arc;

use forebay_order::SOURCES_MAX;
use forebay_proto::v1;
use forebay_runtime::metrics::Stage;

use crate::auth::{ANONYMOUS, Caller, UNKNOWN};

/// The longest name or id of a client, in characters.
const NAME_LENGTH_MAX: usize = 128;

/// What is known about a call. Unknown facts are left out of its line.
#[derive(Debug)]
pub(super) struct CallFacts {
    /// The caller's name.
    pub principal: Arc<str>,
    /// The same as a label of metrics: one of the configured principals, or a constant.
    pub principal_label: Arc<str>,
    pub peer: String,
    /// Name of an action that this server has.
    pub action: Option<&'static str>,
    pub dataset: Option<String>,
    pub plan_id: Option<String>,
    pub rank: Option<u64>,
    pub epoch: Option<u64>,
    /// The next position of a stream; for other calls, the one that was requested.
    pub position: Option<u64>,
    pub batches: Option<u64>,
    pub rows: Option<u64>,
    /// Seconds that a stream spent in each stage.
    pub stage_seconds: Option<[f64; Stage::ALL.len()]>,
}

// === impl CallFacts ===

impl Default for CallFacts {
    fn default() -> Self {
        Self {
            principal: UNKNOWN.into(),
            principal_label: UNKNOWN.into(),
            peer: String::new(),
            action: None,
            dataset: None,
            plan_id: None,
            rank: None,
            epoch: None,
            position: None,
            batches: None,
            rows: None,
            stage_seconds: None,
        }
    }
}

impl CallFacts {
    /// Who makes the call: a principal, or the address of any other client.
    pub(super) fn source(&self) -> &str {
        match &*self.principal_label {
            ANONYMOUS | UNKNOWN => self.peer.rsplit_once(':').map_or(&*self.peer, |(address, _port)| address),
            principal => principal,
        }
    }

    /// Sets the caller.
    pub(super) fn set_caller(&mut self, caller: &Caller) {
        self.principal = if caller.is_authenticated() { Arc::clone(caller.name()) } else { ANONYMOUS.into() };
        self.principal_label = caller.principal_name().map_or_else(|| ANONYMOUS.into(), Arc::clone);
    }

    /// Sets the principal of a call that is refused to it.
    pub(super) fn set_principal(&mut self, name: &Arc<str>) {
        (self.principal, self.principal_label) = (Arc::clone(name), Arc::clone(name));
    }

    /// Sets the dataset, unless it is empty.
    pub(super) fn set_dataset(&mut self, name: &str) {
        self.dataset = truncated(name, NAME_LENGTH_MAX).or_else(|| self.dataset.take());
    }

    /// Sets the plan, unless it is empty.
    pub(super) fn set_plan_id(&mut self, id: &str) {
        self.plan_id = truncated(id, NAME_LENGTH_MAX).or_else(|| self.plan_id.take());
    }

    /// Counts a batch that an action returns.
    pub(super) fn add_batch(&mut self, rows: u64) {
        self.batches = Some(self.batches.unwrap_or(0) + 1);
        self.rows = Some(self.rows.unwrap_or(0) + rows);
    }

    /// Sets what a request names.
    pub(super) fn set_request(&mut self, request: &v1::StreamRequest) {
        self.set_dataset(&request.dataset);
        if !request.sources.is_empty() {
            // Truncated to the length of a name, of which this many are more than enough.
            let names: Vec<&str> = request.sources.iter().take(SOURCES_MAX).map(|source| &*source.dataset).collect();
            self.set_dataset(&names.join(","));
        }
        self.set_plan_id(&request.plan_id);
        self.epoch = Some(request.epoch);
        self.position = Some(request.start_position);
    }
}

/// The text, up to a length; none if it is empty.
pub(super) fn truncated(text: &str, length_max: usize) -> Option<String> {
    if text.is_empty() {
        return None;
    }
    match text.char_indices().nth(length_max) {
        Some((end, _)) => Some(format!("{}…", &text[..end])),
        None => Some(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_text_is_truncated_and_empty_text_is_left_out() {
        let mut facts = CallFacts::default();
        facts.set_dataset(&"ü".repeat(1000));
        assert_eq!(facts.dataset.as_ref().map(|name| name.chars().count()), Some(NAME_LENGTH_MAX + 1));
        facts.set_request(&v1::StreamRequest { dataset: "flights".to_owned(), ..v1::StreamRequest::default() });
        assert_eq!((facts.dataset.as_deref(), facts.plan_id.as_deref()), (Some("flights"), None));
        facts.peer = "[::1]:99".to_owned();
        assert_eq!(facts.source(), "[::1]");
        facts.set_principal(&"trainer".into());
        assert_eq!(facts.source(), "trainer");
        facts.set_plan_id("p1");
        facts.set_plan_id("");
        assert_eq!(facts.plan_id.as_deref(), Some("p1"));
    }
}
