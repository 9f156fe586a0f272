//! Shuffled epochs, cost estimates and replays.

use std::{collections::BTreeSet, fs, sync::Arc, time::Duration};

use arrow::{array::AsArray, datatypes::UInt64Type};
use forebay_client::{
    Assumptions, Batch, Client, Cursor, Error, RankStream, ReplayRequest, Replicas, Retry, StreamRequest,
    plan_from_json,
};
use futures::TryStreamExt;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    command_line::{json_lines, stdout},
    data::{self, PLAN},
    proxy::{Fault, Proxy},
    server::{Server, forebay},
};

const RETRY: Retry = Retry { passes_max: 5, pause_first: Duration::from_millis(10), deadline: Duration::from_secs(30) };

/// Batches of 8 rows on two ranks; 16 lanes with windows of 4 rows.
async fn request(server: &Server) -> StreamRequest {
    let client = Client::connect(&server.url).await.unwrap();
    let fitted = client.fit("numbers", plan_from_json(PLAN.as_bytes()).unwrap(), |_| {}).await.unwrap();
    StreamRequest {
        dataset: "numbers".into(),
        plan: fitted.plan,
        batch_size: Some(8),
        world_size: Some(2),
        epoch: 3,
        seed: 7,
        shuffle: true,
        window_rows: Some(4),
        with_row_ids: true,
        ..Default::default()
    }
}

fn replicas(urls: &[&str]) -> Replicas {
    Replicas::new(urls).unwrap().with_retry(RETRY)
}

async fn open(url: &str, request: &StreamRequest, rank: u64) -> RankStream {
    replicas(&[url]).open(request, rank).await.unwrap()
}

async fn rest(stream: RankStream) -> Vec<Batch> {
    stream.try_collect().await.unwrap()
}

fn row_ids(batch: &Batch) -> Vec<u64> {
    batch.data.column_by_name("__row_id").unwrap().as_primitive::<UInt64Type>().values().to_vec()
}

fn check_same(found: &[Batch], expected: &[Batch]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!((&found.header, &found.data), (&expected.header, &expected.data));
    }
}

#[tokio::test]
async fn a_shuffled_epoch_has_every_row_once_in_an_order_of_seed_and_epoch() {
    let [one, other] = Server::replicas("numbers", data::write);
    let request = request(&one).await;
    let order = async |url: &str, request: &StreamRequest| {
        let mut rows = Vec::new();
        for rank in 0..2 {
            rows.extend(rest(open(url, request, rank).await).await.iter().flat_map(row_ids));
        }
        rows
    };
    let rows = order(&one.url, &request).await;
    assert_eq!((rows.len(), rows.iter().collect::<BTreeSet<_>>().len()), (100, 100));
    assert_eq!(order(&other.url, &request).await, rows, "the same on any replica");
    for changed in [
        StreamRequest { epoch: 4, ..request.clone() },
        StreamRequest { seed: 8, ..request.clone() },
        StreamRequest { shuffle: false, ..request.clone() },
    ] {
        assert_ne!(order(&one.url, &changed).await, rows);
    }
}

#[tokio::test]
async fn a_connection_cut_anywhere_loses_no_row_of_a_shuffled_epoch() {
    let [one, other] = Server::replicas("numbers", data::write);
    let request = request(&one).await;
    let sound = Proxy::start(&one.url, Vec::new());
    let expected = rest(open(&sound.url, &request, 1).await).await;
    assert_eq!(expected.len(), 7);
    for bytes in (1..sound.bytes()).step_by(sound.bytes() / 20) {
        let proxy = Proxy::start(&one.url, vec![Fault::CutAfter(bytes)]);
        let stream = replicas(&[&proxy.url, &other.url]).open(&request, 1).await.unwrap();
        check_same(&rest(stream).await, &expected);
    }
}

