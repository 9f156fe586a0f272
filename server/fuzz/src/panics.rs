//! Panics during an input, recorded without printing them: a corrupt file may cause thousands, and libFuzzer's own hook
//! aborts the process, even if the panic is caught.

use std::{
    panic::{self, AssertUnwindSafe, PanicHookInfo, catch_unwind},
    path::Path,
    sync::{Mutex, MutexGuard, Once, PoisonError},
};

/// The folders with the project's crates, relative to the repository's root, which is where cargo runs rustc.
const OWN_FOLDERS: [&str; 4] = ["proto/", "kernels/", "server/", "client/"];

/// Panics since they were last cleared.
#[derive(Debug)]
pub(crate) struct Panics {
    /// Panics in the project's crates, caught or not.
    pub own: Vec<String>,
    /// The last panic in any crate.
    pub last: String,
}

static PANICS: Mutex<Panics> = Mutex::new(Panics { own: Vec::new(), last: String::new() });

/// The panics recorded so far.
pub(crate) fn recorded() -> MutexGuard<'static, Panics> {
    PANICS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records panics from now on, and forgets those recorded. Only panics of this package are still printed and abort.
pub(crate) fn watch() {
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
    *recorded() = Panics { own: Vec::new(), last: String::new() };
}

/// The result of a job, or the description of its panic.
pub(crate) fn caught<T>(job: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(job)).map_err(|_| recorded().last.clone())
}

fn record(info: &PanicHookInfo<'_>, file: &str) {
    let text = info.to_string();
    let mut panics = recorded();
    if OWN_FOLDERS.iter().any(|own| from_root(file).starts_with(own)) {
        panics.own.push(text.clone());
    }
    panics.last = text;
}

/// A source's path relative to the repository's root, if it is below it.
fn from_root(file: &str) -> &str {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).and_then(Path::to_str);
    root.and_then(|root| file.strip_prefix(root)?.strip_prefix('/')).unwrap_or(file)
}
