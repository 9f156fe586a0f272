//! Streams that survive the failure of servers and connections, and cursors that outlive their streams.

use std::time::Duration;

use forebay_client::{
    Batch, Client, Cursor, Error, RankStream, Reason, Replicas, Retry, StreamRequest, plan_from_json,
};
use futures::TryStreamExt;
use rustix::process::{Pid, Signal, kill_process};
use tonic::Code;

use crate::{
    data::{self, PLAN, WIDE_PLAN},
    proxy::{Fault, Proxy},
    server::Server,
};

const RANK: u64 = 1;

/// Short pauses and a short deadline.
const RETRY: Retry = Retry { passes_max: 5, pause_first: Duration::from_millis(10), deadline: Duration::from_secs(30) };

/// Batches of 4 rows for two ranks. The fitted plan is inline, so that every replica has it.
async fn numbers(server: &Server) -> StreamRequest {
    let client = Client::connect(&server.url).await.unwrap();
    let fitted = client.fit("numbers", plan_from_json(PLAN.as_bytes()).unwrap(), |_| {}).await.unwrap();
    StreamRequest {
        dataset: "numbers".into(),
        plan: fitted.plan,
        batch_size: Some(4),
        world_size: Some(2),
        epoch: 3,
        seed: 7,
        with_row_ids: true,
        ..Default::default()
    }
}

fn wide() -> StreamRequest {
    let plan = Some(plan_from_json(WIDE_PLAN.as_bytes()).unwrap());
    StreamRequest { dataset: "wide".into(), plan, batch_size: Some(16), ..Default::default() }
}

fn replicas(urls: &[&str]) -> Replicas {
    Replicas::new(urls).unwrap().with_retry(RETRY)
}

async fn whole(server: &Server, request: &StreamRequest, rank: u64) -> Vec<Batch> {
    replicas(&[&server.url]).open(request, rank).await.unwrap().try_collect().await.unwrap()
}

fn check_same(found: &[Batch], expected: &[Batch]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found.header, expected.header);
        assert!(found.data == expected.data, "step {}", found.header.step);
    }
}

/// Reads up to this many steps.
async fn take(stream: &mut RankStream, steps: usize) -> Vec<Batch> {
    let mut batches = Vec::new();
    while batches.len() < steps
        && let Some(batch) = stream.try_next().await.unwrap()
    {
        batches.push(batch);
    }
    batches
}

#[tokio::test]
async fn a_connection_cut_anywhere_loses_and_repeats_no_row() {
    let [one, other] = Server::replicas("numbers", data::write);
    let request = numbers(&one).await;
    let sound = Proxy::start(&one.url, Vec::new());
    let expected: Vec<Batch> = replicas(&[&sound.url]).open(&request, RANK).await.unwrap().try_collect().await.unwrap();
    assert_eq!(expected.len(), 13);
    for bytes in (1..sound.bytes()).step_by(sound.bytes() / 20) {
        let proxy = Proxy::start(&one.url, vec![Fault::CutAfter(bytes)]);
        let mut stream = replicas(&[&proxy.url, &other.url]).open(&request, RANK).await.unwrap();
        let found = take(&mut stream, usize::MAX).await;
        check_same(&found, &expected);
        assert_eq!((stream.cursor().epoch, stream.cursor().position), (4, 0), "cut after {bytes}");
    }
}

#[tokio::test]
async fn retries_a_single_server_and_resets_the_limits_with_each_batch() {
    let [server] = Server::replicas("wide", data::write_wide);
    let request = wide();
    let expected = whole(&server, &request, 0).await;
    // More cuts than passes. One or two batches of half a megabyte arrive between cuts.
    let cuts = vec![Fault::CutAfter(1 << 20); 2 * RETRY.passes_max as usize];
    let proxy = Proxy::start(&server.url, cuts);
    let found: Vec<Batch> = replicas(&[&proxy.url]).open(&request, 0).await.unwrap().try_collect().await.unwrap();
    check_same(&found, &expected);
    assert_eq!(proxy.connections(), 2 * RETRY.passes_max as usize + 1);
}

