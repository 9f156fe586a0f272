//! Which requests to stores and catalogs are sent again, and when.

use std::time::Duration;

use object_store::{
    BackoffConfig, RetryConfig,
    client::{HttpError, HttpErrorKind, HttpResponse},
};

/// Time after which a failed request is not retried again. With the longest pause (5 s) and the 30 s limit of one
/// attempt, a request to an unresponsive store fails after 65 s, and to one that refuses connections after 35 s.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);

/// Shortest and longest pause between retries: each is drawn between the shortest and four times the previous one.
/// About 13 of them fill the timeout; the most in 50,000 simulations was 38.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
const PAUSE_GROWTH: f64 = 4.0;
const RETRIES_MAX: usize = 60;

/// The statuses that are retried in addition to those of 500 and more.
const REQUEST_TIMEOUT: u16 = 408;
const TOO_MANY_REQUESTS: u16 = 429;

/// Retries until the timeout.
pub(super) fn config(retry_timeout: Duration) -> RetryConfig {
    let backoff = BackoffConfig { init_backoff: PAUSES.0, max_backoff: PAUSES.1, base: PAUSE_GROWTH };
    RetryConfig { backoff, max_retries: RETRIES_MAX, retry_timeout }
}

/// Whether `object_store` retries after this result.
pub(super) fn is_retried(result: &Result<HttpResponse, HttpError>) -> bool {
    match result {
        Ok(response) => {
            response.status().is_server_error()
                || matches!(response.status().as_u16(), REQUEST_TIMEOUT | TOO_MANY_REQUESTS)
        }
        Err(error) => !matches!(error.kind(), HttpErrorKind::Decode | HttpErrorKind::Unknown),
    }
}
