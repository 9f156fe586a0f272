use std::convert::Infallible;

use forebay_runtime::budget::Budget;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use http_body_util::{BodyExt, StreamBody};
use tokio::time;
use tonic::Code;

use super::*;
use crate::flight::call_memory::CallBudget;

const ARRIVAL: Duration = Duration::from_secs(10);

type Frames = StreamBody<UnboundedReceiver<Result<Frame<Bytes>, Infallible>>>;

/// A body whose bytes the test sends.
struct Sender(UnboundedSender<Result<Frame<Bytes>, Infallible>>);

impl Sender {
    fn new() -> (Self, Frames) {
        let (sender, receiver) = unbounded();
        (Self(sender), StreamBody::new(receiver))
    }

    fn send(&self, bytes: &[u8]) {
        self.0.unbounded_send(Ok(Frame::data(Bytes::copy_from_slice(bytes)))).unwrap();
    }
}

/// The start of a message of this length, this many bytes of it.
fn start(length: u32, arrived: usize) -> Vec<u8> {
    // A single field, so that the count of fields is not reached.
    let field = [&[0x12, 0xff, 0xff, 0xff, 0x7f][..], &vec![0; arrived]].concat();
    [&[0][..], &length.to_be_bytes(), &field[..arrived]].concat()
}

fn limits() -> MessageLimits {
    MessageLimits { arrival: ARRIVAL, ..MessageLimits::default() }
}

fn code<T>(frame: Option<Result<T, Status>>) -> Option<Code> {
    frame?.err().map(|status| status.code())
}

#[tokio::test(start_paused = true)]
async fn an_unfinished_request_is_reserved_and_then_refused() {
    let budget = Budget::new(1 << 20);
    let (sender, body) = Sender::new();
    let mut body = ReceivedBody::whole(body, &limits(), CallBudget::new(&budget).request());
    sender.send(&start(8 << 20, 700_000));
    assert!(body.frame().await.unwrap().is_ok());
    assert!(budget.reserve(400_000).is_err());
    sender.send(&vec![0; 700_000]);
    assert_eq!(code(body.frame().await), Some(Code::ResourceExhausted));
    drop(body);
    assert!(budget.reserve(1 << 20).is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_whole_request_must_arrive_in_time_however_it_is_cut() {
    let (sender, body) = Sender::new();
    let mut body = ReceivedBody::whole(body, &limits(), CallBudget::new(&Budget::new(1 << 20)).request());
    let begun = Instant::now();
    let dripping = async {
        loop {
            sleep(ARRIVAL / 4).await;
            sender.send(&start(100, 5)[..2]);
        }
    };
    let reading = async {
        loop {
            if let Err(status) = body.frame().await.unwrap() {
                return status;
            }
        }
    };
    let status = tokio::select! { () = dripping => None, status = reading => Some(status) };
    assert_eq!(status.map(|status| status.code()), Some(Code::DeadlineExceeded));
    assert_eq!(begun.elapsed().as_secs(), ARRIVAL.as_secs());
}

#[tokio::test(start_paused = true)]
async fn a_stream_may_wait_between_messages_and_not_within_one() {
    let budget = Budget::new(1 << 20);
    let (sender, body) = Sender::new();
    let mut body = ReceivedBody::stream(body, &limits(), CallBudget::new(&budget).request(), None);
    sender.send(&start(100_000, 100_000));
    assert!(body.frame().await.unwrap().is_ok());
    assert!(budget.reserve(1 << 20).is_err());
    assert!(time::timeout(ARRIVAL * 100, body.frame()).await.is_err());
    // The message has been processed when more is requested.
    assert!(budget.reserve(1 << 20).is_ok());
    // A long message has more time, as long as it arrives.
    sender.send(&start(400_000, 0));
    for _ in 0..3 {
        assert!(body.frame().await.unwrap().is_ok());
        assert!(time::timeout(ARRIVAL / 4, body.frame()).await.is_err());
        sender.send(&start(0, 100)[5..]);
    }
    assert!(body.frame().await.unwrap().is_ok());
    let begun = Instant::now();
    assert_eq!(code(body.frame().await), Some(Code::DeadlineExceeded));
    assert!(begun.elapsed() <= ARRIVAL);
}

#[tokio::test(start_paused = true)]
async fn the_time_in_which_the_server_asks_for_nothing_does_not_count() {
    let (sender, body) = Sender::new();
    let mut body = ReceivedBody::stream(body, &limits(), CallBudget::new(&Budget::new(1 << 20)).request(), None);
    sender.send(&start(100, 10));
    assert!(body.frame().await.unwrap().is_ok());
    sleep(ARRIVAL * 10).await;
    assert!(time::timeout(ARRIVAL / 2, body.frame()).await.is_err());
}

#[tokio::test]
async fn small_bodies_are_refused_beyond_their_limit() {
    let small = |sent: &[u8]| {
        let (sender, body) = Sender::new();
        let mut body = ReceivedBody::whole(body, &limits(), CallBudget::new(&Budget::new(1 << 30)).request()).small();
        sent.chunks(1000).for_each(|chunk| sender.send(chunk));
        async move {
            drop(sender);
            while let Some(frame) = body.frame().await {
                frame?;
            }
            Ok::<_, Status>(())
        }
    };
    assert!(small(&start(1000, 1000)).await.is_ok());
    assert_eq!(small(&start(100 << 20, 10)).await.unwrap_err().code(), Code::ResourceExhausted);
    // Many messages, each small.
    assert!(small(&start(0, 0).repeat(10_000)).await.is_err());
}
