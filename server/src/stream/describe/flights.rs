//! Running descriptions, each shared by all requests for it.

use std::{
    collections::HashMap,
    pin::pin,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use forebay_proto::v1;
use tokio::sync::{OnceCell, watch};

use crate::stream::error::StreamError;

/// Descriptions by their key. Those that no request waits for are dropped.
#[derive(Debug, Default)]
pub(super) struct Flights(Mutex<HashMap<String, Weak<Flight>>>);

/// One description. If the request that computes it ends early, another one computes it.
#[derive(Debug)]
pub(super) struct Flight {
    result: OnceCell<Arc<v1::Description>>,
    progress: Progress,
}

/// Where a description reports its progress.
pub(super) type Progress = watch::Sender<v1::FitProgress>;

impl Flights {
    /// Returns the running description of this key, or a new one.
    pub(super) fn join(&self, key: &str) -> Arc<Flight> {
        let mut flights = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = flights.get(key).and_then(Weak::upgrade) {
            return running;
        }
        flights.retain(|_, flight| flight.strong_count() > 0);
        let flight = Arc::new(Flight { result: OnceCell::new(), progress: watch::Sender::default() });
        flights.insert(key.to_owned(), Arc::downgrade(&flight));
        flight
    }
}

impl Flight {
    /// Waits for the result, computed by this call or by another one, and reports progress meanwhile.
    pub(super) async fn share<Computed>(
        &self,
        compute: impl FnOnce(Progress) -> Computed,
        report: impl Fn(v1::FitProgress),
    ) -> Result<Arc<v1::Description>, StreamError>
    where
        Computed: Future<Output = Result<v1::Description, StreamError>>,
    {
        let mut progress = self.progress.subscribe();
        // Earlier reports are treated as seen.
        let latest = *progress.borrow();
        if latest.pass > 0 {
            report(latest);
        }
        let compute = || async { compute(self.progress.clone()).await.map(Arc::new) };
        let mut result = pin!(self.result.get_or_try_init(compute));
        loop {
            tokio::select! {
                biased;
                result = &mut result => return result.map(Arc::clone),
                // This flight keeps the sender.
                Ok(()) = progress.changed() => {
                    let latest = *progress.borrow_and_update();
                    report(latest);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use tokio::sync::Notify;

    use super::*;

    fn description(rows: u64) -> v1::Description {
        v1::Description { rows, ..v1::Description::default() }
    }

    #[tokio::test]
    async fn concurrent_requests_share_one_computation_and_its_progress() {
        let (flights, computed, gate) = (Flights::default(), AtomicU64::new(0), Notify::new());
        let (first, second) = (flights.join("a"), flights.join("a"));
        assert!(Arc::ptr_eq(&first, &second) && !Arc::ptr_eq(&first, &flights.join("b")));
        let compute = |progress: Progress| {
            let (computed, gate) = (&computed, &gate);
            async move {
                computed.fetch_add(1, Ordering::SeqCst);
                progress.send_replace(v1::FitProgress { pass: 1, rows_done: 5, ..v1::FitProgress::default() });
                gate.notified().await;
                Ok(description(7))
            }
        };
        let reported = AtomicU64::new(0);
        let report = |progress: v1::FitProgress| {
            if reported.fetch_add(progress.rows_done, Ordering::SeqCst) > 0 {
                gate.notify_one();
            }
        };
        let (one, two) = tokio::join!(first.share(compute, report), second.share(compute, report));
        assert_eq!((one.unwrap().rows, two.unwrap().rows, computed.load(Ordering::SeqCst)), (7, 7, 1));
        drop((first, second));
        assert_eq!(flights.join("a").share(|_| async { Ok(description(8)) }, |_| ()).await.unwrap().rows, 8);
    }
}
