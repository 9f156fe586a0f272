//! The buckets of similar length of a request: the field `bucket_by_length`.

use std::sync::Arc;

use forebay_proto::v1;

use super::error::PlanError;

/// The column of the lengths of rows, which no plan has.
pub const LENGTH: &str = "__length";

/// Limit of the buckets of a request.
const BOUNDARIES_MAX: usize = 128;

/// Limit of the tokens of a batch: there are fewer buckets of it than may be given.
const TOKENS_MAX: u64 = 1 << 20;

/// The length up to which rows are in the first bucket of those that follow from tokens.
const FIRST_LENGTH: u64 = 16;

/// Lengths at which buckets end, from one power of two to the next.
const LENGTHS_AN_OCTAVE: u64 = 4;

/// The buckets that rows of similar length are in.
#[derive(Clone, Debug, PartialEq)]
pub struct LengthBuckets {
    /// The column whose length counts.
    pub column: String,
    /// The lengths at which each bucket but the first begins, rising.
    pub boundaries: Arc<[u64]>,
    /// The most rows of a batch × the largest length of its bucket; none: batches have the rows of the request.
    pub max_tokens: Option<u64>,
}

impl LengthBuckets {
    /// The buckets of a request; none if it has none.
    pub fn check(message: &v1::StreamRequest) -> Result<Option<Self>, PlanError> {
        let Some(buckets) = &message.bucket_by_length else { return Ok(None) };
        let others = [
            ("balance", message.balance.is_some(), "each row is read once"),
            ("sample_weight", !message.sample_weight.trim().is_empty(), "each row is read once"),
            ("group_by", !message.group_by.is_empty(), "filter the rows of a group instead"),
            ("sources", !message.sources.is_empty(), "the batches of a mixture have rows of all sources"),
            ("window", message.window.is_some(), "all windows have the same length"),
            ("resumed_from", message.resumed_from > 0, "its steps are those of one world_size and batch_size"),
        ];
        if let Some((field, _, reason)) = others.iter().find(|(_, is_set, _)| *is_set) {
            return Err(PlanError::field("bucket_by_length", format!("cannot be combined with {field}: {reason}")));
        }
        if buckets.column.is_empty() {
            let reason = "missing: expected a column of lists, text or lengths";
            return Err(PlanError::field("bucket_by_length.column", reason));
        }
        let boundaries = match (buckets.boundaries.as_slice(), buckets.max_tokens) {
            ([], 0) => {
                let reason = "expected boundaries, such as [64, 128, 256], or max_tokens";
                return Err(PlanError::field("bucket_by_length", reason));
            }
            ([], tokens) if tokens > TOKENS_MAX => {
                let reason = format!("{tokens} is not between 1 and {TOKENS_MAX}");
                return Err(PlanError::field("bucket_by_length.max_tokens", reason));
            }
            ([], tokens) => of_tokens(tokens),
            (boundaries, 0) => {
                check_boundaries(boundaries)?;
                boundaries.into()
            }
            _ => {
                let reason = "expected either boundaries or max_tokens: buckets of max_tokens follow from it";
                return Err(PlanError::field("bucket_by_length", reason));
            }
        };
        let max_tokens = Some(buckets.max_tokens).filter(|tokens| *tokens > 0);
        Ok(Some(Self { column: buckets.column.clone(), boundaries, max_tokens }))
    }

    /// The SQL expression of the lengths, of a column that is text, a list, or a number.
    pub fn expression(&self, is_text: bool, is_list: bool) -> String {
        let column = format!("\"{}\"", self.column.replace('"', "\"\""));
        match (is_text, is_list) {
            (true, _) => format!("length({column})"),
            (_, true) => format!("array_length({column})"),
            _ => column,
        }
    }

    /// The number of the bucket of rows of a length: of the boundaries that are not above it.
    pub fn bucket_of(&self, length: u64) -> u64 {
        self.boundaries.partition_point(|boundary| *boundary <= length) as u64
    }

    /// The lengths of a bucket: the least, and the most that its rows may have; none if they may have any.
    pub fn lengths(&self, bucket: u64) -> (u64, Option<u64>) {
        let bucket = usize::try_from(bucket).unwrap_or(usize::MAX);
        let least = bucket.checked_sub(1).and_then(|before| self.boundaries.get(before)).copied().unwrap_or(0);
        (least, self.boundaries.get(bucket).map(|end| end - 1))
    }

    /// The rows of a full batch of a bucket, at most `batch_size`; none if a row of it has more tokens than a batch.
    pub fn batch_size(&self, bucket: u64, batch_size: u64) -> Option<u64> {
        let Some(tokens) = self.max_tokens else { return Some(batch_size) };
        let most = self.lengths(bucket).1?;
        Some((tokens / most.max(1)).clamp(1, batch_size))
    }
}

