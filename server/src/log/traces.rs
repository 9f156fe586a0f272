//! Traces: spans of calls and of what they are made of, sent to an OpenTelemetry collector over OTLP (gRPC).
//!
//! Off unless a collector is named. The SDK's own variables hold for the rest: `OTEL_SERVICE_NAME`,
//! `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_TRACES_SAMPLER`, `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_BSP_SCHEDULE_DELAY` and so on.

use std::{
    env, process,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use opentelemetry::{
    KeyValue,
    propagation::{Extractor, TextMapPropagator},
    trace::{Status, TraceContextExt, TracerProvider},
};
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig};
use opentelemetry_sdk::{
    Resource,
    propagation::TraceContextPropagator,
    trace::{SdkTracerProvider, Tracer},
};
use tracing::{Span, Subscriber};
use tracing_opentelemetry::{OpenTelemetryLayer, OpenTelemetrySpanExt};
use tracing_subscriber::registry::LookupSpan;
use url::Url;

/// Whether anybody takes traces: calls are not told apart for nobody.
static WANTED: AtomicBool = AtomicBool::new(false);

/// What this program is called among others, where the operator does not say.
const SERVICE_NAME: &str = "forebay-server";

/// Sends traces until it is told to end.
#[derive(Debug)]
pub(super) struct Traces(SdkTracerProvider);

/// Why traces cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// It is no URL of a collector.
    #[error("{0:?} is not the URL of an OTLP collector that speaks gRPC, such as http://127.0.0.1:4317")]
    Endpoint(String),
    /// The exporter cannot be made: one of its own variables is wrong, most likely.
    #[error(transparent)]
    Exporter(#[from] ExporterBuildError),
}

/// Checks the URL of a collector.
pub fn check_endpoint(url: &str) -> Result<(), TraceError> {
    let fits = |url: Url| url.scheme() == "http" && url.has_host() && url.path() == "/" && url.query().is_none();
    if Url::parse(url).is_ok_and(fits) { Ok(()) } else { Err(TraceError::Endpoint(url.to_owned())) }
}

/// Makes a call's span part of the trace that its client named (W3C's `traceparent` and `tracestate`), or of one of its
/// own, and names the trace in every line of the call.
pub fn join(span: &Span, method: &'static str, header: impl Fn(&str) -> Option<String>) {
    if !WANTED.load(Ordering::Relaxed) {
        return;
    }
    let parent = TraceContextPropagator::new().extract(&TraceHeaders::read(header));
    // It fails where the span is shown to nobody.
    let _ = span.set_parent(parent);
    span.record("otel.name", method);
    span.record("otel.kind", "server");
    span.set_attribute("rpc.system", "grpc");
    span.set_attribute("rpc.method", method);
    let trace = span.context().span().span_context().trace_id();
    span.record("trace_id", trace.to_string());
}

/// Marks a call's span as failed.
pub fn failed(span: &Span, reason: &str) {
    if WANTED.load(Ordering::Relaxed) {
        span.set_status(Status::error(reason.to_owned()));
    }
}

// === impl Traces ===

impl Traces {
    pub(super) fn start(endpoint: &str) -> Result<Self, TraceError> {
        check_endpoint(endpoint)?;
        let exporter = SpanExporter::builder().with_tonic().with_endpoint(endpoint).build()?;
        let mut resource = Resource::builder().with_attributes([
            KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
            KeyValue::new("process.pid", i64::from(process::id())),
        ]);
        if env::var_os("OTEL_SERVICE_NAME").is_none() {
            resource = resource.with_service_name(SERVICE_NAME);
        }
        WANTED.store(true, Ordering::Relaxed);
        Ok(Self(SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource.build()).build()))
    }

    pub(super) fn layer<S: Subscriber + for<'a> LookupSpan<'a>>(&self) -> OpenTelemetryLayer<S, Tracer> {
        tracing_opentelemetry::layer().with_tracer(self.0.tracer(SERVICE_NAME)).with_location(false).with_threads(false)
    }

    /// Sends what is left, within a time.
    pub(super) fn end(&self, within: Duration) {
        if let Err(error) = self.0.shutdown_with_timeout(within) {
            tracing::warn!(%error, "the last traces could not be sent");
        }
    }
}

/// What a client may say of its trace.
struct TraceHeaders([(&'static str, Option<String>); 2]);

impl TraceHeaders {
    fn read(header: impl Fn(&str) -> Option<String>) -> Self {
        Self(["traceparent", "tracestate"].map(|name| (name, header(name))))
    }
}

impl Extractor for TraceHeaders {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| *name == key).and_then(|(_, value)| value.as_deref())
    }

    fn keys(&self) -> Vec<&str> {
        self.0.iter().map(|(name, _)| *name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_is_an_http_url_without_a_path() {
        for good in ["http://127.0.0.1:4317", "http://collector:4317/", "http://[::1]:4317"] {
            check_endpoint(good).unwrap();
        }
        for bad in
            ["", "127.0.0.1:4317", "grpc://a:1", "https://a:4317", "http://a:4318/v1/traces", "http://", "http://a/?b"]
        {
            check_endpoint(bad).unwrap_err();
        }
    }
}
