//! Where an epoch resumes: the one rule of the server and both clients.
//!
//! A position counts the rows that all ranks have read. A run can resume at it if every one of its ranks would have read
//! the same number of these rows:
//! - its world size divides the position;
//! - shuffled, its world size divides the lanes: a position is then the same row at every such world size;
//! - in file order, its world size is that of the run that saved the position, as each rank reads its own span.
//!
//! The batch size does not matter, except with `bucket_by_length`: a run of buckets resumes at its own world size and batch size.
//! The steps of the resumed run begin at the position, so its later positions are whole
//! steps apart from it, but not always multiples of a step: [`Run::resumed_from`] is the distance, which a request adds.
//!
//! `tests/resume.csv` has cases for this module and for its copy in the Python package, `forebay/_client/resume.py`.

/// World sizes that an error names are at most this: the server's limit of lanes.
const NAMED_MAX: u64 = crate::defaults::LANES_MAX;

/// What decides where a run can resume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Number of ranks, at least 1.
    pub world_size: u64,
    /// Rows per batch and rank.
    pub batch_size: u64,
    /// Lanes of a shuffled epoch; none: file order.
    pub lanes: Option<u64>,
}

/// Why a run cannot resume at a saved position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResumeError {
    /// Position that the run that saved it cannot have reached.
    #[error(
        "position {position} is not a multiple of the world size {saved} that it was saved with: load the state as it \
         was saved, or restart the epoch"
    )]
    Position {
        /// The position.
        position: u64,
        /// World size of the run that saved it.
        saved: u64,
    },

    /// Another world size within an epoch in file order.
    #[error(
        "the state was saved within an epoch in file order at world size {saved}, and this world size is {present}: \
         each rank reads its own span, so resume at world size {saved}, save at the end of an epoch, or shuffle"
    )]
    FileOrder {
        /// World size of the run that saved the position.
        saved: u64,
        /// World size of the run that resumes.
        present: u64,
    },

    /// Other steps than those of the run that saved the position.
    #[error(
        "the state was saved within an epoch of bucket_by_length at world size {} and batch size {}, and these are {} and \
         {}: resume at the saved ones, or save at the end of an epoch",
        saved.0, saved.1, present.0, present.1
    )]
    Steps {
        /// World size and batch size of the run that saved the position.
        saved: (u64, u64),
        /// Those of the run that resumes.
        present: (u64, u64),
    },

    /// World size that does not divide the lanes.
    #[error(
        "world size {present} does not divide the {lanes} lanes that the state was saved with: resume at a world size \
         that divides the lanes and position {position}, such as {}",
        named(allowed)
    )]
    Lanes {
        /// World size of the run that resumes.
        present: u64,
        /// Lanes of the epoch.
        lanes: u64,
        /// The position.
        position: u64,
        /// The nearest allowed world sizes.
        allowed: Vec<u64>,
    },

    /// World size whose ranks would have read different numbers of rows.
    #[error(
        "world size {present} does not divide position {position}, so its ranks would have read unequal numbers of \
         rows: resume at a world size that divides the {lanes} lanes and the position, such as {}",
        named(allowed)
    )]
    Uneven {
        /// World size of the run that resumes.
        present: u64,
        /// Lanes of the epoch.
        lanes: u64,
        /// The position.
        position: u64,
        /// The nearest allowed world sizes.
        allowed: Vec<u64>,
    },
}

/// Why a request cannot start at its position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// `resumed_from` at which no run of this world size can have begun.
    #[error(
        "expected a multiple of world_size = {world_size} up to start_position = {start}, found {origin}: send \
         start_position % (world_size × batch_size), or leave it out"
    )]
    Origin {
        /// The request's `resumed_from`.
        origin: u64,
        /// The request's `start_position`.
        start: u64,
        /// The request's world size.
        world_size: u64,
    },

    /// Position up to which the ranks would have read different numbers of rows.
    #[error(
        "{start} is not a multiple of world_size = {world_size}, so the ranks would have read unequal numbers of rows: \
         resume with the world_size of the run that saved it"
    )]
    Uneven {
        /// The request's `start_position`.
        start: u64,
        /// The request's world size.
        world_size: u64,
    },

    /// Position at which no step begins.
    #[error(
        "{start} is not a multiple of world_size × batch_size = {step_rows}{}{}: resume with the world_size and \
         batch_size of the run that saved it or, if it was saved with others, send resumed_from = {} as well",
        lanes.map(|lanes| format!(" or of lanes = {lanes}")).unwrap_or_default(),
        if *origin == 0 { String::new() } else { format!(", nor whole steps after resumed_from = {origin}") },
        start % step_rows.max(&1)
    )]
    BetweenSteps {
        /// The request's `start_position`.
        start: u64,
        /// The request's `resumed_from`.
        origin: u64,
        /// Rows of a step of all ranks.
        step_rows: u64,
        /// Lanes of a shuffled epoch.
        lanes: Option<u64>,
    },
}

