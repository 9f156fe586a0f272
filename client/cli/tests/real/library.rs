//! The library against a real server.

use std::time::Duration;

use arrow::{
    array::{AsArray, RecordBatch},
    datatypes::{Int64Type, UInt64Type},
};
use forebay_client::{
    Batch, Client, Endpoint, Epoch, FitRequest, FitResult, Plan, StreamRequest, TakeRequest, plan_as_stored,
    plan_from_json,
};
use futures::TryStreamExt;
use tokio::time::timeout;
use tonic::Code;

use crate::{
    data::{self, PLAN, WIDE_PLAN},
    server::Server,
};

const BATCH_SIZE: u64 = 16;
const WORLD_SIZE: u64 = 2;

/// Time without a batch after which a stream is considered stalled.
const STARVED: Duration = Duration::from_secs(30);

async fn read(client: &Client, endpoint: &Endpoint) -> Vec<Batch> {
    client.read(endpoint).await.unwrap().try_collect().await.unwrap()
}

fn ids(batch: &RecordBatch) -> Vec<i64> {
    batch.column_by_name("id").unwrap().as_primitive::<Int64Type>().values().to_vec()
}

/// Returns an epoch of two ranks under the fitted plan, from a position.
async fn epoch(client: &Client, start_position: u64) -> Epoch {
    let plan = plan_from_json(PLAN.as_bytes()).unwrap();
    let fitted = client.fit("numbers", plan, |_| {}).await.unwrap();
    let request = StreamRequest {
        dataset: "numbers".into(),
        plan_id: fitted.plan_id,
        batch_size: Some(BATCH_SIZE),
        world_size: Some(WORLD_SIZE),
        epoch: 3,
        seed: 7,
        start_position,
        with_row_ids: true,
        ..Default::default()
    };
    client.stream_info(&request).await.unwrap()
}

#[tokio::test]
async fn lists_datasets_with_sizes_and_the_unreadable_one_with_the_reason() {
    let server = Server::start();
    let client = Client::connect(&server.url).await.unwrap();
    let mut tables = client.list().await.unwrap();
    tables.sort_by(|one, other| one.info.name.cmp(&other.info.name));
    let [broken, numbers] = &tables[..] else { panic!("{tables:?}") };
    assert!(broken.info.name == "broken" && !broken.info.error.is_empty(), "{:?}", broken.info);
    let info = &numbers.info;
    assert_eq!((info.name.as_str(), info.error.as_str()), ("numbers", ""));
    assert_eq!((info.rows, info.files), (data::ROWS as u64, data::FILES as u64));
    assert_eq!(info.row_groups, (data::ROWS / data::ROW_GROUP_ROWS) as u64);
    assert!(info.bytes > 0 && !info.snapshot.is_empty());
    let alone = client.table_info("numbers").await.unwrap();
    assert_eq!((&alone.info, &alone.schema), (info, &numbers.schema));
    assert_eq!(alone.schema.fields().iter().map(|field| field.name()).collect::<Vec<_>>(), ["id", "delay", "carrier"]);
}

#[tokio::test]
async fn reads_the_raw_table_in_file_order() {
    let server = Server::start();
    let client = Client::connect(&server.url).await.unwrap();
    let table = client.table_info("numbers").await.unwrap();
    let batches = read(&client, &table.endpoints[0]).await;
    let read: Vec<i64> = batches.iter().flat_map(|batch| ids(&batch.data)).collect();
    assert_eq!(read, (0..data::ROWS).collect::<Vec<_>>());
    assert_eq!(batches[0].data.schema(), table.schema);
}

