//! What a `FlightDescriptor` names.

use arrow_flight::{FlightDescriptor, flight_descriptor::DescriptorType};
use forebay_proto::{
    Encoding,
    v1::{self, Reason},
};
use tonic::Status;

use super::{context::CallContext, status, ticket};

/// The data that a descriptor names.
#[derive(Clone, Debug)]
pub(super) enum FlightTarget {
    /// Rows of the raw table of a dataset, and the encoding of the request.
    Table(v1::TableRead, Encoding),
    /// One epoch under a plan, or one group of it, and the encoding of its request.
    Stream(Box<v1::StreamRequest>, Encoding),
    /// Rows by their numbers, and the encoding of the request.
    Take(Box<v1::TakeRequest>, Encoding),
    /// The groups of an epoch under a plan, and the encoding of its request.
    Groups(Box<v1::StreamRequest>, Encoding),
}

impl FlightTarget {
    pub(super) async fn read(context: &CallContext, descriptor: &FlightDescriptor) -> Result<Self, Status> {
        match descriptor.r#type() {
            DescriptorType::Path => match descriptor.path.as_slice() {
                [name] => {
                    context.call.note(|facts| facts.set_dataset(name));
                    let read = v1::TableRead { dataset: name.clone(), ..v1::TableRead::default() };
                    Ok(Self::Table(read, Encoding::Json))
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
                let decoded = context.decode::<v1::StreamRequest>(&descriptor.cmd).await;
                if decoded.is_err()
                    && let Some(take) = ticket::take_request(&descriptor.cmd)
                {
                    return Ok(Self::Take(Box::new(take), Encoding::Json));
                }
                let (message, encoding) = decoded?;
                if let Some(take) = message.take.clone() {
                    let alone = v1::StreamRequest { take: message.take.clone(), ..v1::StreamRequest::default() };
                    check_alone(&message, &alone, "take: a request for rows by their numbers")?;
                    return Ok(Self::Take(Box::new(take), encoding));
                }
                if let Some(read) = message.table.clone() {
                    let alone = v1::StreamRequest { table: message.table.clone(), ..v1::StreamRequest::default() };
                    check_alone(&message, &alone, "table: a request for the rows of a raw table")?;
                    context.call.note(|facts| facts.set_dataset(&read.dataset));
                    return Ok(Self::Table(read, encoding));
                }
                context.call.note(|facts| facts.set_request(&message));
                let is_listing = !message.group_by.is_empty() && message.group.is_none();
                let message = Box::new(message);
                Ok(if is_listing { Self::Groups(message, encoding) } else { Self::Stream(message, encoding) })
            }
            DescriptorType::Unknown => Err(status::refusal(
                Reason::InvalidRequest,
                "descriptor: expected a path (a raw table) or a command (a StreamRequest)",
            )),
        }
    }
}

/// Checks that a request has nothing besides one field.
fn check_alone(message: &v1::StreamRequest, alone: &v1::StreamRequest, what: &str) -> Result<(), Status> {
    if message == alone {
        return Ok(());
    }
    let field = what.split(':').next().unwrap_or_default();
    let reason = format!("{what} has no other field; its dataset is {field}.dataset");
    Err(status::refusal(Reason::InvalidRequest, &reason))
}
