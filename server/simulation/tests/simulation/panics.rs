//! Panics of tasks: a runtime swallows them, and a simulation must not.

use std::{cell::Cell, panic, sync::Once};

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// Panics of this thread since it was first asked, of its tasks too: all of a run is on one thread.
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
