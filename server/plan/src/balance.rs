//! The classes of a balanced request: the field `balance`.

use forebay_proto::v1::{self, group_key::Key};

use super::error::PlanError;

/// The column whose values are drawn equally often, or in proportion to weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Balance {
    /// The column.
    pub by: String,
    /// Values with another weight than 1.
    pub weights: Vec<(Key, f64)>,
}

impl Balance {
    /// The balance of a request; none if it has none.
    pub fn check(message: &v1::StreamRequest) -> Result<Option<Self>, PlanError> {
        let Some(balance) = &message.balance else { return Ok(None) };
        if balance.by.is_empty() {
            return Err(PlanError::field("balance.by", "missing: expected the column of the classes"));
        }
        let others = [
            ("group_by", !message.group_by.is_empty(), "a group has one value of its column"),
            ("sources", !message.sources.is_empty(), "the weights of a mixture are those of its sources"),
        ];
        if let Some((field, _, reason)) = others.iter().find(|(_, is_set, _)| *is_set) {
            return Err(PlanError::field("balance", format!("cannot be combined with {field}: {reason}")));
        }
        let weights = balance.weights.iter().enumerate().map(|(index, class)| {
            let path = |field: &str| format!("balance.weights[{index}].{field}");
            let key =
                class.key.as_ref().and_then(|key| key.key.clone()).ok_or_else(|| {
                    PlanError::field(path("key"), "missing: expected a value, such as {\"integer\": 1}")
                })?;
            if !class.weight.is_finite() || class.weight < 0.0 {
                let reason = format!("{} is not a weight: expected a finite number, at least 0", class.weight);
                return Err(PlanError::field(path("weight"), reason));
            }
            Ok((key, class.weight))
        });
        Ok(Some(Self { by: balance.by.clone(), weights: weights.collect::<Result<_, _>>()? }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(weights: Vec<v1::ClassWeight>) -> v1::StreamRequest {
        v1::StreamRequest { balance: Some(v1::Balance { by: "label".into(), weights }), ..Default::default() }
    }

    fn weight(key: Option<Key>, weight: f64) -> v1::ClassWeight {
        v1::ClassWeight { key: key.map(|key| v1::GroupKey { key: Some(key) }), weight }
    }

    #[test]
    fn a_balance_names_a_column_and_weights() {
        assert_eq!(Balance::check(&v1::StreamRequest::default()).unwrap(), None);
        let found = Balance::check(&request(vec![weight(Some(Key::Integer(1)), 0.5)])).unwrap().unwrap();
        assert_eq!(found, Balance { by: "label".into(), weights: vec![(Key::Integer(1), 0.5)] });
    }

    #[test]
    fn wrong_balances_name_the_field() {
        let error = |message: &v1::StreamRequest| Balance::check(message).unwrap_err().to_string();
        let empty = v1::StreamRequest { balance: Some(v1::Balance::default()), ..Default::default() };
        assert!(error(&empty).starts_with("balance.by: missing"));
        let grouped = v1::StreamRequest { group_by: "a".into(), ..request(Vec::new()) };
        assert!(error(&grouped).starts_with("balance: cannot be combined with group_by"));
        let mixed = v1::StreamRequest { sources: vec![v1::MixtureSource::default()], ..request(Vec::new()) };
        assert!(error(&mixed).starts_with("balance: cannot be combined with sources"));
        assert!(error(&request(vec![weight(None, 1.0)])).starts_with("balance.weights[0].key: missing"));
        for wrong in [-1.0, f64::NAN, f64::INFINITY] {
            let message = request(vec![weight(Some(Key::Null(true)), 1.0), weight(Some(Key::Integer(1)), wrong)]);
            assert!(error(&message).starts_with("balance.weights[1].weight: "));
        }
    }
}
