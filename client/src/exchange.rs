//! Rows in memory → a plan's outputs, computed by a server: the same kernels as a stream's, a batch for a batch.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow_flight::FlightDescriptor;
use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::encode::{DictionaryHandling, FlightDataEncoderBuilder};
use arrow_flight::error::FlightError;
use forebay_proto::v1::ExchangeRequest;
use forebay_proto::{Encoding, encode};
use futures::{Stream, StreamExt, TryStreamExt, future};

use crate::{Client, Error, Result};

impl Client {
    /// Sends batches of one schema, and yields each one's outputs: those of the rows that pass the plan's filter, so
    /// that some may be empty. The next batch is sent when there is room; whoever waits for an answer before the next
    /// batch must not let the stream of batches end early.
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
            // A batch has one answer, and so must not be cut.
            .with_max_flight_data_size(usize::MAX)
            .with_dictionary_handling(DictionaryHandling::Resend)
            .build(batches.map(Ok))
            // Encoding in memory does not fail; if it did, the server would end the exchange, which was cut short.
            .take_while(|message| future::ready(message.is_ok()))
            .filter_map(|message| future::ready(message.ok()));
        let answer = self.flight().do_exchange(messages).await;
        let answer = answer.map_err(|status| Error::from_status(status, self.url()))?;
        let url = Arc::clone(self.url());
        let outputs = FlightRecordBatchStream::new_from_flight_data(answer.into_inner().map_err(FlightError::from));
        Ok(outputs.map_err(move |error| match error {
            FlightError::Tonic(status) => Error::from_status(*status, &url),
            error => Error::Data(Box::new(error)),
        }))
    }
}
