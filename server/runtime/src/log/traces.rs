//! Traces: spans of calls and their parts, sent to an OpenTelemetry collector over OTLP/gRPC.
//!
//! Off unless a collector is configured. The SDK's own variables set everything else: `OTEL_SERVICE_NAME`,
//! `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_TRACES_SAMPLER`, `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_BSP_SCHEDULE_DELAY` and so
//! on.

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

/// Whether traces are on; if not, calls are not linked to traces.
static ENABLED: AtomicBool = AtomicBool::new(false);

/// Service name in traces unless `OTEL_SERVICE_NAME` is set.
const SERVICE_NAME: &str = "forebay-server";

/// Sends traces until [`Traces::end`].
#[derive(Debug)]
pub(super) struct Traces(SdkTracerProvider);

/// The reason why traces cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The URL is not that of a collector.
    #[error("{0:?} is not the URL of an OTLP/gRPC collector, such as http://127.0.0.1:4317")]
    Endpoint(String),
    /// The exporter cannot be created; most likely one of its environment variables is invalid.
    #[error(transparent)]
    Exporter(#[from] ExporterBuildError),
}

/// Validates the URL of a collector.
pub fn check_endpoint(url: &str) -> Result<(), TraceError> {
    let fits = |url: Url| url.scheme() == "http" && url.has_host() && url.path() == "/" && url.query().is_none();
    if Url::parse(url).is_ok_and(fits) { Ok(()) } else { Err(TraceError::Endpoint(url.to_owned())) }
}

/// Adds a call's span to the client's trace (W3C `traceparent` and `tracestate`) or to a new one, and records the trace
/// id, which then appears in every log line of the call.
pub fn join(span: &Span, method: &'static str, header: impl Fn(&str) -> Option<String>) {
    if !ENABLED.load(Ordering::Relaxed) {
        return;
    }
    let parent = TraceContextPropagator::new().extract(&TraceHeaders::read(header));
    // Fails if the span is disabled.
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
    if ENABLED.load(Ordering::Relaxed) {
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
        ENABLED.store(true, Ordering::Relaxed);
        Ok(Self(SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource.build()).build()))
    }

    pub(super) fn layer<S: Subscriber + for<'a> LookupSpan<'a>>(&self) -> OpenTelemetryLayer<S, Tracer> {
        tracing_opentelemetry::layer().with_tracer(self.0.tracer(SERVICE_NAME)).with_location(false).with_threads(false)
    }

    /// Sends the remaining spans, within a time limit.
    pub(super) fn end(&self, within: Duration) {
        if let Err(error) = self.0.shutdown_with_timeout(within) {
            tracing::warn!(%error, "cannot send the last traces");
        }
    }
}

/// Headers of a call that identify the client's trace.
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
    fn a_collector_url_is_http_without_a_path() {
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
