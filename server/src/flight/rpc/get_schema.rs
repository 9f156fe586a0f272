//! `GetSchema`: the columns of a dataset's raw table, or the outputs of a plan.

use arrow::ipc::writer::IpcWriteOptions;
use arrow_flight::{FlightDescriptor, IpcMessage, SchemaAsIpc, SchemaResult};
use tonic::Status;

use super::table_info::arrow_status;
use crate::flight::{context::CallContext, descriptor::FlightTarget};

/// The schema of what a descriptor names.
pub(crate) async fn schema(context: &CallContext, descriptor: &FlightDescriptor) -> Result<SchemaResult, Status> {
    let schema = match FlightTarget::read(context, descriptor).await? {
        FlightTarget::Table(read, _) => context.table(&read).await?.schema(),
        FlightTarget::Stream(message, _) => context.prepare(&message).await?.schema(),
        FlightTarget::Take(message, _) => context.take(&message).await?.schema(),
        FlightTarget::Groups(message, _) => context.prepare_groups(&message).await?.shared().schema(),
    };
    let options = IpcWriteOptions::default();
    let IpcMessage(bytes) = SchemaAsIpc::new(&schema, &options).try_into().map_err(|error| arrow_status(&error))?;
    Ok(SchemaResult { schema: bytes })
}
