//! What holds for every call with any bytes: it ends in time, without a panic in the server's crates, with no code that
//! means a bug of the server and no control character in an error message, and it releases the memory it reserved.
//!
//! A panic in a library fails only if it reaches the client as INTERNAL. The server may catch it and report the file as
//! corrupt or the value as invalid.

use std::time::Duration;

use forebay_runtime::budget::Budget;
use futures::Future;
use tokio::{runtime::Runtime, time};
use tonic::{Code, Status};

use crate::panics;

/// A longer call hangs. The slowest calls take a tenth of this in an unoptimized build.
const CALL_WAIT_MAX: Duration = Duration::from_secs(10);

/// Time in which the tasks of a dropped stream must end and release their memory.
const RELEASE_WAIT_MAX: Duration = Duration::from_millis(if cfg!(test) { 500 } else { 5000 });

/// Runs a call to its end and checks the invariants.
pub(crate) fn check<T>(
    runtime: &Runtime,
    budget: &Budget,
    call: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    panics::watch();
    let called = panics::caught(|| {
        runtime.block_on(async {
            let result = time::timeout(CALL_WAIT_MAX, call).await;
            (result, time::timeout(RELEASE_WAIT_MAX, released(budget)).await)
        })
    });
    let (result, released) = called.unwrap_or_else(|panic| panic!("a panic reached the caller: {panic}"));
    let own = panics::recorded().own.join("; ");
    assert!(own.is_empty(), "panic in the server: {own}");
    let Ok(result) = result else { panic!("the call did not end within {CALL_WAIT_MAX:?}") };
    if let Err(status) = &result {
        check_status(status);
    }
    assert!(released.is_ok(), "memory is still reserved {RELEASE_WAIT_MAX:?} after the call");
    result
}

fn check_status(status: &Status) {
    let is_bug = matches!(status.code(), Code::Internal | Code::Unknown);
    assert!(!is_bug, "a code that means a bug: {status:?}, last panic: {}", panics::recorded().last);
    assert!(!status.message().contains(char::is_control), "control character in an error message: {status:?}");
}

/// Waits until no memory is reserved.
async fn released(budget: &Budget) {
    const POLL_INTERVAL: Duration = Duration::from_millis(1);
    while budget.reserve(budget.limit()).is_err() {
        time::sleep(POLL_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use std::{
        panic::{AssertUnwindSafe, catch_unwind},
        sync::{Mutex, PoisonError},
    };

    use forebay_runtime::{
        budget::Reservation,
        cpu_pool::CpuPool,
        state::{Kind, State},
    };
    use futures::FutureExt;

    use super::*;

    /// Whether the check passes for a call that does this.
    fn passes(call: impl FnOnce(&Budget) -> Result<(), Status>) -> bool {
        // The list of panics is the process's.
        static EXCLUSIVE: Mutex<()> = Mutex::new(());
        let _exclusive = EXCLUSIVE.lock().unwrap_or_else(PoisonError::into_inner);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let budget = Budget::new(10);
        catch_unwind(AssertUnwindSafe(|| check(&runtime, &budget, async { call(&budget) }).is_ok())).is_ok()
    }

    #[test]
    fn detects_violated_invariants() {
        let reserved: Mutex<Option<Reservation>> = Mutex::new(None);
        assert!(passes(|_| Ok(())));
        assert!(passes(|_| Err(Status::invalid_argument("no such \"column\""))));
        assert!(!passes(|_| Err(Status::internal("oops"))));
        assert!(!passes(|_| Err(Status::unknown("oops"))));
        assert!(!passes(|_| Err(Status::not_found("\u{1b}[31m"))));
        assert!(!passes(|budget| {
            *reserved.lock().unwrap() = budget.reserve(1).ok();
            Ok(())
        }));
    }

    #[test]
    fn detects_caught_panics_of_the_server_but_not_of_libraries() {
        let caught = |job: &dyn Fn()| drop(catch_unwind(AssertUnwindSafe(job)));
        let directory = std::env::temp_dir().join(format!("forebay-fuzz-test-{}", std::process::id()));
        let state = State::at(&directory, &CpuPool::inline());
        assert!(passes(|_| {
            caught(&|| drop(bytes::Bytes::new().slice(1..2)));
            Ok(())
        }));
        assert!(!passes(|_| {
            // The server asserts that an id is not a path.
            caught(&|| drop(state.has(Kind::Plan, "../x").now_or_never()));
            Ok(())
        }));
    }
}
