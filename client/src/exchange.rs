//! Online serving: a server computes a plan's outputs for batches in memory, with the kernels of a stream.

use std::sync::Arc;

use arrow::{array::RecordBatch, datatypes::SchemaRef};
use arrow_flight::{
    FlightDescriptor,
    decode::FlightRecordBatchStream,
    encode::{DictionaryHandling, FlightDataEncoderBuilder},
    error::FlightError,
};
use forebay_proto::{Encoding, encode, v1::ExchangeRequest};
use futures::{Stream, StreamExt, TryStreamExt, future};

use crate::{Client, Error, Result};

impl Client {
    /// Sends batches of one schema and yields the outputs of each. An output has the rows that pass the plan's filter,
    /// so it can be empty. Batches are sent as flow control permits; a caller that awaits each output before the next
    /// batch must keep `batches` open.
    pub async fn exchange<S>(
        &self,
        request: &ExchangeRequest,
        schema: SchemaRef,
        batches: S,
    ) -> Result<impl Stream<Item = Result<RecordBatch>> + Send + use<S>>
    where
        S: Stream<Item = RecordBatch> + Send + 'static,
    {
        let descriptor = FlightDescriptor::new_cmd(encode(request, Encoding::Protobuf));
        let messages = FlightDataEncoderBuilder::new()
            .with_schema(schema)
            .with_flight_descriptor(Some(descriptor))
            // Each batch has one response, so it must not be split.
            .with_max_flight_data_size(usize::MAX)
            .with_dictionary_handling(DictionaryHandling::Resend)
            .build(batches.map(Ok))
            // Encoding in memory does not fail; if it did, the server would report a truncated exchange.
            .take_while(|message| future::ready(message.is_ok()))
            .filter_map(|message| future::ready(message.ok()));
        let answer = self.begun(self.flight().do_exchange(messages).await).await?;
        let url = Arc::clone(self.url());
        let outputs = FlightRecordBatchStream::new_from_flight_data(answer.into_inner().map_err(FlightError::from));
        Ok(outputs.map_err(move |error| match error {
            FlightError::Tonic(status) => Error::from_status(*status, &url),
            error => Error::Data(Box::new(error)),
        }))
    }
}
