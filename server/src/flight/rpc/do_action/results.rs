//! The results of an action.

use forebay_plan::PlanError;
use forebay_proto::{Encoding, Message, v1};
use forebay_runtime::cpu_pool::CpuPool;
use forebay_stream::Ahead;
use futures::{StreamExt, stream, stream::BoxStream};
use tonic::Status;

use crate::flight::{context::CallContext, status};

pub(super) type ActionResults = BoxStream<'static, Result<arrow_flight::Result, Status>>;

/// A single result.
pub(super) fn one(body: Vec<u8>) -> ActionResults {
    stream::iter([Ok(arrow_flight::Result { body: body.into() })]).boxed()
}

/// The updates of a task, encoded on the CPU pool.
pub(super) fn updates<M: Message + 'static>(cpu: &CpuPool, task: Ahead<M>, encoding: Encoding) -> ActionResults {
    let cpu = cpu.clone();
    let results = task.then(move |update| {
        let cpu = cpu.clone();
        async move {
            let update = update.map_err(|error| status::of(&error))?;
            let body = cpu.run(move || forebay_proto::encode(&update, encoding)).await;
            Ok(arrow_flight::Result { body: body.map_err(|error| status::of(&error.into()))?.into() })
        }
    });
    results.boxed()
}

/// Checks that the caller may read all rows that a plan computes on a dataset of this server.
pub(super) async fn check_sources(context: &CallContext, dataset: &str, plan: &v1::Plan) -> Result<(), Status> {
    if dataset.is_empty() {
        return Err(status::of(&PlanError::field("dataset", "missing: the name of a dataset on this server").into()));
    }
    context.authorize(dataset, Some(plan), "").await?;
    context.streams().catalog().dataset(dataset).map_err(|error| status::of(&error.into()))?;
    Ok(())
}
