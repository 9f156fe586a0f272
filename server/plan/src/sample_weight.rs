//! The weights of a request's rows: the field `sample_weight`.

use std::sync::Arc;

use forebay_proto::v1;

use super::error::PlanError;

/// The column of the weights, which no plan has.
pub const SAMPLE_WEIGHT: &str = "__sample_weight";

/// The expression of a request's weights; none if it has none.
pub(super) fn check(message: &v1::StreamRequest) -> Result<Option<Arc<str>>, PlanError> {
    let expression = message.sample_weight.trim();
    if expression.is_empty() {
        return Ok(None);
    }
    let others = [
        ("balance", message.balance.is_some(), "its weights are those of classes"),
        ("group_by", !message.group_by.is_empty(), "filter the rows of a group instead"),
        ("sources", !message.sources.is_empty(), "the weights of a mixture are those of its sources"),
        ("window", message.window.is_some(), "a window has several rows"),
    ];
    match others.iter().find(|(_, is_set, _)| *is_set) {
        Some((field, _, reason)) => {
            Err(PlanError::field("sample_weight", format!("cannot be combined with {field}: {reason}")))
        }
        None => Ok(Some(expression.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_exclude_what_draws_rows_otherwise() {
        let request = |change: fn(&mut v1::StreamRequest)| {
            let mut message = v1::StreamRequest { sample_weight: " a + 1 ".into(), ..Default::default() };
            change(&mut message);
            check(&message).map_err(|error| error.to_string())
        };
        assert_eq!(request(|_| ()).unwrap().as_deref(), Some("a + 1"));
        assert_eq!(request(|message| message.sample_weight.clear()).unwrap(), None);
        for (change, field) in [
            ((|message| message.balance = Some(v1::Balance::default())) as fn(&mut v1::StreamRequest), "balance"),
            (|message| message.group_by = "k".into(), "group_by"),
            (|message| message.sources.push(v1::MixtureSource::default()), "sources"),
            (|message| message.window = Some(v1::Window::default()), "window"),
        ] {
            let error = request(change).unwrap_err();
            assert!(error.contains(&format!("sample_weight: cannot be combined with {field}")), "{error}");
        }
    }
}
