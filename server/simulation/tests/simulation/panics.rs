//! Counts panics of tasks, which the runtime would hide.

use std::{cell::Cell, panic, sync::Once};

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// Panics on this thread since the first call, including those of tasks: a run is single-threaded.
pub(crate) fn count() -> u64 {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            COUNT.set(COUNT.get() + 1);
            before(panic);
        }));
    });
    COUNT.get()
}
