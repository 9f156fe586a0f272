//! Bounds the time in which a request must arrive; a call whose request is never sent would be held indefinitely.
//!
//! An interrupted request ends with CANCELLED, where tonic would report an error of the server.

use std::{
    fmt::Display,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use forebay_proto::v1::Reason;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Sleep, sleep};
use tonic::Status;

use crate::flight::status;

/// The body of a request with a deadline.
pub(super) struct RequestTimeout<B> {
    body: B,
    time: Duration,
    /// None once the body has ended.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<B> RequestTimeout<B> {
    /// The body must end within the time.
    pub(super) fn new(body: B, time: Duration) -> Self {
        Self { body, time, deadline: Some(Box::pin(sleep(time))) }
    }
}

/// The status of a request that was reset, truncated or in violation of HTTP/2. tonic would take it for a complete
/// request without a message.
fn incomplete(error: &impl Display) -> Status {
    status::refusal(Reason::Cancelled, &format!("client disconnected before the request completed: {error}"))
}

impl<B: Body<Data = Bytes, Error: Display> + Unpin> Body for RequestTimeout<B> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => return Poll::Ready(Some(Ok(frame))),
            Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(incomplete(&error)))),
            Poll::Ready(None) => {
                self.deadline = None;
                return Poll::Ready(None);
            }
            Poll::Pending => {}
        }
        let Some(deadline) = &mut self.deadline else { return Poll::Pending };
        ready!(deadline.as_mut().poll(context));
        Poll::Ready(Some(Err(status::refusal(
            Reason::Deadline,
            &format!("the request did not arrive within {} s (--handshake-seconds)", self.time.as_secs_f64()),
        ))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
