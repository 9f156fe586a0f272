//! One job divided among idle threads.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use super::{abandonment::Abandonment, threads::Queue};

/// Items that threads take one by one, and their results.
struct SharedItems<Item, T, F> {
    call: F,
    state: Mutex<Items<Item, T>>,
    done: Condvar,
}

struct Items<Item, T> {
    /// The items that no thread has taken yet, with their positions.
    left: Vec<(usize, Item)>,
    results: Vec<Option<T>>,
    running: usize,
    panic: Option<Box<dyn Any + Send>>,
}

/// Calls a function with every item, on idle threads of the pool too if the caller is one of its jobs. Results are in
/// the items' order. A panic of a call continues in the caller.
pub fn in_parallel<Item, T, F>(items: Vec<Item>, call: F) -> Vec<T>
where
    Item: Send + 'static,
    T: Send + 'static,
    F: Fn(Item) -> T + Send + Sync + 'static,
{
    let queue = if items.len() > 1 { Queue::own() } else { None };
    let Some(queue) = queue else { return items.into_iter().map(call).collect() };
    let count = items.len();
    let results = (0..count).map(|_| None).collect();
    // Threads pop from the end.
    let left = items.into_iter().enumerate().rev().collect();
    let items = Mutex::new(Items { left, results, running: 0, panic: None });
    let shared = Arc::new(SharedItems { call, state: items, done: Condvar::new() });
    let abandonment = Abandonment::current();
    queue.assist(count - 1, || {
        let (shared, abandonment) = (Arc::clone(&shared), abandonment.clone());
        Box::new(move || abandonment.during(|| shared.work()))
    });
    shared.work();
    let mut state = shared.lock();
    while state.running > 0 {
        state = shared.done.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
    if let Some(panic) = state.panic.take() {
        drop(state);
        resume_unwind(panic);
    }
    std::mem::take(&mut state.results).into_iter().flatten().collect()
}

impl<Item, T, F: Fn(Item) -> T> SharedItems<Item, T, F> {
    fn lock(&self) -> MutexGuard<'_, Items<Item, T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes items until there are none left.
    fn work(&self) {
        let mut state = self.lock();
        while let Some((place, item)) = state.left.pop() {
            state.running += 1;
            drop(state);
            let result = catch_unwind(AssertUnwindSafe(|| (self.call)(item)));
            state = self.lock();
            state.running -= 1;
            match result {
                Ok(result) => state.results[place] = Some(result),
                Err(panic) => {
                    state.left.clear();
                    state.panic = Some(panic);
                }
            }
        }
        if state.running == 0 {
            self.done.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Barrier, mpsc},
        thread,
        time::Duration,
    };

    use super::{super::threads::Threads, *};
    use crate::tenant::Tenant;

    /// Runs a job on the first of `count` threads, once the others are idle, and returns its result.
    fn on_threads<T: Send + 'static>(count: usize, job: impl FnOnce() -> T + Send + 'static) -> T {
        let threads = Threads::start(count, "test-").unwrap();
        let (sender, result) = mpsc::channel();
        threads.spawn(
            &Tenant::current(),
            Box::new(move || {
                while Queue::own().is_some_and(|queue| queue.idle() + 1 < count) {
                    thread::yield_now();
                }
                let _ = sender.send(catch_unwind(AssertUnwindSafe(job)));
            }),
        );
        let result = result.recv_timeout(Duration::from_mins(1)).unwrap();
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }

    #[test]
    fn idle_threads_take_items() {
        // Calls that wait for each other need a thread each.
        let barrier = Arc::new(Barrier::new(3));
        let met = on_threads(3, move || {
            in_parallel(vec![0, 1, 2], move |item| {
                barrier.wait();
                item
            })
        });
        assert_eq!(met, [0, 1, 2]);
    }

    #[test]
    fn results_are_in_the_order_of_the_items() {
        for count in [1, 2, 4] {
            let found = on_threads(count, || in_parallel((0..1000).collect(), |item: u64| item * item));
            assert_eq!(found, (0..1000).map(|item| item * item).collect::<Vec<u64>>());
        }
        assert_eq!(in_parallel(vec![3, 4], |item| item + 1), [4, 5]);
        assert!(in_parallel(Vec::<u8>::new(), |item| item).is_empty());
    }

    #[test]
    fn a_panic_of_a_call_continues_in_the_job() {
        for count in [1, 2] {
            let panicked = on_threads(count, || {
                let run = || in_parallel((0..50).collect(), |item: u8| assert!(item != 20, "on purpose"));
                catch_unwind(run).is_err()
            });
            assert!(panicked, "{count} threads");
        }
    }
}
