//! A `FlightDescriptor` → what is asked for.

use arrow_flight::{FlightDescriptor, flight_descriptor::DescriptorType};
use forebay_proto::{Encoding, v1};
use tonic::Status;

use super::service::Service;

/// What a descriptor names.
#[derive(Clone, Debug)]
pub(super) enum Command {
    /// The raw table of a dataset.
    Table(String),
    /// One epoch under a plan, and the encoding it was asked in.
    Stream(Box<v1::StreamRequest>, Encoding),
}

impl Command {
    pub(super) async fn read(service: &Service, descriptor: &FlightDescriptor) -> Result<Self, Status> {
        match descriptor.r#type() {
            DescriptorType::Path => match descriptor.path.as_slice() {
                [name] => Ok(Self::Table(name.clone())),
                path => Err(Status::invalid_argument(format!(
                    "descriptor: a path of one part, the dataset's name, is expected; this one has {}",
                    path.len()
                ))),
            },
            DescriptorType::Cmd => {
                let (message, encoding) = service.decode(&descriptor.cmd).await?;
                Ok(Self::Stream(Box::new(message), encoding))
            }
            DescriptorType::Unknown => Err(Status::invalid_argument(
                "descriptor: neither a path (a raw table) nor a command (a StreamRequest)",
            )),
        }
    }
}