#[tokio::test]
async fn reads_a_corrupt_batch_again_from_another_replica() {
    let [one, other] = Server::replicas("wide", data::write_wide);
    let request = wide();
    let expected = whole(&one, &request, 0).await;
    // Nearly all bytes sent are text.
    let lying = Proxy::start(&one.url, vec![Fault::FlipAt(1_300_000)]);
    let sound = Proxy::start(&other.url, Vec::new());
    let found = replicas(&[&lying.url, &sound.url]).open(&request, 0).await.unwrap().try_collect::<Vec<_>>().await;
    check_same(&found.unwrap(), &expected);
    assert_eq!((lying.connections(), sound.connections()), (1, 1));
    let lying = Proxy::start(&one.url, vec![Fault::FlipAt(1_300_000)]);
    let never = Retry { deadline: Duration::ZERO, ..RETRY };
    let found = Replicas::new([&lying.url]).unwrap().with_retry(never).open(&request, 0).await.unwrap();
    let error = found.try_collect::<Vec<_>>().await.unwrap_err();
    assert!(matches!(error, Error::Header { .. }), "{error}");
}

#[tokio::test]
async fn fails_over_when_the_server_is_killed() {
    let [mut one, other] = Server::replicas("wide", data::write_wide);
    let request = wide();
    let expected = whole(&other, &request, 0).await;
    let mut stream = replicas(&[&one.url, &other.url]).open(&request, 0).await.unwrap();
    let mut found = take(&mut stream, 3).await;
    assert_eq!(stream.url(), one.url);
    one.kill();
    found.extend(take(&mut stream, usize::MAX).await);
    assert_eq!(stream.url(), other.url);
    check_same(&found, &expected);
    // No replica remains; the error says where to resume.
    let mut stream = replicas(&[&other.url]).open(&request, 0).await.unwrap();
    let taken = take(&mut stream, 2).await;
    let mut other = other;
    other.kill();
    let error = loop {
        match stream.try_next().await {
            Ok(batch) => assert!(batch.is_some(), "32 MB exceed all buffers"),
            Err(error) => break error,
        }
    };
    let Error::GaveUp { position, .. } = &error else { panic!("{error}") };
    assert!(*position >= taken.len() as u64 * 16 && *position == stream.cursor().position, "{error}");
    assert!(error.to_string().contains(&other.url), "{error}");
    assert!(stream.try_next().await.unwrap().is_none(), "an error ends the stream");
}

#[tokio::test]
async fn passes_over_a_server_that_drains() {
    let [one, other] = Server::replicas("wide", data::write_wide);
    let request = wide();
    let expected = whole(&other, &request, 0).await;
    // Its client reads slowly: the server keeps draining.
    let mut running = replicas(&[&one.url]).open(&request, 0).await.unwrap();
    let mut found = take(&mut running, 1).await;
    let client = Client::connect(&one.url).await.unwrap();
    kill_process(Pid::from_raw(one.id().cast_signed()).unwrap(), Signal::TERM).unwrap();
    let refused = loop {
        match client.list().await {
            Ok(_) => tokio::task::yield_now().await,
            Err(error) => break error,
        }
    };
    assert_eq!((refused.code(), refused.reason()), (Some(Code::Unavailable), Reason::ShuttingDown), "{refused}");
    assert!(refused.to_string().contains("draining: resume at another replica"), "{refused}");
    let stream = replicas(&[&one.url, &other.url]).open(&request, 0).await.unwrap();
    assert_eq!(stream.url(), other.url);
    check_same(&stream.try_collect::<Vec<_>>().await.unwrap(), &expected);
    found.extend(take(&mut running, usize::MAX).await);
    check_same(&found, &expected);
    one.wait_for_end(Duration::from_mins(1)).await;
}

#[tokio::test]
async fn resumes_an_epoch_from_a_cursor_in_another_process() {
    let [one, other] = Server::replicas("numbers", data::write);
    let request = numbers(&one).await;
    for rank in 0..2 {
        let expected = whole(&one, &request, rank).await;
        for steps in 0..expected.len() {
            let mut stream = replicas(&[&one.url]).open(&request, rank).await.unwrap();
            take(&mut stream, steps).await;
            let text = stream.cursor().to_json();
            assert!(text.len() <= 300, "{text}");
            let cursor = Cursor::from_json(&text).unwrap();
            assert_eq!((cursor.epoch, cursor.position), (3, steps as u64 * 8));
            assert_eq!(cursor.snapshot.is_empty(), steps == 0);
            // Overridden by the cursor.
            let overridden = StreamRequest { epoch: 0, seed: 0, ..request.clone() };
            let mut stream = replicas(&[&other.url]).open_at(&overridden, rank, &cursor).await.unwrap();
            assert_eq!(stream.cursor(), &cursor);
            check_same(&take(&mut stream, usize::MAX).await, &expected[steps..]);
            assert_eq!((stream.cursor().epoch, stream.cursor().position), (4, 0));
        }
    }
}