#[tokio::test]
async fn an_epoch_has_every_row_once_on_one_rank() {
    let server = Server::start();
    let client = Client::connect(&server.url).await.unwrap();
    let epoch = epoch(&client, 0).await;
    assert_eq!((epoch.info.rows, epoch.endpoints.len()), (data::ROWS as u64, 2));
    let mut seen = Vec::new();
    for (rank, endpoint) in epoch.endpoints.iter().enumerate() {
        let share = endpoint.rank.unwrap();
        let batches = read(&client, endpoint).await;
        assert_eq!((share.rank, share.steps), (rank as u64, batches.len() as u64));
        assert_eq!(batches.iter().map(|batch| batch.header.rows).sum::<u64>(), share.rows);
        for (step, batch) in batches.iter().enumerate() {
            let header = &batch.header;
            let position = step as u64 * BATCH_SIZE * WORLD_SIZE;
            assert_eq!((header.epoch, header.step, header.position), (3, step as u64, position));
            assert_eq!(header.last, step + 1 == batches.len());
            assert_eq!(batch.data.schema(), epoch.schema);
            let row_ids = batch.data.column_by_name("__row_id").unwrap().as_primitive::<UInt64Type>();
            assert!(row_ids.values().iter().map(|&id| id as i64).eq(ids(&batch.data)), "the id of a row is its index");
            seen.extend(ids(&batch.data));
        }
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..data::ROWS).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_resumed_epoch_continues_where_it_stopped() {
    let server = Server::start();
    let client = Client::connect(&server.url).await.unwrap();
    let whole = epoch(&client, 0).await;
    let rest = epoch(&client, BATCH_SIZE * WORLD_SIZE).await;
    for (whole, rest) in whole.endpoints.iter().zip(&rest.endpoints) {
        let (whole, rest) = (read(&client, whole).await, read(&client, rest).await);
        assert_eq!(whole.len(), rest.len() + 1);
        for (expected, found) in whole[1..].iter().zip(&rest) {
            assert_eq!((&expected.header, &expected.data), (&found.header, &found.data));
        }
    }
}

#[tokio::test]
async fn unread_streams_do_not_block_others_on_the_connection() {
    let [server] = Server::replicas("wide", data::write_wide);
    let client = Client::connect(&server.url).await.unwrap();
    let plan = Some(plan_from_json(WIDE_PLAN.as_bytes()).unwrap());
    let request = StreamRequest { dataset: "wide".into(), plan, batch_size: Some(16), ..Default::default() };
    let epoch = client.stream_info(&request).await.unwrap();
    let mut waiting = Vec::new();
    // More than a connection's window would hold if it held only a few full streams.
    for _ in 0..4 {
        let mut stream = client.read(&epoch.endpoints[0]).await.unwrap();
        timeout(STARVED, stream.try_next()).await.unwrap().unwrap();
        waiting.push(stream);
    }
    let batches = timeout(STARVED, read(&client, &epoch.endpoints[0])).await.unwrap();
    assert_eq!(batches.iter().map(|batch| batch.header.rows).sum::<u64>(), data::WIDE_ROWS as u64);
    for stream in &mut waiting {
        assert_eq!(stream.try_next().await.unwrap().unwrap().header.step, 1);
    }
}

#[tokio::test]
async fn a_fit_reports_progress_and_is_deterministic() {
    let server = Server::start();
    let client = Client::connect(&server.url).await.unwrap();
    let plan = plan_from_json(PLAN.as_bytes()).unwrap();
    let mut progress = Vec::new();
    let first = client.fit("numbers", plan.clone(), |update| progress.push(*update)).await.unwrap();
    let second = client.fit("numbers", plan.clone(), |_| panic!("no row is read")).await.unwrap();
    assert_eq!(second, FitResult { cached: Some(true), ..first.clone() });
    let request = FitRequest { dataset: "numbers".into(), plan: Some(plan), refit: true, ..FitRequest::default() };
    assert_eq!(client.fit_request(&request, |_| {}).await.unwrap(), first);
    assert!(progress.iter().all(|update| update.pass <= update.passes && update.rows_done <= update.rows_total));
    // A fitted plan has no missing parameters, so it keeps its id.
    let again = client.fit("numbers", first.plan.clone().unwrap(), |_| {}).await.unwrap();
    assert_eq!(first.plan_id, again.plan_id);
}

#[tokio::test]
async fn takes_rows_in_the_order_of_the_request() {
    let server = Server::start();
    let client = Client::connect(&server.url).await.unwrap();
    let plan = plan_as_stored(&client.table_info("numbers").await.unwrap().schema);
    let request = TakeRequest { dataset: "numbers".into(), plan: Some(plan.clone()), ..Default::default() };
    let take = async |request: &TakeRequest| -> Result<Vec<Vec<i64>>, _> {
        client.take(request).await?.map_ok(|batch| ids(&batch.data)).try_collect().await
    };
    let numbers = vec![99, 0, 26, 99, 25];
    let by_id = TakeRequest { row_ids: numbers.clone(), batch_size: Some(2), ..request.clone() };
    assert_eq!(take(&by_id).await.unwrap(), [vec![99, 0], vec![26, 99], vec![25]]);
    let filtered = Plan { filter: "id % 2 = 1".into(), ..plan };
    let by_position = TakeRequest { positions: vec![49, 0], plan: Some(filtered), ..request.clone() };
    assert_eq!(take(&by_position).await.unwrap(), [[99, 1]]);
    assert_eq!(take(&request).await.unwrap(), [Vec::<i64>::new()]);
    let error = take(&TakeRequest { row_ids: vec![1, 100], ..request }).await.unwrap_err();
    assert_eq!(error.code(), Some(Code::InvalidArgument));
    assert!(error.to_string().contains("row_ids[1]: 100 is not below 100"), "{error}");
}

#[tokio::test]
async fn errors_keep_the_servers_code_and_message() {
    let server = Server::start();
    let client = Client::connect(&server.url).await.unwrap();
    let error = client.table_info("number").await.unwrap_err();
    assert_eq!(error.code(), Some(Code::NotFound), "{error}");
    assert!(error.to_string().contains("numbers"), "lists near names: {error}");
    let plan = Some(plan_from_json(PLAN.as_bytes()).unwrap());
    let request = StreamRequest { dataset: "numbers".into(), plan, ..Default::default() };
    let error = client.stream_info(&request).await.unwrap_err();
    assert_eq!(error.code(), Some(Code::FailedPrecondition), "{error}");
    assert!(error.to_string().contains("fit"), "names the remedy: {error}");
    let error = client.read(&Endpoint { ticket: "nonsense".into(), ..Default::default() }).await;
    assert_eq!(error.unwrap_err().code(), Some(Code::InvalidArgument));
}

#[tokio::test]
async fn serves_on_a_unix_socket() {
    let server = Server::listen(|folder| format!("unix:{}", folder.join("socket").display()));
    let path = server.folder.path().join("socket");
    for url in [format!("grpc+unix://{}", path.display()), format!("unix:{}", path.display())] {
        assert_eq!(Client::connect(&url).await.unwrap().list().await.unwrap().len(), 2, "{url}");
    }
}
