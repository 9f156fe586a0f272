//! The groups of a request: the fields `group_by`, `group_buckets` and `group`.

use std::{num::NonZeroU64, sync::Arc};

use forebay_proto::v1::{self, group_key::Key};
use prost::Message as _;

use super::{bucket_by_length::LengthBuckets, error::PlanError};

/// How a request groups its rows, and the group that it streams.
#[derive(Clone, Debug, PartialEq)]
pub struct Grouping {
    /// The column.
    pub column: String,
    /// The buckets that values are in; none: a group per value.
    pub buckets: Option<GroupBuckets>,
    /// The group; none: all of them, which only a listing accepts.
    pub key: Option<Key>,
    /// The field of the request that names the column.
    pub field: &'static str,
}

/// Buckets of values.
#[derive(Clone, Debug, PartialEq)]
pub enum GroupBuckets {
    /// So many, by the hash of a value.
    Hashes(NonZeroU64),
    /// By length.
    Lengths(Arc<LengthBuckets>),
}

impl Grouping {
    /// The grouping of a request's fields; none if it has none.
    pub fn check(message: &v1::StreamRequest, world_size: u64) -> Result<Option<Self>, PlanError> {
        let column = message.group_by.as_str();
        if column.is_empty() {
            let set = [("group_buckets", message.group_buckets > 0), ("group", message.group.is_some())];
            return match set.into_iter().find(|(_, is_set)| *is_set) {
                Some((field, _)) => Err(PlanError::field(field, "needs group_by: the column to group by")),
                None => Ok(None),
            };
        }
        if world_size != 1 {
            let reason = format!(
                "{world_size} cannot be combined with group_by: a group is one stream, so leave world_size out and let \
                 each process read other groups"
            );
            return Err(PlanError::field("world_size", reason));
        }
        let buckets = NonZeroU64::new(message.group_buckets);
        let key = message.group.as_ref().map(|group| check_key(group, buckets)).transpose()?;
        if key.is_none() && message.start_position > 0 {
            let reason = format!(
                "{} is a position within one group: set group, or use the ticket of its endpoint",
                message.start_position
            );
            return Err(PlanError::field("start_position", reason));
        }
        Ok(Some(Self { column: column.to_owned(), buckets: buckets.map(GroupBuckets::Hashes), key, field: "group_by" }))
    }

    /// The buckets of lengths that it groups rows into; none: it groups them otherwise.
    pub fn lengths(&self) -> Option<&LengthBuckets> {
        if let Some(GroupBuckets::Lengths(buckets)) = &self.buckets { Some(buckets) } else { None }
    }

    /// The grouping as bytes that do not depend on the build.
    pub fn encoded(&self) -> Vec<u8> {
        let group = self.key.clone().map(|key| v1::GroupKey { key: Some(key) });
        let mut message = v1::StreamRequest { group_by: self.column.clone(), group, ..Default::default() };
        match &self.buckets {
            Some(GroupBuckets::Hashes(buckets)) => message.group_buckets = buckets.get(),
            Some(GroupBuckets::Lengths(buckets)) => {
                let (column, boundaries) = (buckets.column.clone(), buckets.boundaries.to_vec());
                message.bucket_by_length = Some(v1::LengthBuckets { column, boundaries, max_tokens: 0 });
            }
            None => {}
        }
        message.encode_to_vec()
    }
}

fn check_key(group: &v1::GroupKey, buckets: Option<NonZeroU64>) -> Result<Key, PlanError> {
    match (&group.key, buckets) {
        (Some(Key::Bucket(bucket)), Some(buckets)) if *bucket < buckets.get() => Ok(Key::Bucket(*bucket)),
        (Some(_), Some(buckets)) => {
            Err(PlanError::field("group", format!("expected a bucket below group_buckets = {buckets}")))
        }
        (Some(Key::Bucket(_)), None) => Err(PlanError::field("group.bucket", "needs group_buckets")),
        (Some(Key::Null(false)), None) => Err(PlanError::field("group.null", "false is not a value: expected true")),
        (Some(key), None) => Ok(key.clone()),
        (None, _) => Err(PlanError::field("group", "empty: expected a value, such as {\"text\": \"AA\"}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(buckets: u64, key: Option<Key>) -> v1::StreamRequest {
        let group = key.map(|key| v1::GroupKey { key: Some(key) });
        v1::StreamRequest { group_by: "k".into(), group_buckets: buckets, group, ..v1::StreamRequest::default() }
    }

    #[test]
    fn a_key_is_of_its_kind_of_group() {
        let good = [(0, None), (0, Some(Key::Null(true))), (0, Some(Key::Integer(-1))), (4, None)];
        for (buckets, key) in good.into_iter().chain([(4, Some(Key::Bucket(3)))]) {
            let grouping = Grouping::check(&request(buckets, key.clone()), 1).unwrap().unwrap();
            assert_eq!((grouping.buckets, grouping.key), (NonZeroU64::new(buckets).map(GroupBuckets::Hashes), key));
        }
        for (buckets, key) in
            [(0, Key::Bucket(0)), (4, Key::Bucket(4)), (4, Key::Text("a".into())), (0, Key::Null(false))]
        {
            let error = Grouping::check(&request(buckets, Some(key)), 1).unwrap_err().to_string();
            assert!(error.starts_with("group"), "{error}");
        }
    }

    #[test]
    fn fields_that_contradict_each_other_are_errors() {
        assert_eq!(Grouping::check(&v1::StreamRequest::default(), 8).unwrap(), None);
        let error =
            |message: v1::StreamRequest, world_size| Grouping::check(&message, world_size).unwrap_err().to_string();
        assert!(error(request(0, None), 2).starts_with("world_size: 2 "));
        assert!(
            error(v1::StreamRequest { start_position: 8, ..request(0, None) }, 1).starts_with("start_position: 8 ")
        );
        assert!(
            error(v1::StreamRequest { group_by: String::new(), ..request(3, None) }, 1).starts_with("group_buckets")
        );
        let key = Some(Key::Boolean(true));
        assert!(error(v1::StreamRequest { group_by: String::new(), ..request(0, key) }, 1).starts_with("group: "));
    }
}
