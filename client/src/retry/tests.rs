use tonic::Status;

use super::*;

const RETRY: Retry = Retry { passes_max: 4, pause_first: Duration::from_millis(100), deadline: Duration::from_mins(1) };

fn urls(names: &[&str]) -> Vec<Arc<str>> {
    names.iter().map(|&name| name.into()).collect()
}

fn status(code: Code) -> Error {
    Error::Status(Box::new(Status::new(code, "so")))
}

/// Returns the replica and pause in milliseconds of each attempt, all failing with the same code, and the final error.
fn tries(retry: Retry, names: &[&str], code: Code, seconds_a_try: u64, jitter: f64) -> (Vec<(String, u128)>, Error) {
    let mut now = Instant::now();
    let mut outage = Outage::begin(retry, urls(names), now);
    let mut tries = Vec::new();
    while let Some((url, pause)) = outage.next(now, jitter) {
        now += pause + Duration::from_secs(seconds_a_try);
        tries.push((url.to_string(), pause.as_millis()));
        outage.failed(url, status(code));
    }
    (tries, outage.give_up(64))
}

fn pairs(tries: &[(&str, u128)]) -> Vec<(String, u128)> {
    tries.iter().map(|&(name, pause)| (name.to_owned(), pause)).collect()
}

#[test]
fn tries_every_replica_before_a_pause() {
    let (found, error) = tries(RETRY, &["a", "b"], Code::Unavailable, 0, 1.0);
    let expected = [("a", 0), ("b", 0), ("a", 100), ("b", 0), ("a", 200), ("b", 0), ("a", 400), ("b", 0)];
    assert_eq!(found, pairs(&expected));
    let message = error.to_string();
    for part in ["gave up after 8 tries", "a: UNAVAILABLE: so; b: UNAVAILABLE: so", "start_position 64"] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn pauses_double_and_are_jittered_down_to_half() {
    let (found, _) = tries(RETRY, &["a"], Code::Unavailable, 0, 0.0);
    assert_eq!(found, pairs(&[("a", 0), ("a", 50), ("a", 100), ("a", 200)]));
    let drawn: Vec<f64> = (0..100).map(|_| Link::default().chance()).collect();
    assert!(drawn.iter().all(|jitter| (0.0..1.0).contains(jitter)), "{drawn:?}");
    assert!(drawn.iter().any(|&jitter| jitter > drawn[0]) || drawn.iter().any(|&jitter| jitter < drawn[0]));
}

#[test]
fn no_pass_begins_after_the_deadline() {
    let (found, _) = tries(RETRY, &["a"], Code::DeadlineExceeded, 25, 1.0);
    assert_eq!(found.len(), 3, "at 0 s, 25 s and 50 s: {found:?}");
    let (found, error) = tries(Retry { deadline: Duration::ZERO, ..RETRY }, &["a", "b"], Code::Unavailable, 0, 1.0);
    assert_eq!(found, pairs(&[("a", 0), ("b", 0)]), "one pass to open a stream");
    assert!(matches!(error, Error::GaveUp { tries: 2, .. }), "{error}");
}

#[test]
fn skips_a_permanently_failing_replica_without_a_pause() {
    for code in [Code::NotFound, Code::ResourceExhausted] {
        let (found, error) = tries(RETRY, &["a", "b"], code, 0, 1.0);
        assert_eq!(found, pairs(&[("a", 0), ("b", 0)]));
        assert_eq!(error.code(), Some(code), "the server's own error");
    }
}

#[test]
fn retries_only_transient_errors() {
    let checksum = HeaderError::Checksum { expected: 1, found: 2 };
    let disconnected = Error::Disconnected { url: "a".into(), status: Box::new(Status::unknown("reset")) };
    let again = [
        status(Code::Unavailable),
        status(Code::DeadlineExceeded),
        status(Code::Cancelled),
        disconnected,
        Error::Truncated { batches: 3, next_step: 3 },
        Error::Header { step: 1, reason: checksum },
    ];
    for error in again {
        assert_eq!(verdict(&error), Verdict::Again, "{error}");
    }
    let never = [
        status(Code::Aborted),
        status(Code::InvalidArgument),
        status(Code::DataLoss),
        status(Code::FailedPrecondition),
        status(Code::Internal),
        status(Code::PermissionDenied),
        status(Code::Unauthenticated),
        status(Code::Unimplemented),
        Error::Header { step: 1, reason: HeaderError::Missing },
        Error::Url { url: "x".into(), reason: "y".into() },
    ];
    for error in never {
        assert_eq!(verdict(&error), Verdict::Never, "{error}");
    }
    assert_eq!(verdict(&status(Code::ResourceExhausted)), Verdict::Elsewhere);
}
