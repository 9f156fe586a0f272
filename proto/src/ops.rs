//! What plan.proto's options say of each op: its name, the bounds of its parameters, and the indices that it computes.
//!
//! The functions of `gen/ops.rs` are generated from the options; what an op computes is the kernels' matter.

use crate::v1::{self, op::Op as OneOp};

include!("gen/ops.rs");

/// A parameter whose value is not allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The parameter; none if several do not fit together.
    pub parameter: Option<&'static str>,
    /// What is wrong, and what is allowed.
    pub reason: String,
}

fn whole(parameter: &'static str, value: i128, least: i128, most: i128) -> Option<Problem> {
    let reason = || format!("must be from {least} to {most}, not {value}");
    (!(least..=most).contains(&value)).then(|| Problem { parameter: Some(parameter), reason: reason() })
}

fn number(parameter: &'static str, value: f64, low: f64, high: f64) -> Option<Problem> {
    if value.is_finite() && (low..=high).contains(&value) {
        return None;
    }
    let allowed = if high.is_finite() { format!("from {low} to {high}") } else { format!("{low} or more, and finite") };
    Some(Problem { parameter: Some(parameter), reason: format!("must be {allowed}, not {value}") })
}

fn named(parameter: &'static str, value: i32, names: &[&str]) -> Option<Problem> {
    let is_known = usize::try_from(value).is_ok_and(|value| value < names.len());
    let reason = || format!("expected one of {}", names.join(", "));
    (!is_known).then(|| Problem { parameter: Some(parameter), reason: reason() })
}

fn together([(first, has_first), (second, has_second)]: [(&str, bool); 2]) -> Option<Problem> {
    let reason = || format!("set both {first} and {second}, or leave out both to learn them");
    (has_first != has_second).then(|| Problem { parameter: None, reason: reason() })
}

fn largest<const N: usize>(bounds: [Option<u64>; N]) -> u64 {
    bounds.into_iter().flatten().max().unwrap_or(0)
}

/// The magnitude of a whole number, saturated; `None` for other numbers.
pub fn magnitude(value: f64) -> Option<u64> {
    (value.fract() == 0.0).then_some(value.abs() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> OneOp {
        crate::decode::<v1::Op>(json.as_bytes()).unwrap().0.op.unwrap()
    }

    #[test]
    fn names_are_those_of_the_message() {
        let fields = crate::descriptor::<v1::Op>().unwrap();
        let mut names: Vec<String> = fields.fields().map(|field| field.name().to_owned()).collect();
        names.sort_unstable();
        assert_eq!(names, NAMES);
        assert_eq!(name(&read(r#"{"box_cox": {}}"#)), "box_cox");
    }

    #[test]
    fn parameters_outside_their_bounds_have_a_problem() {
        for (json, expected) in [
            (r#"{"hash_bucket": {"buckets": 0}}"#, "buckets must be from 1 to 9223372036854775807, not 0"),
            (r#"{"logit": {"eps": 0.6}}"#, "eps must be from 0 to 0.5, not 0.6"),
            (r#"{"robust": {"center": 1, "scale": "NaN"}}"#, "scale must be 0 or more, and finite, not NaN"),
            (r#"{"standardize": {"std": 1}}"#, " set both mean and std, or leave out both to learn them"),
        ] {
            let Problem { parameter, reason } = problem(&read(json)).unwrap();
            assert_eq!(format!("{} {reason}", parameter.unwrap_or_default()), expected);
        }
        let pad = OneOp::Pad(v1::Pad { n: 1, side: 2, ..v1::Pad::default() });
        assert_eq!(problem(&pad).unwrap().reason, "expected one of RIGHT, LEFT");
        for fine in [r#"{"logit": {}}"#, r#"{"standardize": {}}"#, r#"{"target_mean": {"folds": 64}}"#] {
            assert_eq!(problem(&read(fine)), None, "{fine}");
        }
    }

    #[test]
    fn an_op_learns_until_a_fit_has_set_a_parameter() {
        for (json, expected) in [
            (r#"{"vocab": {}}"#, true),
            (r#"{"vocab": {"values": {}}}"#, false),
            (r#"{"count_encode": {"counts": [1]}}"#, true),
            (r#"{"bucketize": {"quantiles": 4}}"#, true),
            (r#"{"bucketize": {"quantiles": 4, "integers": [1]}}"#, false),
            (r#"{"fill_null": {"stat": "MEAN"}}"#, true),
            (r#"{"fill_null": {"value": 0}}"#, false),
            (r#"{"sqrt": {}}"#, false),
        ] {
            assert_eq!(learns(&read(json)), expected, "{json}");
        }
    }

    #[test]
    fn indices_are_bounded_by_parameters() {
        for (json, bound, added) in [
            (r#"{"map_id": {"ids": [1, 2], "values": [-7, 3], "default": 4}}"#, Some(7), None),
            (r#"{"bucketize": {"boundaries": [1]}}"#, Some(0), None),
            (r#"{"first_n": {"n": 2, "value": -9}}"#, None, Some(9)),
            (r#"{"first_n": {"n": 2}}"#, None, Some(0)),
            (r#"{"pad": {"n": 2, "value": 0.5}}"#, None, None),
            (r#"{"fill_null": {"integer": 7}}"#, None, Some(7)),
            (r#"{"fill_null": {"text": "a"}}"#, None, None),
            (r#"{"abs": {}}"#, None, None),
        ] {
            assert_eq!((index_bound(&read(json)), added_index(&read(json))), (bound, added), "{json}");
        }
    }
}
