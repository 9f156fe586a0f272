//! `DoExchange`: the library's call, and malformed messages.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, DictionaryArray, Float64Array, Int64Array, RecordBatch, StringArray},
    datatypes::Int32Type,
    ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions},
};
use arrow_flight::{FlightData, FlightDescriptor, flight_service_client::FlightServiceClient};
use bytes::Bytes;
use forebay_client::{Client, ExchangeRequest, StreamRequest, plan_from_json};
use futures::TryStreamExt;
use tonic::{Code, Status, transport::Channel};

use crate::{
    data::{self, PLAN},
    server::Server,
};

async fn fitted(client: &Client) -> String {
    client.fit("numbers", plan_from_json(PLAN.as_bytes()).unwrap(), |_| {}).await.unwrap().plan_id
}

#[tokio::test]
async fn returns_the_outputs_of_a_stream_batch_for_batch() {
    let server = Server::start();
    let client = Client::connect(&server.url).await.unwrap();
    let plan_id = fitted(&client).await;
    let request = StreamRequest {
        dataset: "numbers".into(),
        plan_id: plan_id.clone(),
        batch_size: Some(data::ROW_GROUP_ROWS as u64),
        ..Default::default()
    };
    let epoch = client.stream_info(&request).await.unwrap();
    let streamed: Vec<_> = client.read(&epoch.endpoints[0]).await.unwrap().try_collect().await.unwrap();
    let table = client.table_info("numbers").await.unwrap();
    let raw: Vec<_> = client.read(&table.endpoints[0]).await.unwrap().try_collect().await.unwrap();
    assert_eq!(raw.len(), streamed.len());

    let request = ExchangeRequest { plan_id, plan: None };
    let sent = futures::stream::iter(raw.into_iter().map(|batch| batch.data));
    let answers = client.exchange(&request, Arc::clone(&table.schema), sent).await.unwrap();
    let answers: Vec<RecordBatch> = answers.try_collect().await.unwrap();
    assert_eq!(answers, streamed.into_iter().map(|batch| batch.data).collect::<Vec<_>>());

    let unknown = ExchangeRequest { plan_id: "ab".into(), plan: None };
    let answers = client.exchange(&unknown, table.schema, futures::stream::empty()).await.unwrap();
    let error = answers.try_collect::<Vec<_>>().await.unwrap_err();
    assert!(error.to_string().contains("no fitted plan"), "{error}");
}

/// Returns the messages of an exchange of one batch, as a library sends them.
fn sound(plan_id: &str) -> Vec<FlightData> {
    let words: DictionaryArray<Int32Type> = ["AA", "B6", "UA", "AA"].into_iter().map(Some).collect();
    let columns: [(&str, ArrayRef); 4] = [
        ("id", Arc::new(Int64Array::from(vec![1, 2, 3, 4]))),
        ("delay", Arc::new(Float64Array::from(vec![Some(1.0), None, Some(3.0), Some(4.0)]))),
        ("carrier", Arc::new(words)),
        ("more", Arc::new(StringArray::from(vec![Some("x"), None, Some(""), Some("y")]))),
    ];
    let batch = RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, name != "id")));
    let (batch, options) = (batch.unwrap(), IpcWriteOptions::default());
    let (generator, mut tracker) = (IpcDataGenerator::default(), DictionaryTracker::new(false));
    let schema = generator.schema_to_bytes_with_dictionary_tracker(&batch.schema(), &mut tracker, &options);
    let (dictionaries, batch) =
        generator.encode(&batch, &mut tracker, &options, &mut IpcWriteContext::default()).unwrap();
    let mut messages: Vec<FlightData> = [schema]
        .into_iter()
        .chain(dictionaries)
        .chain([batch])
        .map(|encoded| FlightData {
            data_header: encoded.ipc_message.into(),
            data_body: encoded.arrow_data.into(),
            ..FlightData::default()
        })
        .collect();
    let command = format!(r#"{{"plan_id": "{plan_id}"}}"#);
    messages[0].flight_descriptor = Some(FlightDescriptor::new_cmd(command.into_bytes()));
    messages
}