fn check_boundaries(boundaries: &[u64]) -> Result<(), PlanError> {
    let path = "bucket_by_length.boundaries";
    if boundaries.len() > BOUNDARIES_MAX {
        let reason = format!("{} boundaries, the limit is {BOUNDARIES_MAX}", boundaries.len());
        return Err(PlanError::field(path, reason));
    }
    let is_rising = boundaries.windows(2).all(|pair| pair[0] < pair[1]);
    if boundaries[0] == 0 || !is_rising {
        return Err(PlanError::field(path, "expected lengths of at least 1, each above the one before"));
    }
    Ok(())
}

/// The lengths at which buckets begin if a batch has so many tokens; the last bucket has the rows that are longer.
fn of_tokens(tokens: u64) -> Arc<[u64]> {
    let mut boundaries = Vec::new();
    let mut end = FIRST_LENGTH;
    while end < tokens {
        boundaries.push(end + 1);
        // A quarter of the power of two that is not above it.
        end += (1 << end.ilog2()) / LENGTHS_AN_OCTAVE;
    }
    boundaries.push(tokens + 1);
    boundaries.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(boundaries: &[u64], max_tokens: u64) -> v1::StreamRequest {
        let buckets = v1::LengthBuckets { column: "a\"b".into(), boundaries: boundaries.into(), max_tokens };
        v1::StreamRequest { bucket_by_length: Some(buckets), ..Default::default() }
    }

    fn checked(boundaries: &[u64], max_tokens: u64) -> LengthBuckets {
        LengthBuckets::check(&request(boundaries, max_tokens)).unwrap().unwrap()
    }

    #[test]
    fn boundaries_begin_a_bucket() {
        let found = checked(&[4, 8], 0);
        assert_eq!([0, 3, 4, 7, 8, u64::MAX].map(|length| found.bucket_of(length)), [0, 0, 1, 1, 2, 2]);
        assert_eq!([0, 1, 2].map(|bucket| found.lengths(bucket)), [(0, Some(3)), (4, Some(7)), (8, None)]);
        assert_eq!(found.batch_size(2, 16), Some(16));
        assert_eq!(found.expression(true, false), "length(\"a\"\"b\")");
        assert_eq!(LengthBuckets::check(&v1::StreamRequest::default()).unwrap(), None);
    }

    #[test]
    fn batches_have_at_most_so_many_tokens() {
        let found = checked(&[], 100);
        assert_eq!(*found.boundaries, [17, 21, 25, 29, 33, 41, 49, 57, 65, 81, 97, 101]);
        for length in 0..=100 {
            let bucket = found.bucket_of(length);
            let (least, most) = found.lengths(bucket);
            assert!(least <= length && length <= most.unwrap());
            assert!(found.batch_size(bucket, 1024).unwrap() * most.unwrap() <= 100);
        }
        assert_eq!(found.batch_size(found.bucket_of(101), 1024), None);
        assert_eq!((found.batch_size(0, 2), found.batch_size(0, 1024)), (Some(2), Some(6)));
        for tokens in [1, 15, 16, 17, TOKENS_MAX] {
            let found = checked(&[], tokens);
            assert!(found.boundaries.len() <= BOUNDARIES_MAX && found.boundaries.windows(2).all(|two| two[0] < two[1]));
            assert_eq!(found.lengths(found.bucket_of(tokens)).1, Some(tokens));
        }
    }

    #[test]
    fn wrong_buckets_name_the_field() {
        let error = |message: v1::StreamRequest| LengthBuckets::check(&message).unwrap_err().to_string();
        let prefix = "bucket_by_length";
        assert!(error(request(&[], 0)).starts_with("bucket_by_length: expected boundaries"));
        assert!(error(request(&[4], 9)).starts_with("bucket_by_length: expected either"));
        for wrong in [&[0, 4][..], &[4, 4], &[8, 4], &(1..130).collect::<Vec<_>>()] {
            assert!(error(request(wrong, 0)).starts_with("bucket_by_length.boundaries"), "{wrong:?}");
        }
        assert!(error(request(&[], TOKENS_MAX + 1)).starts_with("bucket_by_length.max_tokens"));
        let unnamed = v1::StreamRequest { bucket_by_length: Some(v1::LengthBuckets::default()), ..Default::default() };
        assert!(error(unnamed).starts_with("bucket_by_length.column: missing"));
        for (change, field) in [
            ((|message| message.balance = Some(v1::Balance::default())) as fn(&mut v1::StreamRequest), "balance"),
            (|message| message.sample_weight = "a".into(), "sample_weight"),
            (|message| message.group_by = "k".into(), "group_by"),
            (|message| message.sources.push(v1::MixtureSource::default()), "sources"),
            (|message| message.window = Some(v1::Window::default()), "window"),
            (|message| message.resumed_from = 4, "resumed_from"),
        ] {
            let mut message = request(&[4], 0);
            change(&mut message);
            assert!(error(message).starts_with(&format!("{prefix}: cannot be combined with {field}")));
        }
    }
}
