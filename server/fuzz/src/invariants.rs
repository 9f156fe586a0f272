//! What the server promises of every call, whatever its bytes: it ends in time, without a panic of our code, with no code
//! that means a bug of ours, with no text that steers a terminal, and gives back the memory that it reserved.
//!
//! A panic in a library counts where it reaches a client as INTERNAL. Where the server knows of it and tells it as damage
//! of a file, or as a function that gave up on a value, the promise is kept: that is how such bytes are answered.

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

/// A call that takes longer hangs: the slowest take a tenth of it in an unoptimized build.
const CALL_WAIT_MAX: Duration = Duration::from_secs(10);

/// Tasks of a stream that was dropped end by then and give back what they held.
const RELEASE_WAIT_MAX: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 5000 });

/// Where our code lies, from the root of the repository: what cargo tells the compiler of a member of the workspace.
const OURS: [&str; 3] = ["proto/src/", "kernels/src/", "server/src/"];

/// Panics since the call began.
#[derive(Debug)]
struct Panics {
    /// In our code, caught or not.
    ours: Vec<String>,
    /// The last one anywhere.
    last: String,
}

static PANICS: Mutex<Panics> = Mutex::new(Panics { ours: Vec::new(), last: String::new() });

/// Runs a call to its end and holds it to what is promised.
pub(crate) fn hold<T>(
    runtime: &Runtime,
    budget: &Budget,
    call: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    watch();
    *panics() = Panics { ours: Vec::new(), last: String::new() };
    let called = catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(async {
            let answered = time::timeout(CALL_WAIT_MAX, call).await;
            (answered, time::timeout(RELEASE_WAIT_MAX, released(budget)).await)
        })
    }));
    let Ok((answered, is_released)) = called else { panic!("a panic reached the caller: {}", panics().last) };
    let ours = panics().ours.join("; ");
    assert!(ours.is_empty(), "our code panicked: {ours}");
    let Ok(answer) = answered else { panic!("no answer within {CALL_WAIT_MAX:?}") };
    if let Err(status) = &answer {
        check(status);
    }
    assert!(is_released.is_ok(), "memory is still reserved {RELEASE_WAIT_MAX:?} after the call");
    answer
}

/// Holds an error to what is promised of errors.
fn check(status: &Status) {
    let is_bug = matches!(status.code(), Code::Internal | Code::Unknown);
    assert!(!is_bug, "an answer that means a bug of ours: {status:?}, last panic: {}", panics().last);
    assert!(!status.message().contains(char::is_control), "an error's text steers a terminal: {status:?}");
}

/// Waits until nothing is reserved.
async fn released(budget: &Budget) {
    const LOOK_AGAIN: Duration = Duration::from_millis(1);
    while budget.reserve(budget.limit()).is_err() {
        time::sleep(LOOK_AGAIN).await;
    }
}

/// Has panics outside of this package noted rather than told: a damaged file may mean thousands, and libFuzzer's own
/// hook would end the process for one that the server catches.
fn watch() {
    static WATCHING: Once = Once::new();
    WATCHING.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let file = info.location().map_or("", |location| location.file());
            if from_root(file).starts_with("server/fuzz/") {
                before(info);
            } else {
                note(info, file);
            }
        }));
    });
}

fn note(info: &PanicHookInfo<'_>, file: &str) {
    let text = info.to_string();
    let mut panics = panics();
    if OURS.iter().any(|ours| from_root(file).starts_with(ours)) {
        panics.ours.push(text.clone());
    }
    panics.last = text;
}

/// A source's path from the root of the repository, where it lies there.
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

    /// Whether a call that does this is held to have kept what is promised.
    fn is_kept(call: impl FnOnce(&Budget) -> Result<(), Status>) -> bool {
        // One process, one list of panics.
        static ALONE: Mutex<()> = Mutex::new(());
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let budget = Budget::new(10);
        catch_unwind(AssertUnwindSafe(|| hold(&runtime, &budget, async { call(&budget) }).is_ok())).is_ok()
    }

    #[test]
    fn what_is_promised_is_noticed() {
        let kept: Mutex<Option<Reservation>> = Mutex::new(None);
        assert!(is_kept(|_| Ok(())));
        assert!(is_kept(|_| Err(Status::invalid_argument("no such \"column\""))));
        assert!(!is_kept(|_| Err(Status::internal("oops"))));
        assert!(!is_kept(|_| Err(Status::unknown("oops"))));
        assert!(!is_kept(|_| Err(Status::not_found("\u{1b}[31m"))));
        assert!(!is_kept(|budget| {
            *kept.lock().unwrap() = budget.reserve(1).ok();
            Ok(())
        }));
    }

    #[test]
    fn a_librarys_panic_may_be_caught_and_ours_may_not() {
        let caught = |job: &dyn Fn()| drop(catch_unwind(AssertUnwindSafe(job)));
        let directory = std::env::temp_dir();
        let state =
            Arc::new(State::open(&directory.join(format!("forebay-fuzz-test-{}", std::process::id()))).unwrap());
        assert!(is_kept(|_| {
            caught(&|| drop(bytes::Bytes::new().slice(1..2)));
            Ok(())
        }));
        assert!(!is_kept(|_| {
            // An id that is a path is stopped by an assertion of the server's.
            caught(&|| drop(state.read(Kind::Plan, "../x")));
            Ok(())
        }));
        std::fs::remove_dir_all(state.spill_directory().parent().unwrap()).unwrap();
    }
}
