//! gRPC server reflection: what the calls and their messages are, for tools that ask.

use std::{convert::Infallible, fmt, sync::Arc};

use futures::future::BoxFuture;
use hyper::{Request, Response, body::Incoming};
use tonic::{body::Body, codegen::Service};
use tonic_reflection::server::Builder;

/// A descriptor of the program's own cannot be read.
pub type ReflectionError = tonic_reflection::server::Error;

const V1: &str = "/grpc.reflection.v1.ServerReflection/";

/// The version that older tools know.
const V1_ALPHA: &str = "/grpc.reflection.v1alpha.ServerReflection/";

type Answer = BoxFuture<'static, Result<Response<Body>, Infallible>>;

type Answers = Arc<dyn Fn(Request<Incoming>) -> Answer + Send + Sync>;

/// Answers what tools ask. Cheap to clone.
#[derive(Clone)]
pub struct Reflection {
    v1: Answers,
    v1_alpha: Answers,
}

impl Reflection {
    /// What the program tells of itself.
    pub fn new() -> Result<Self, ReflectionError> {
        let builder = || {
            Builder::configure()
                .register_encoded_file_descriptor_set(forebay_proto::FLIGHT_DESCRIPTORS)
                .register_encoded_file_descriptor_set(forebay_proto::DESCRIPTORS)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        Ok(Self { v1: answers(builder().build_v1()?), v1_alpha: answers(builder().build_v1alpha()?) })
    }

    /// What answers the calls of a path, if it is one of reflection's.
    pub(super) fn of(&self, path: &str) -> Option<&Answers> {
        match path {
            path if path.starts_with(V1) => Some(&self.v1),
            path if path.starts_with(V1_ALPHA) => Some(&self.v1_alpha),
            _ => None,
        }
    }
}

fn answers<S>(server: S) -> Answers
where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    Arc::new(move |request| {
        let mut server = server.clone();
        Box::pin(async move { server.call(request).await })
    })
}

impl fmt::Debug for Reflection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Reflection").finish_non_exhaustive()
    }
}
