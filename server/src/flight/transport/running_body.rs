//! The body of a response to a running call, for which a drain waits.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use hyper::body::{Body as ResponseBody, Frame, SizeHint};
use tonic::{Status, body::Body};

use crate::shutdown::Registered;

/// A body during which its call runs.
struct RunningBody {
    body: Body,
    _call: Registered,
}

/// The same body; the call ends when it has been sent or is dropped.
pub(super) fn running_body(body: Body, call: Registered) -> Body {
    Body::new(RunningBody { body, _call: call })
}

impl ResponseBody for RunningBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
