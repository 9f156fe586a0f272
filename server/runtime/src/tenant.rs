//! The caller that work is done for, to which its CPU time and its memory are accounted.
//!
//! A tenant is a property of the running task, like a tracing span: the router sets it for a call, tasks and jobs of
//! the CPU pool inherit it. Work that several callers share belongs to the one that began it.

use std::{
    cell::RefCell,
    fmt,
    pin::Pin,
    sync::{Arc, LazyLock},
    task::{Context, Poll, ready},
};

use futures::{FutureExt, Stream};
use tokio::task::JoinHandle;
use tracing::Instrument;

thread_local! {
    /// The tenant of what this thread runs now.
    static CURRENT: RefCell<Option<Tenant>> = const { RefCell::new(None) };
}

/// The tenant of work that no call began.
static SERVER: LazyLock<Tenant> = LazyLock::new(|| Tenant("".into()));

/// A caller that work is done for: the name of a principal or an address, or the server itself.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Tenant(Arc<str>);

/// A future or a stream that runs for a tenant.
#[derive(Debug)]
pub struct ForTenant<Work> {
    tenant: Tenant,
    work: Pin<Box<Work>>,
}

/// A spawned future that ends with this handle.
#[derive(Debug)]
pub struct Spawned<T>(JoinHandle<T>);

/// Restores the tenant of the thread on drop.
struct PreviousTenant(Option<Tenant>);

// === impl Tenant ===

impl Tenant {
    /// The caller of this name.
    pub fn new(name: &Arc<str>) -> Self {
        Self(Arc::clone(name))
    }

    /// The tenant of the running task or job; the server itself outside of calls.
    pub fn current() -> Self {
        CURRENT.with_borrow(Clone::clone).unwrap_or_else(|| SERVER.clone())
    }

    /// Calls a function for this tenant.
    pub fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        let _restored = PreviousTenant(CURRENT.replace(Some(self.clone())));
        work()
    }

    /// A future or a stream that runs for this tenant, on every thread that polls it.
    pub fn scope<Work>(&self, work: Work) -> ForTenant<Work> {
        ForTenant { tenant: self.clone(), work: Box::pin(work) }
    }
}

impl fmt::Debug for Tenant {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl fmt::Display for Tenant {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(if self.0.is_empty() { "the server" } else { &self.0 })
    }
}

impl Drop for PreviousTenant {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

// === impl ForTenant ===

impl<Work: Future> Future for ForTenant<Work> {
    type Output = Work::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Work::Output> {
        let Self { tenant, work } = &mut *self;
        tenant.run(|| work.as_mut().poll(context))
    }
}

impl<Work: Stream> Stream for ForTenant<Work> {
    type Item = Work::Item;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Work::Item>> {
        let Self { tenant, work } = &mut *self;
        tenant.run(|| work.as_mut().poll_next(context))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.work.size_hint()
    }
}

// === impl Spawned ===

impl<T: Send + 'static> Spawned<T> {
    /// Spawns a future, which must catch its panics, for the current tenant and in the
    /// current tracing span.
    pub fn start(future: impl Future<Output = T> + Send + 'static) -> Self {
        Self(tokio::spawn(Tenant::current().scope(future).in_current_span()))
    }
}

impl<T> Future for Spawned<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        match ready!(self.0.poll_unpin(context)) {
            Ok(output) => Poll::Ready(output),
            // Its panics are caught inside and only dropping the handle aborts it: the runtime is shutting down, and
            // this task with it.
            Err(_) => Poll::Pending,
        }
    }
}

impl<T> Drop for Spawned<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_keeps_its_tenant_across_awaits() {
        let one = Tenant::new(&"one".into());
        let two = Tenant::new(&"two".into());
        let inner = two.scope(async {
            tokio::task::yield_now().await;
            Tenant::current()
        });
        let outer = one.scope(async { (Tenant::current(), inner.await, Tenant::current()) });
        assert_eq!(outer.await, (one.clone(), two, one));
        assert_eq!(Tenant::current(), *SERVER);
    }
}