#[tokio::test]
async fn an_epoch_resumes_at_another_world_size_with_all_remaining_rows() {
    let server = Server::start();
    let request = request(&server).await;
    let mut taken = BTreeSet::new();
    let mut cursors = BTreeSet::new();
    for rank in 0..2 {
        let mut stream = open(&server.url, &request, rank).await;
        assert_eq!((stream.info().lanes, stream.info().window_rows), (16, 4));
        for _ in 0..2 {
            taken.extend(row_ids(&stream.try_next().await.unwrap().unwrap()));
        }
        cursors.insert(stream.cursor().to_json());
    }
    assert_eq!((taken.len(), cursors.len()), (32, 1), "{cursors:?}");
    let cursor = Cursor::from_json(cursors.first().unwrap()).unwrap();
    assert_eq!((cursor.position, cursor.lanes, cursor.window_rows), (32, Some(16), Some(4)));
    assert!(cursor.order_version > 0, "{cursor:?}");
    for (world_size, batch_size) in [(1, 8), (4, 8), (8, 3), (16, 100)] {
        let overridden = StreamRequest {
            world_size: Some(world_size),
            batch_size: Some(batch_size),
            seed: 0,
            shuffle: false,
            window_rows: None,
            ..request.clone()
        };
        let mut rows = taken.clone();
        let mut count = taken.len();
        for rank in 0..world_size {
            let mut stream = replicas(&[&server.url]).open_at(&overridden, rank, &cursor).await.unwrap();
            while let Some(batch) = stream.try_next().await.unwrap() {
                count += batch.data.num_rows();
                rows.extend(row_ids(&batch));
            }
            assert_eq!((stream.cursor().epoch, stream.cursor().position), (4, 0));
        }
        assert_eq!((count, rows.len()), (100, 100), "world size {world_size}");
    }
    let three = StreamRequest { world_size: Some(3), ..request };
    let error = replicas(&[&server.url]).open_at(&three, 0, &cursor).await.err().unwrap();
    assert!(matches!(error, Error::Cursor(_)) && error.to_string().contains("16 lanes"), "{error}");
}

#[tokio::test]
async fn fails_over_to_replicas_reported_by_the_server() {
    let folder = Arc::new(TempDir::new().unwrap());
    data::write(&folder.path().join("numbers"));
    let start = |state: &str, more: &[&str]| {
        let arguments = [&["--state", state, "--listen", "127.0.0.1:0"], more].concat();
        Server::over(Arc::clone(&folder), &["numbers"], &arguments)
    };
    let other = start("state-1", &[]);
    let one = start("state-0", &["--advertise", &other.url]);
    let request = request(&one).await;
    let sound = Proxy::start(&one.url, Vec::new());
    let expected = rest(open(&sound.url, &request, 0).await).await;
    // The connection is cut within the last batches, after the other server's URL arrived.
    let proxy = Proxy::start(&one.url, vec![Fault::CutAfter(sound.bytes() - 1000)]);
    let mut stream = open(&proxy.url, &request, 0).await;
    let mut found = Vec::new();
    while let Some(batch) = stream.try_next().await.unwrap() {
        found.push(batch);
    }
    check_same(&found, &expected);
    assert_eq!((stream.url(), proxy.connections()), (other.url.as_str(), 1));
}

#[tokio::test]
async fn a_replay_returns_the_rows_of_a_batch_and_the_batch() {
    let server = Server::start();
    let client = Client::connect(&server.url).await.unwrap();
    for shuffle in [false, true] {
        let stream = StreamRequest { shuffle, ..request(&server).await };
        let batches = rest(open(&server.url, &stream, 1).await).await;
        for step in [0, 3, batches.len() - 1] {
            let expected = &batches[step];
            let replay_request = ReplayRequest { stream: Some(stream.clone()), rank: 1, step: step as u64 };
            let found = client.replay(&replay_request).await.unwrap();
            assert_eq!(found.rows.iter().map(|row| row.row_id).collect::<Vec<_>>(), row_ids(expected));
            for row in &found.rows {
                let group = data::ROW_GROUP_ROWS as u64;
                let (file, in_file) = (row.row_id / (2 * group), row.row_id % (2 * group));
                assert!(row.file.ends_with(&format!("part-{file}.parquet")), "{row:?}");
                assert_eq!((row.row_group, row.row), (in_file / group, in_file % group), "{row:?}");
            }
            let batch = client.replayed(&found).await.unwrap();
            assert_eq!((&batch.header, &batch.data), (&expected.header, &expected.data));
        }
    }
}

