//! gRPC server reflection: the calls and their messages, for tools such as grpcurl.

use std::{convert::Infallible, fmt, sync::Arc};

use futures::future::BoxFuture;
use hyper::{Request, Response};
use tonic::{body::Body, codegen::Service};
use tonic_reflection::server::Builder;

/// A built-in descriptor cannot be read.
pub type ReflectionError = tonic_reflection::server::Error;

const V1: &str = "/grpc.reflection.v1.ServerReflection/";

/// The version of older tools.
const V1_ALPHA: &str = "/grpc.reflection.v1alpha.ServerReflection/";

type ReflectionResponse = BoxFuture<'static, Result<Response<Body>, Infallible>>;

type Handler = Arc<dyn Fn(Request<Body>) -> ReflectionResponse + Send + Sync>;

/// The reflection service. Cheap to clone.
#[derive(Clone)]
pub struct Reflection {
    v1: Handler,
    v1_alpha: Handler,
}

impl Reflection {
    /// Reflection of the Flight, Forebay and health services.
    pub fn new() -> Result<Self, ReflectionError> {
        let builder = || {
            Builder::configure()
                .register_encoded_file_descriptor_set(forebay_proto::FLIGHT_DESCRIPTORS)
                .register_encoded_file_descriptor_set(forebay_proto::DESCRIPTORS)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        Ok(Self { v1: handler(builder().build_v1()?), v1_alpha: handler(builder().build_v1alpha()?) })
    }

    /// The handler of a path, if it is one of reflection's.
    pub(super) fn handler(&self, path: &str) -> Option<&Handler> {
        match path {
            path if path.starts_with(V1) => Some(&self.v1),
            path if path.starts_with(V1_ALPHA) => Some(&self.v1_alpha),
            _ => None,
        }
    }
}

fn handler<S>(server: S) -> Handler
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + Sync + 'static,
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
