use forebay_runtime::budget::Budget;
use futures::FutureExt;
use http_body_util::{BodyExt, Full};
use tonic::Code;

use super::*;

const LONG_BYTES: usize = 100_000;
const TIME: Duration = Duration::from_secs(10);

fn answer(calls: &CallBudget, bytes: usize, reading: Option<ReadingTime>) -> AnswerBody {
    let body = Body::new(Full::new(Bytes::from(vec![7; bytes])).map_err(|never| match never {}));
    AnswerBody::new(body, Call::new("GetFlightInfo", None), calls.clone(), reading)
}

async fn next(body: &mut AnswerBody) -> Frame<Bytes> {
    body.frame().await.unwrap().unwrap()
}

fn code(frame: &Frame<Bytes>) -> Option<Code> {
    Status::from_header_map(frame.trailers_ref()?).map(|status| status.code())
}

/// Whether the budget has room for this many bytes.
fn has_room(budget: &Budget, bytes: usize) -> bool {
    budget.reserve(bytes as u64).is_ok()
}

#[tokio::test(start_paused = true)]
async fn a_message_is_counted_until_its_last_piece_is_sent() {
    let budget = Budget::new(150_000);
    let calls = CallBudget::new(&budget);
    let mut body = answer(&calls, LONG_BYTES, Some(ReadingTime::Rate(TIME)));
    let mut sent = next(&mut body).await.into_data().unwrap().to_vec();
    assert!(sent.len() <= PIECE_BYTES && !has_room(&budget, 60_000) && has_room(&budget, 50_000));
    // A second one does not fit in addition.
    let mut second = answer(&calls, LONG_BYTES, Some(ReadingTime::Rate(TIME)));
    assert_eq!(code(&next(&mut second).await), Some(Code::ResourceExhausted));
    assert!(second.frame().await.is_none());
    while let Some(frame) = body.frame().await {
        sent.extend(frame.unwrap().into_data().unwrap());
    }
    assert_eq!(sent, vec![7; LONG_BYTES]);
    assert!(has_room(&budget, 150_000));
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_not_read_is_dropped() {
    for reading in [ReadingTime::Rate(TIME), ReadingTime::Idle(TIME)] {
        let budget = Budget::new(150_000);
        let mut body = answer(&CallBudget::new(&budget), LONG_BYTES, Some(reading));
        next(&mut body).await;
        sleep(TIME / 2).await;
        assert!(next(&mut body).await.is_data());
        sleep(TIME / 2 + TIME / 4).await;
        assert!(!has_room(&budget, 150_000));
        sleep(TIME).await;
        assert!(has_room(&budget, 150_000), "{reading:?}");
        assert_eq!(code(&next(&mut body).await), Some(Code::DeadlineExceeded));
        assert!(body.frame().await.is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_read_slower_than_the_lowest_rate_is_dropped() {
    let budget = Budget::new(10 << 20);
    let mut body = answer(&CallBudget::new(&budget), 8 << 20, Some(ReadingTime::Rate(TIME)));
    let mut seconds = 0;
    while next(&mut body).await.is_data() {
        sleep(Duration::from_secs(1)).await;
        seconds += 1;
    }
    assert!((10..25).contains(&seconds), "{seconds}");
    assert!(has_room(&budget, 10 << 20));
}

#[tokio::test]
async fn messages_of_exchanges_are_counted_even_beyond_the_limit() {
    let budget = Budget::new(1000);
    let mut body = answer(&CallBudget::new(&budget), LONG_BYTES, None);
    let frame = next(&mut body).await.into_data().unwrap();
    assert_eq!(frame.len(), LONG_BYTES);
    assert!(body.frame().now_or_never().is_some_and(|end| end.is_none()) && !has_room(&budget, 1));
    drop(frame);
    assert!(has_room(&budget, 1000));
}