#[tokio::test]
async fn every_rank_has_the_same_cursor_after_the_same_step() {
    let server = Server::start();
    for remainder in 0..3 {
        let request = StreamRequest { world_size: Some(3), batch_size: Some(11), remainder, ..numbers(&server).await };
        let mut places: Vec<Vec<String>> = Vec::new();
        for rank in 0..3 {
            let mut stream = replicas(&[&server.url]).open(&request, rank).await.unwrap();
            while let Some(batch) = stream.try_next().await.unwrap() {
                let step = batch.header.step as usize;
                places.resize(places.len().max(step + 1), Vec::new());
                places[step].push(stream.cursor().to_json());
            }
        }
        assert!(places.iter().all(|step| step.iter().all(|place| *place == step[0])), "{places:?}");
        let last = Cursor::from_json(&places[places.len() - 1][0]).unwrap();
        assert_eq!((last.epoch, last.position), (4, 0));
    }
}

#[tokio::test]
async fn returns_permanent_errors_without_a_retry() {
    let server = Server::start();
    let proxy = Proxy::start(&server.url, Vec::new());
    let request = numbers(&server).await;
    let cases = [
        (StreamRequest { snapshot: "beef".repeat(8), ..request.clone() }, Code::Aborted),
        (StreamRequest { start_position: 3, ..request.clone() }, Code::InvalidArgument),
        (StreamRequest { dataset: "none".into(), ..request.clone() }, Code::NotFound),
    ];
    for (tries, (wrong, code)) in cases.into_iter().enumerate() {
        let error = replicas(&[&proxy.url]).open(&wrong, 0).await.err().unwrap();
        assert_eq!((error.code(), proxy.connections()), (Some(code), tries + 1), "{error}");
    }
    let error = replicas(&[&proxy.url]).open(&request, 2).await.err().unwrap();
    assert!(matches!(error, Error::Rank { rank: 2, world_size: 2 }), "{error}");
    // Skips a replica without the dataset, and an unreachable one.
    let unreachable = "grpc://127.0.0.1:1";
    let [other] = Server::replicas("wide", data::write_wide);
    let stream = replicas(&[&other.url, unreachable, &server.url]).open(&request, 0).await.unwrap();
    assert_eq!(stream.url(), server.url);
}

#[tokio::test]
async fn rejects_a_cursor_of_other_files_or_of_another_plan() {
    let server = Server::start();
    let request = numbers(&server).await;
    let mut stream = replicas(&[&server.url]).open(&request, 0).await.unwrap();
    take(&mut stream, 1).await;
    let cursor = stream.cursor();
    let other_files = Cursor { snapshot: "beef".repeat(8), ..cursor.clone() };
    let error = replicas(&[&server.url]).open_at(&request, 0, &other_files).await.err().unwrap();
    assert_eq!(error.code(), Some(Code::Aborted), "{error}");
    let plan = Some(plan_from_json(br#"{"outputs": [{"name": "id", "parts": [{"columns": ["id"]}]}]}"#).unwrap());
    let other_plan = StreamRequest { plan, ..request.clone() };
    let error = replicas(&[&server.url]).open_at(&other_plan, 0, cursor).await.err().unwrap();
    assert!(matches!(error, Error::Cursor(_)) && error.to_string().contains("under plan"), "{error}");
    // Its epoch ends before the position: the error is about the plan, not the position.
    let short = br#"{"filter": "id < 2", "outputs": [{"name": "id", "parts": [{"columns": ["id"]}]}]}"#;
    let shorter = StreamRequest { plan: Some(plan_from_json(short).unwrap()), ..request.clone() };
    let error = replicas(&[&server.url]).open_at(&shorter, 0, cursor).await.err().unwrap();
    assert!(matches!(error, Error::Cursor(_)) && error.to_string().contains("under plan"), "{error}");
    let other_ranks = StreamRequest { world_size: Some(4), ..request };
    let error = replicas(&[&server.url]).open_at(&other_ranks, 0, cursor).await.err().unwrap();
    assert!(error.to_string().contains("resume at world size 2"), "{error}");
}