// === impl Run ===

impl Run {
    /// Returns the rows of a step of all ranks.
    pub fn step_rows(&self) -> u64 {
        self.world_size.saturating_mul(self.batch_size)
    }

    /// Returns the `resumed_from` of a request that starts at this position: the distance of the run's steps from
    /// multiples of a step. It is 0 in a run that begins with its epoch.
    pub fn resumed_from(&self, position: u64) -> u64 {
        position.checked_rem(self.step_rows()).unwrap_or(0)
    }

    /// Checks that the run can resume at a position that a run of `saved` ranks saved in the same order.
    pub fn check_saved(&self, position: u64, saved: u64) -> Result<(), ResumeError> {
        let present = self.world_size;
        if !position.is_multiple_of(saved) {
            return Err(ResumeError::Position { position, saved });
        }
        let Some(lanes) = self.lanes else {
            return if position == 0 || present == saved {
                Ok(())
            } else {
                Err(ResumeError::FileOrder { saved, present })
            };
        };
        let allowed = || nearest_divisors(greatest_common_divisor(lanes, position), present);
        if !lanes.is_multiple_of(present) {
            return Err(ResumeError::Lanes { present, lanes, position, allowed: allowed() });
        }
        if !position.is_multiple_of(present) {
            return Err(ResumeError::Uneven { present, lanes, position, allowed: allowed() });
        }
        Ok(())
    }

    /// Checks that a run of buckets of length can resume at a position that a run of this world size and batch size saved: both
    /// decide which rows its steps have had.
    pub fn check_same_steps(&self, position: u64, saved: (u64, u64)) -> Result<(), ResumeError> {
        let present = (self.world_size, self.batch_size);
        if position == 0 || present == saved { Ok(()) } else { Err(ResumeError::Steps { saved, present }) }
    }

    /// Checks a request's `start_position` and `resumed_from`: the start is whole steps after the start of the epoch or
    /// after `resumed_from`, which is any multiple of the world size, or, shuffled, a multiple of the lanes.
    ///
    /// A start between the steps of an epoch is more often a mistake than a resumed run, so it needs a `resumed_from`.
    pub fn check_start(&self, start: u64, origin: u64) -> Result<(), StartError> {
        let Self { world_size, lanes, .. } = *self;
        if origin > start || !origin.is_multiple_of(world_size) {
            return Err(StartError::Origin { origin, start, world_size });
        }
        let step_rows = self.step_rows();
        let is_on_lanes = lanes.is_some_and(|lanes| start.is_multiple_of(lanes));
        if is_on_lanes || start.is_multiple_of(step_rows) || (start - origin).is_multiple_of(step_rows) {
            return Ok(());
        }
        if !start.is_multiple_of(world_size) {
            return Err(StartError::Uneven { start, world_size });
        }
        Err(StartError::BetweenSteps { start, origin, step_rows, lanes })
    }
}

impl StartError {
    /// Returns the field of the request that is wrong.
    pub fn field(&self) -> &'static str {
        match self {
            Self::Origin { .. } => "resumed_from",
            Self::Uneven { .. } | Self::BetweenSteps { .. } => "start_position",
        }
    }
}

