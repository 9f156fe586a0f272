//! What a `FlightDescriptor` names.

use arrow_flight::{FlightDescriptor, flight_descriptor::DescriptorType};
use forebay_proto::{
    Encoding,
    v1::{self, Reason},
};
use tonic::Status;

use super::{context::CallContext, status};

/// The data that a descriptor names.
#[derive(Clone, Debug)]
pub(super) enum FlightTarget {
    /// The raw table of a dataset.
    Table(String),
    /// One epoch under a plan, and the encoding of its request.
    Stream(Box<v1::StreamRequest>, Encoding),
}

impl FlightTarget {
    pub(super) async fn read(context: &CallContext, descriptor: &FlightDescriptor) -> Result<Self, Status> {
        match descriptor.r#type() {
            DescriptorType::Path => match descriptor.path.as_slice() {
                [name] => {
                    context.call.note(|facts| facts.set_dataset(name));
                    Ok(Self::Table(name.clone()))
                }
                path => Err(status::refusal(
                    Reason::InvalidRequest,
                    &format!(
                        "descriptor: expected a path of one part, the dataset's name; this one has {}",
                        path.len()
                    ),
                )),
            },
            DescriptorType::Cmd => {
                let (message, encoding) = context.decode(&descriptor.cmd).await?;
                context.call.note(|facts| facts.set_request(&message));
                Ok(Self::Stream(Box::new(message), encoding))
            }
            DescriptorType::Unknown => Err(status::refusal(
                Reason::InvalidRequest,
                "descriptor: expected a path (a raw table) or a command (a StreamRequest)",
            )),
        }
    }
}
