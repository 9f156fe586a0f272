//! A request that must arrive: one that is begun and never sent would hold its call for ever.
//!
//! One that breaks off is its client's end of the call, where tonic makes it an error of nobody knows whom.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::{Sleep, sleep};
use tonic::Status;

/// The body of a request, up to a deadline.
pub(super) struct RequestTimeout {
    body: Incoming,
    time: Duration,
    /// None once the body has ended.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl RequestTimeout {
    /// The body must have ended within the time.
    pub(super) fn new(body: Incoming, time: Duration) -> Self {
        Self { body, time, deadline: Some(Box::pin(sleep(time))) }
    }
}

/// What a request ends with that breaks off: reset, cut, or against the rules of HTTP/2. tonic takes it for the end of the
/// request, of which its message is then missing.
fn broken_off(error: &hyper::Error) -> Status {
    Status::cancelled(format!("the client ended the call before all of its request had come: {error}"))
}

impl Body for RequestTimeout {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => return Poll::Ready(Some(Ok(frame))),
            Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(broken_off(&error)))),
            Poll::Ready(None) => {
                self.deadline = None;
                return Poll::Ready(None);
            }
            Poll::Pending => {}
        }
        let Some(deadline) = &mut self.deadline else { return Poll::Pending };
        ready!(deadline.as_mut().poll(context));
        Poll::Ready(Some(Err(Status::deadline_exceeded(format!(
            "the call was begun, and its request did not arrive within {} s (--handshake-seconds)",
            self.time.as_secs_f64()
        )))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