/// Returns the nearest divisors of a number below and above another number.
fn nearest_divisors(number: u64, near: u64) -> Vec<u64> {
    let largest = number.min(NAMED_MAX);
    let is_divisor = |divisor: &u64| number.is_multiple_of(*divisor);
    let below = (1..=near.min(largest)).rev().find(is_divisor);
    let above = (near.saturating_add(1)..=largest).find(is_divisor);
    below.into_iter().chain(above).collect()
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

fn named(world_sizes: &[u64]) -> String {
    world_sizes.iter().map(u64::to_string).collect::<Vec<_>>().join(" or ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Saved positions and runs that load them, and the results; the Python package reads the same file.
    const CASES: &str = include_str!("../tests/resume.csv");

    fn run(world_size: u64, batch_size: u64, lanes: u64) -> Run {
        Run { world_size, batch_size, lanes: (lanes > 0).then_some(lanes) }
    }

    #[test]
    fn every_case_of_the_table_has_its_outcome() {
        let mut count = 0;
        for line in CASES.lines().filter(|line| !line.starts_with('#')).skip(1) {
            let fields: Vec<&str> = line.split(',').collect();
            let [numbers @ .., outcome, words] = fields.as_slice() else { panic!("{line}") };
            let numbers: Vec<u64> = numbers.iter().map(|number| number.parse().unwrap()).collect();
            let [position, saved, lanes, world_size, batch_size] = numbers[..] else { panic!("{line}") };
            let run = run(world_size, batch_size, lanes);
            let found = match run.check_saved(position, saved) {
                Ok(()) => {
                    assert_eq!(run.check_start(position, run.resumed_from(position)), Ok(()), "{line}");
                    assert_eq!(run.resumed_from(position).to_string(), *words, "{line}");
                    "resumes"
                }
                Err(error) => {
                    assert!(error.to_string().contains(words), "{line}: {error}");
                    match error {
                        ResumeError::Position { .. } => "position",
                        ResumeError::FileOrder { .. } => "file order",
                        ResumeError::Steps { .. } => "steps",
                        ResumeError::Lanes { .. } => "lanes",
                        ResumeError::Uneven { .. } => "uneven",
                    }
                }
            };
            assert_eq!(found, *outcome, "{line}");
            count += 1;
        }
        assert!(count > 20, "{count} cases");
    }

    #[test]
    fn each_step_of_a_resumed_run_is_a_start() {
        for (position, run) in [(48, run(2, 10, 16)), (48, run(1, 7, 16)), (42, run(3, 4, 18)), (50, run(5, 9, 0))] {
            let origin = run.resumed_from(position);
            for step in 0..20 {
                let start = position + step * run.step_rows();
                assert_eq!(run.resumed_from(start), origin, "the same on every replica");
                assert_eq!(run.check_start(start, origin), Ok(()), "{start}");
                assert_eq!(run.check_saved(start, run.world_size), Ok(()), "{start}");
            }
        }
    }

    #[test]
    fn a_request_names_how_its_run_reached_its_start() {
        let (on, off) = (None, Some("start_position"));
        for (run, start, origin, expected) in [
            (run(4, 5, 12), 40, 0, on),
            (run(4, 5, 12), 12, 0, on),
            (run(4, 5, 12), 52, 12, on),
            (run(4, 5, 12), 44, 4, on),
            (run(4, 5, 12), 44, 44, on),
            (run(4, 5, 12), 44, 24, on),
            (run(4, 5, 12), 60, 16, on),
            (run(4, 5, 12), 40, 12, on),
            (run(4, 5, 12), 52, 0, off),
            (run(4, 5, 12), 53, 12, off),
            (run(4, 5, 12), 53, 13, Some("resumed_from")),
            (run(4, 5, 12), 52, 60, Some("resumed_from")),
            (run(4, 5, 0), 12, 0, off),
            (run(4, 5, 0), 32, 12, on),
            (run(1, 1024, 16), 1, 0, off),
            (run(1, 1024, 16), 1, 1, on),
        ] {
            let found = run.check_start(start, origin).map_err(|error| (error.field(), error.to_string()));
            assert_eq!(found.as_ref().err().map(|(field, _)| *field), expected, "{run:?} {start} {origin}: {found:?}");
        }
    }

    #[test]
    fn an_error_names_what_is_allowed() {
        let between = run(4, 5, 8).check_start(12, 0).unwrap_err().to_string();
        assert_eq!(
            between,
            "12 is not a multiple of world_size × batch_size = 20 or of lanes = 8: resume with the world_size and \
             batch_size of the run that saved it or, if it was saved with others, send resumed_from = 12 as well"
        );
        let between = run(2, 5, 0).check_start(14, 12).unwrap_err().to_string();
        assert!(between.contains("= 10, nor whole steps after resumed_from = 12: resume"), "{between}");
        let uneven = run(2, 5, 0).check_start(13, 10).unwrap_err().to_string();
        assert!(uneven.starts_with("13 is not a multiple of world_size = 2"), "{uneven}");
        assert_eq!(nearest_divisors(16, 3), [2, 4]);
        assert_eq!(nearest_divisors(3, 2), [1, 3]);
        assert_eq!(nearest_divisors(6, 8), [6]);
    }
}