#[tokio::test]
async fn an_explanation_matches_the_stream() {
    let server = Server::start();
    let client = Client::connect(&server.url).await.unwrap();
    let request = request(&server).await;
    let epoch = client.stream_info(&request).await.unwrap();
    let assume = Assumptions { wire_bytes_per_second: 1000.0, ..Default::default() };
    let costs = client.explain(&StreamRequest { assume: Some(assume), ..request }).await.unwrap();
    assert_eq!((costs.rows, costs.steps, costs.lanes), (100, epoch.info.steps, 16));
    assert_eq!((&costs.snapshot, &costs.plan_id), (&epoch.info.snapshot, &epoch.info.plan_id));
    for (rank, endpoint) in costs.ranks.iter().zip(&epoch.endpoints) {
        let share = endpoint.rank.unwrap();
        assert_eq!((rank.rank, rank.rows, rank.steps), (share.rank, share.rows, share.steps));
    }
    assert!(costs.read_amplification >= 1.0 && costs.memory_bytes > 0 && costs.bound_by == "wire", "{costs:?}");
}

#[test]
fn explain_estimates_real_and_assumed_datasets() {
    let server = Server::start();
    let folder = server.folder.path();
    let paper = "explain --rows 2000000000 --row-bytes 1024 --world-size 16 --wire-bytes-per-second 2e9";
    // Arithmetic needs no server.
    let nowhere = ["--server", "grpc://127.0.0.1:1"].into_iter();
    let text = stdout(&mut forebay(&nowhere.chain(paper.split(' ')).collect::<Vec<_>>()));
    for part in ["2.048 TB", "128 GB", "64 s", "2,000,000,000"] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    fs::write(folder.join("plan.json"), PLAN).unwrap();
    let fitted = stdout(&mut server.forebay(&["fit", "numbers", "--plan", "plan.json", "--json"]));
    fs::write(folder.join("fitted.json"), fitted).unwrap();
    let stream = ["--plan", "fitted.json", "--world-size", "2", "--batch-size", "8", "--shuffle"];
    let text = stdout(&mut server.forebay(&[&["explain", "numbers"][..], &stream].concat()));
    assert!(text.contains("shuffled: 16 lanes") && text.contains("RANK"), "{text}");
    let json = stdout(&mut server.forebay(&[&["explain", "numbers", "--json"][..], &stream].concat()));
    let costs: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&costs["rows"], &costs["steps"], &costs["ranks"][1]["rows"]), (&json!(100), &json!(7), &json!(50)));

    let replay = [&["replay", "numbers", "--rank", "1", "--step", "2", "--seed", "7"][..], &stream].concat();
    let text = stdout(&mut server.forebay(&replay));
    assert!(text.starts_with("epoch     0\nstep      2\nposition  32\n") && text.contains("ROW GROUP"), "{text}");
    let rows = json_lines(&stdout(&mut server.forebay(&[&replay[..], &["--json", "--rows-only"]].concat())));
    assert_eq!(rows.len(), 8);
    let whole = stdout(&mut server.forebay(&[&replay[..], &["--json", "--output", "batch.arrow"]].concat()));
    let whole: Value = serde_json::from_str(&whole).unwrap();
    assert_eq!(whole["rows"], json!(rows));
    let file = fs::File::open(folder.join("batch.arrow")).unwrap();
    let batches: Vec<_> = arrow::ipc::reader::FileReader::try_new(file, None).unwrap().map(Result::unwrap).collect();
    let ids: Vec<u64> = batches[0]
        .column_by_name("id")
        .unwrap()
        .as_primitive::<arrow::datatypes::Int64Type>()
        .values()
        .iter()
        .map(|&id| id as u64)
        .collect();
    assert_eq!(json!(ids), rows.iter().map(|row| row["row_id"].clone()).collect::<Value>());
    let output = server.forebay(&["replay", "numbers", "--plan", "fitted.json", "--step", "999"]).output().unwrap();
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && messages.contains("step"), "{messages}");
    drop(server);
    assert_eq!(forebay(&["--server", "grpc://127.0.0.1:1", "explain", "a"]).output().unwrap().status.code(), Some(1));
}
