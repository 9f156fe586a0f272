//! Keys of groups and their messages.

use arrow::datatypes::{DECIMAL256_MAX_PRECISION, Decimal256Type, DecimalType, i256};
use forebay_engine::ProfileKind;
use forebay_proto::v1::{self, group_key::Key};

/// The value that the rows of a group share, in the type in which values are compared. Keys of one column are ordered
/// like its values, null last.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum GroupKey {
    /// The number of a bucket.
    Bucket(u64),
    /// An integer, a boolean, or a date or time in its unit.
    Integer(i64),
    Unsigned(u64),
    /// An unscaled decimal.
    Decimal(i256),
    Text(Box<str>),
    Null,
}

/// The message of a key; decimals have this scale.
pub(crate) fn to_message(key: &GroupKey, kind: ProfileKind, scale: i8) -> v1::GroupKey {
    let key = match key {
        GroupKey::Bucket(bucket) => Key::Bucket(*bucket),
        GroupKey::Integer(value) if kind == ProfileKind::Booleans => Key::Boolean(*value != 0),
        GroupKey::Integer(value) => Key::Integer(*value),
        GroupKey::Unsigned(value) => Key::Unsigned(*value),
        GroupKey::Decimal(value) => {
            Key::Decimal(Decimal256Type::format_decimal(*value, DECIMAL256_MAX_PRECISION, scale))
        }
        GroupKey::Text(text) => Key::Text(text.to_string()),
        GroupKey::Null => Key::Null(true),
    };
    v1::GroupKey { key: Some(key) }
}

/// The key of a message; none if it is not a value of the column.
pub(crate) fn of_message(key: &Key, kind: ProfileKind, scale: i8) -> Option<GroupKey> {
    Some(match (key, kind) {
        (Key::Bucket(bucket), _) => GroupKey::Bucket(*bucket),
        (Key::Null(_), _) => GroupKey::Null,
        (Key::Boolean(value), ProfileKind::Booleans) => GroupKey::Integer((*value).into()),
        (Key::Integer(value), ProfileKind::Integers | ProfileKind::Times) => GroupKey::Integer(*value),
        (Key::Integer(value), ProfileKind::Unsigned) => GroupKey::Unsigned(u64::try_from(*value).ok()?),
        (Key::Unsigned(value), ProfileKind::Unsigned) => GroupKey::Unsigned(*value),
        (Key::Unsigned(value), ProfileKind::Integers | ProfileKind::Times) => {
            GroupKey::Integer(i64::try_from(*value).ok()?)
        }
        (Key::Decimal(digits), ProfileKind::Decimals) => GroupKey::Decimal(unscaled(digits, scale)?),
        (Key::Text(text), ProfileKind::Texts) => GroupKey::Text(text.as_str().into()),
        _ => return None,
    })
}

/// A decimal times 10^scale; none if it has more digits than the scale.
fn unscaled(digits: &str, scale: i8) -> Option<i256> {
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let zeros = usize::try_from(scale).ok()?.checked_sub(fraction.len())?;
    if digits.len() > usize::from(DECIMAL256_MAX_PRECISION) + 2 {
        return None;
    }
    i256::from_string(&format!("{whole}{fraction}{}", "0".repeat(zeros)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_survive_their_messages() {
        use ProfileKind as K;
        let decimal = GroupKey::Decimal(i256::from_i128(-1_234_500));
        for (key, kind) in [
            (GroupKey::Bucket(7), K::Texts),
            (GroupKey::Integer(i64::MIN), K::Integers),
            (GroupKey::Integer(1), K::Booleans),
            (GroupKey::Integer(15_706), K::Times),
            (GroupKey::Unsigned(u64::MAX), K::Unsigned),
            (decimal, K::Decimals),
            (GroupKey::Text("Zürich\0".into()), K::Texts),
            (GroupKey::Null, K::Texts),
        ] {
            let message = to_message(&key, kind, 4).key.unwrap();
            assert_eq!(of_message(&message, kind, 4), Some(key));
        }
    }

    #[test]
    fn values_of_other_types_are_no_keys() {
        use ProfileKind as K;
        for (key, kind) in [
            (Key::Text("1".into()), K::Integers),
            (Key::Integer(1), K::Booleans),
            (Key::Integer(-1), K::Unsigned),
            (Key::Unsigned(u64::MAX), K::Integers),
            (Key::Decimal("1.234".into()), K::Decimals),
            (Key::Decimal("x".into()), K::Decimals),
            (Key::Decimal("9".repeat(1 << 20)), K::Decimals),
        ] {
            assert_eq!(of_message(&key, kind, 2), None, "{kind:?}");
        }
        assert_eq!(of_message(&Key::Decimal("1.5".into()), K::Decimals, 2), Some(GroupKey::Decimal(150.into())));
    }

    #[test]
    fn null_is_the_last_key() {
        let mut keys = [GroupKey::Null, GroupKey::Text("b".into()), GroupKey::Text("a".into())];
        keys.sort();
        assert_eq!(keys, [GroupKey::Text("a".into()), GroupKey::Text("b".into()), GroupKey::Null]);
    }
}
