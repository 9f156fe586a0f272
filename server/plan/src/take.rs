//! A validated `TakeRequest`: the numbers of the rows, and the request of a stream that computes them.

use forebay_proto::v1;

use super::{error::PlanError, request::Request};

/// Limit of the rows of a take.
const TAKE_ROWS_MAX: usize = 1 << 16;

/// What the numbers of a take count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeBy {
    /// All rows of the snapshot, in file order.
    RowIds,
    /// The rows that pass the plan's filter, in file order.
    Positions,
}

/// A validated take.
#[derive(Clone, Debug)]
pub struct Take {
    /// The stream that has the rows; its batches are those of the take.
    pub request: Request,
    /// What the numbers count.
    pub by: TakeBy,
    /// The numbers, in the order of the rows to return.
    pub numbers: Vec<u64>,
}

// === impl TakeBy ===

impl TakeBy {
    /// The path of a number in the request.
    pub fn path(self, index: usize) -> String {
        format!("{}[{index}]", self.field())
    }

    fn field(self) -> &'static str {
        match self {
            Self::RowIds => "row_ids",
            Self::Positions => "positions",
        }
    }
}

// === impl Take ===

impl Take {
    /// Validates a message.
    pub fn check(message: &v1::TakeRequest) -> Result<Self, PlanError> {
        let (by, numbers) = match (message.row_ids.as_slice(), message.positions.as_slice()) {
            (ids, []) => (TakeBy::RowIds, ids),
            ([], positions) => (TakeBy::Positions, positions),
            _ => return Err(PlanError::field("positions", "send either row_ids or positions, not both")),
        };
        if numbers.len() > TAKE_ROWS_MAX {
            return Err(PlanError::TakeRows { path: by.field(), rows: numbers.len(), limit: TAKE_ROWS_MAX });
        }
        let all = (numbers.len() as u64).max(1);
        let request = v1::StreamRequest {
            dataset: message.dataset.clone(),
            plan: message.plan.clone(),
            plan_id: message.plan_id.clone(),
            batch_size: Some(message.batch_size.map_or(all, |rows| rows.min(all))),
            with_row_ids: message.with_row_ids,
            snapshot: message.snapshot.clone(),
            ..v1::StreamRequest::default()
        };
        let mut request = Request::check(&request)?;
        request.reads_all_files |= by == TakeBy::RowIds;
        Ok(Self { request, by, numbers: numbers.to_vec() })
    }

    /// Checks that every number is below `rows`, the number of rows.
    pub fn check_numbers(&self, rows: u64) -> Result<(), PlanError> {
        let Some(index) = self.numbers.iter().position(|number| *number >= rows) else { return Ok(()) };
        let (of, number) = (self.by, self.numbers[index]);
        let what = match of {
            TakeBy::RowIds => "rows in the snapshot",
            TakeBy::Positions => "rows that pass the filter",
        };
        let reason = format!("{number} is not below {rows}, the number of {what}");
        Err(PlanError::field(of.path(index), reason))
    }

    /// The number of batches; for no rows, one that is empty.
    pub fn batch_count(&self) -> u64 {
        (self.numbers.len() as u64).div_ceil(self.request.batch_size).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(row_ids: &[u64], positions: &[u64], batch_size: Option<u64>) -> v1::TakeRequest {
        v1::TakeRequest {
            dataset: "t".to_owned(),
            plan_id: "ab".to_owned(),
            row_ids: row_ids.to_vec(),
            positions: positions.to_vec(),
            batch_size,
            ..v1::TakeRequest::default()
        }
    }

    #[test]
    fn all_rows_are_one_batch_unless_the_request_divides_them() {
        for (ids, batch_size, expected) in [
            (&[5, 1, 5][..], None, (3, 1)),
            (&[5, 1, 5], Some(2), (2, 2)),
            (&[5, 1, 5], Some(1 << 60), (3, 1)),
            (&[], None, (1, 1)),
        ] {
            let checked = Take::check(&take(ids, &[], batch_size)).unwrap();
            assert_eq!((checked.request.batch_size, checked.batch_count()), expected);
            assert_eq!((checked.by, checked.numbers.as_slice()), (TakeBy::RowIds, ids));
        }
        assert_eq!(Take::check(&take(&[], &[7], None)).unwrap().by, TakeBy::Positions);
    }

    #[test]
    fn errors_name_the_field() {
        let many = vec![0; TAKE_ROWS_MAX + 1];
        for (message, words) in [
            (take(&[1], &[1], None), "positions: send either"),
            (take(&[1], &[], Some(0)), "batch_size: 0"),
            (take(&many, &[], None), "row_ids: 65537 rows"),
            (take(&[], &many, None), "positions: 65537 rows"),
            (v1::TakeRequest { dataset: String::new(), ..take(&[1], &[], None) }, "dataset: missing"),
            (v1::TakeRequest { plan_id: String::new(), ..take(&[1], &[], None) }, "plan: missing"),
        ] {
            let error = Take::check(&message).unwrap_err().to_string();
            assert!(error.starts_with(words), "{error}");
        }
        let checked = Take::check(&take(&[], &[3, 9, 10], None)).unwrap();
        assert!(checked.check_numbers(11).is_ok());
        let error = checked.check_numbers(10).unwrap_err().to_string();
        assert_eq!(error, "positions[2]: 10 is not below 10, the number of rows that pass the filter");
    }
}