async fn send(flight: &FlightServiceClient<Channel>, messages: Vec<FlightData>) -> Result<usize, Status> {
    let answers = flight.clone().do_exchange(futures::stream::iter(messages)).await?;
    Ok(answers.into_inner().try_collect::<Vec<_>>().await?.len())
}

#[tokio::test]
async fn rejects_corrupt_messages_and_keeps_serving() {
    let server = Server::start();
    let client = Client::connect(&server.url).await.unwrap();
    let plan_id = fitted(&client).await;
    let channel = Channel::from_shared(server.url.replace("grpc://", "http://")).unwrap().connect().await.unwrap();
    let flight = FlightServiceClient::new(channel);
    let sound = sound(&plan_id);
    assert_eq!(send(&flight, sound.clone()).await.unwrap(), 2);

    let mut refused = 0;
    let mut random = 11_u64;
    let mut below = |end: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((random >> 33) as usize) % end
    };
    for _ in 0..1500 {
        let mut messages = sound.clone();
        let victim = &mut messages[below(sound.len())];
        let part = if below(4) == 0 { &mut victim.data_body } else { &mut victim.data_header };
        let mut bytes = part.to_vec();
        for _ in 0..=below(4) {
            if !bytes.is_empty() {
                let (place, byte) = (below(bytes.len()), [0, 1, 0x7f, 0x80, 0xff][below(5)]);
                bytes[place] = byte;
            }
        }
        if below(16) == 0 {
            bytes.truncate(below(bytes.len() + 1));
        }
        *part = Bytes::from(bytes);
        if let Err(status) = send(&flight, messages).await {
            refused += 1;
            // Another name or type of a column is a valid message, and so are values that an output cannot represent.
            let is_theirs = matches!(status.code(), Code::InvalidArgument | Code::FailedPrecondition);
            assert!(is_theirs, "{status:?}");
            assert!(!status.message().contains("contradict"), "{status:?}");
        }
    }
    assert!(refused > 200, "{refused}");
    assert_eq!(send(&flight, sound).await.unwrap(), 2);
}

#[tokio::test]
async fn rejects_messages_out_of_order() {
    let server = Server::start();
    let client = Client::connect(&server.url).await.unwrap();
    let plan_id = fitted(&client).await;
    let channel = Channel::from_shared(server.url.replace("grpc://", "http://")).unwrap().connect().await.unwrap();
    let flight = FlightServiceClient::new(channel);
    let messages = sound(&plan_id);
    let (schema, dictionary, batch) = (&messages[0], &messages[1], &messages[2]);
    let descriptor = schema.flight_descriptor.clone();
    let only = |flight_descriptor| FlightData { flight_descriptor, ..FlightData::default() };
    let bare = FlightData { flight_descriptor: None, ..schema.clone() };

    // The descriptor may be a separate message, and empty messages may follow.
    let apart = vec![only(descriptor.clone()), bare.clone(), only(None), dictionary.clone(), batch.clone()];
    assert_eq!(send(&flight, apart).await.unwrap(), 2);
    // A client that sends no batch receives none.
    assert_eq!(send(&flight, Vec::new()).await.unwrap(), 0);
    assert_eq!(send(&flight, vec![only(descriptor.clone())]).await.unwrap(), 0);

    let with = |data: &FlightData| FlightData { flight_descriptor: descriptor.clone(), ..data.clone() };
    for (messages, words) in [
        (vec![bare.clone(), batch.clone()], "needs a FlightDescriptor"),
        (vec![only(None)], "needs a FlightDescriptor"),
        (vec![with(batch)], "schema"),
        (vec![schema.clone(), bare.clone()], "second schema"),
        (vec![schema.clone(), dictionary.clone(), FlightData { data_body: Bytes::new(), ..batch.clone() }], "body"),
    ] {
        let status = send(&flight, messages).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
        assert!(status.message().contains(words), "{words}: {status:?}");
    }
    // Without their dictionary, keys are out of bounds.
    let status = send(&flight, vec![schema.clone(), batch.clone()]).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
}
