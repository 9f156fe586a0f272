//! What holds for every call with any bytes: it ends in time, without a panic in the server's crates, with no code that
//! means a bug of the server and no control character in an error message, and it releases the memory it reserved.
//!
//! A panic in a library fails only if it reaches the client as INTERNAL. The server may catch it and report the file as
//! corrupt or the value as invalid.

use std::{
    panic::{self, AssertUnwindSafe, PanicHookInfo, catch_unwind},
    path::Path,
    sync::{Mutex, MutexGuard, Once, PoisonError},
    time::Duration,
};

use forebay_server::budget::Budget;
use futures::Future;
use tokio::{runtime::Runtime, time};
use tonic::{Code, Status};

/// A longer call hangs. The slowest calls take a tenth of this in an unoptimized build.
const CALL_WAIT_MAX: Duration = Duration::from_secs(10);

/// Time in which the tasks of a dropped stream must end and release their memory.
const RELEASE_WAIT_MAX: Duration = Duration::from_millis(if cfg!(test) { 500 } else { 5000 });

/// Sources of the server's crates, relative to the repository's root, which is where cargo runs rustc.
const OWN_SOURCES: [&str; 3] = ["proto/src/", "kernels/src/", "server/src/"];

/// Panics since the call began.
#[derive(Debug)]
struct Panics {
    /// Panics in the server's crates, caught or not.
    own: Vec<String>,
    /// The last panic in any crate.
    last: String,
}

static PANICS: Mutex<Panics> = Mutex::new(Panics { own: Vec::new(), last: String::new() });

/// Runs a call to its end and checks the invariants.
pub(crate) fn check<T>(
    runtime: &Runtime,
    budget: &Budget,
    call: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    watch_panics();
    *panics() = Panics { own: Vec::new(), last: String::new() };
    let called = catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(async {
            let result = time::timeout(CALL_WAIT_MAX, call).await;
            (result, time::timeout(RELEASE_WAIT_MAX, released(budget)).await)
        })
    }));
    let Ok((result, released)) = called else { panic!("a panic reached the caller: {}", panics().last) };
    let own = panics().own.join("; ");
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
    assert!(!is_bug, "a code that means a bug: {status:?}, last panic: {}", panics().last);
    assert!(!status.message().contains(char::is_control), "control character in an error message: {status:?}");
}

/// Waits until no memory is reserved.
async fn released(budget: &Budget) {
    const POLL_INTERVAL: Duration = Duration::from_millis(1);
    while budget.reserve(budget.limit()).is_err() {
        time::sleep(POLL_INTERVAL).await;
    }
}

/// Records panics outside this package without printing them: a corrupt file may cause thousands, and libFuzzer's own
/// hook aborts the process, even if the server catches the panic.
fn watch_panics() {
    static WATCHING: Once = Once::new();
    WATCHING.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let file = info.location().map_or("", |location| location.file());
            if from_root(file).starts_with("server/fuzz/") {
                previous(info);
            } else {
                record(info, file);
            }
        }));
    });
}

fn record(info: &PanicHookInfo<'_>, file: &str) {
    let text = info.to_string();
    let mut panics = panics();
    if OWN_SOURCES.iter().any(|own| from_root(file).starts_with(own)) {
        panics.own.push(text.clone());
    }
    panics.last = text;
}

/// A source's path relative to the repository's root, if it is below it.
fn from_root(file: &str) -> &str {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).and_then(Path::to_str);
    root.and_then(|root| file.strip_prefix(root)?.strip_prefix('/')).unwrap_or(file)
}

fn panics() -> MutexGuard<'static, Panics> {
    PANICS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use forebay_server::{
        budget::Reservation,
        state::{Kind, State},
    };

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
        let directory = std::env::temp_dir();
        let state =
            Arc::new(State::open(&directory.join(format!("forebay-fuzz-test-{}", std::process::id()))).unwrap());
        assert!(passes(|_| {
            caught(&|| drop(bytes::Bytes::new().slice(1..2)));
            Ok(())
        }));
        assert!(!passes(|_| {
            // The server asserts that an id is not a path.
            caught(&|| drop(state.read(Kind::Plan, "../x")));
            Ok(())
        }));
        std::fs::remove_dir_all(state.spill_directory().parent().unwrap()).unwrap();
    }
}
