//! Spans of runs, sent to an OpenTelemetry collector. A trace is a run: its id is the run's. Spans wait in a queue of bounded
//! length; what does not fit, or cannot be sent, is lost and told in the log. Nothing that works on tables ever waits for it.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use opentelemetry::trace::{Link, SpanId, SpanKind, Status, TraceContextExt, TraceId, TraceState, TracerProvider};
use opentelemetry::{Context, KeyValue};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, IdGenerator, RandomIdGenerator, Sampler, SamplingDecision, SamplingResult,
    SdkTracerProvider, ShouldSample, SpanData, SpanExporter as Export,
};
use reqwest::header::HeaderMap;
use tokio::runtime::Handle;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::Registry;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::Layer;
use uuid::Uuid;

use super::RUN_TARGET;
use crate::error::{Error, Result};
use crate::http_client;

/// Spans that wait to be sent, at most.
const QUEUE_SPANS: usize = 4096;
/// Spans of one request, at most.
const BATCH_SPANS: usize = 512;
/// Longest time for one request.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Longest time for what is left at the end of the process.
const FLUSH: Duration = Duration::from_secs(2);
/// Answers of a collector are short.
const BODY_BYTES_MAX: usize = 1 << 20;

/// Reads the headers to send, anew for each request.
pub type Headers = Arc<dyn Fn() -> Result<HeaderMap> + Send + Sync>;

/// Where spans go.
pub struct TraceCollector {
    /// Base address, without `/v1/traces`.
    pub endpoint: String,
    /// Share of the runs that are sent, above 0, at most 1.
    pub sample_ratio: f64,
    pub headers: Headers,
}

/// The sender of spans; to be ended with the process.
#[derive(Debug, Clone)]
pub struct Traces(SdkTracerProvider);

impl Traces {
    /// Sends what is left, for two seconds at most.
    pub async fn finish(self) {
        let ended = tokio::task::spawn_blocking(move || self.0.shutdown_with_timeout(FLUSH)).await;
        if let Ok(Err(error)) = ended {
            tracing::warn!(%error, "the last spans were not sent");
        }
    }
}

/// Takes the spans of runs from all that is traced. Within a tokio runtime, which sends them.
pub(super) fn layer(collector: &TraceCollector) -> Result<(impl Layer<Registry> + Send + Sync + use<>, Traces)> {
    let client = Client {
        client: http_client::build(&Default::default()).map_err(|e| e.context("set up traces"))?,
        runtime: Handle::current(),
        headers: Arc::clone(&collector.headers),
    };
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(client)
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(format!("{}/v1/traces", collector.endpoint))
        .with_timeout(TIMEOUT)
        .build()
        .map_err(|e| Error::new(crate::error::ErrorKind::Config, format!("traces.endpoint: {e}")))?;
    let batches = BatchConfigBuilder::default()
        .with_max_queue_size(QUEUE_SPANS)
        .with_max_export_batch_size(BATCH_SPANS)
        .with_scheduled_delay(Duration::from_secs(2))
        .build();
    let telling = Telling { exporter, failing: AtomicBool::new(false) };
    let provider = SdkTracerProvider::builder()
        .with_span_processor(BatchSpanProcessor::builder(telling).with_batch_config(batches).build())
        .with_id_generator(RunIds(RandomIdGenerator::default()))
        .with_sampler(Sampler::ParentBased(Box::new(Share(collector.sample_ratio))))
        .with_resource(
            Resource::builder()
                .with_service_name("icewright")
                .with_attribute(KeyValue::new("service.version", crate::version::VERSION))
                .build(),
        )
        .build();
    let layer = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("icewright"))
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_tracked_inactivity(false)
        .with_filter(filter_fn(|metadata| metadata.is_span() && metadata.target() == RUN_TARGET));
    Ok((layer, Traces(provider)))
}

thread_local! {
    /// The identity of the next trace that this thread begins.
    static NEXT_TRACE: Cell<Option<Uuid>> = const { Cell::new(None) };
}

/// A run on a table: everything logged inside has these fields, everything traced inside is in the trace of the run's id.
pub fn run_span(run_id: Uuid, catalog: &str, namespace: &str, table: &str) -> Span {
    let span = tracing::error_span!(
        target: RUN_TARGET, parent: None, "run",
        catalog, namespace, table, run_id = %run_id.hyphenated()
    );
    NEXT_TRACE.set(Some(run_id));
    // Begins the trace here and now, while its identity is at hand.
    let _ = span.context();
    NEXT_TRACE.set(None);
    span
}

/// An action of a run, named as everywhere.
pub fn action_span(action: &'static str) -> Span {
    let span = tracing::error_span!(target: RUN_TARGET, "action", action);
    span.context().span().update_name(action);
    span
}

/// How the work of a span ended, for its trace; log lines tell it themselves.
pub fn ended(span: &Span, outcome: &'static str, is_failure: bool, counts: &[(&'static str, u64)]) {
    span.set_attribute("outcome", outcome);
    for (name, count) in counts {
        span.set_attribute(*name, i64::try_from(*count).unwrap_or(i64::MAX));
    }
    if is_failure {
        span.set_status(Status::error(outcome));
    }
}

/// A part of an action: `phase_span!("commit")`, with fields as in `tracing`'s macros.
macro_rules! phase_span {
    ($name:literal $(, $($fields:tt)+)?) => {
        tracing::error_span!(target: $crate::telemetry::RUN_TARGET, $name $(, $($fields)+)?)
    };
}
pub(crate) use phase_span;

/// A trace begun by [`run_span`] has the run's id.
#[derive(Debug)]
struct RunIds(RandomIdGenerator);

impl IdGenerator for RunIds {
    fn new_trace_id(&self) -> TraceId {
        NEXT_TRACE.take().map_or_else(|| self.0.new_trace_id(), |run| TraceId::from(run.as_u128()))
    }

    fn new_span_id(&self) -> SpanId {
        self.0.new_span_id()
    }
}

/// Takes a share of the runs, by the random bits at the end of their ids. The usual sampler counts on 63 such bits, of which
/// two are fixed in a UUID.
#[derive(Debug, Clone, Copy)]
struct Share(f64);

impl Share {
    fn takes(self, trace_id: TraceId) -> bool {
        let [.., a, b, c, d] = trace_id.to_bytes();
        f64::from(u32::from_be_bytes([a, b, c, d])) < self.0 * (f64::from(u32::MAX) + 1.0)
    }
}

impl ShouldSample for Share {
    fn should_sample(
        &self,
        parent: Option<&Context>,
        trace_id: TraceId,
        _name: &str,
        _kind: &SpanKind,
        _attributes: &[KeyValue],
        _links: &[Link],
    ) -> SamplingResult {
        let decision = if self.takes(trace_id) { SamplingDecision::RecordAndSample } else { SamplingDecision::Drop };
        let trace_state = parent.map_or_else(TraceState::default, |cx| cx.span().span_context().trace_state().clone());
        SamplingResult { decision, attributes: Vec::new(), trace_state }
    }
}

/// Sends requests on the runtime, whatever thread asks.
struct Client {
    client: reqwest::Client,
    runtime: Handle,
    headers: Headers,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Client")
    }
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> std::result::Result<Response<Bytes>, HttpError> {
        let mut request = reqwest::Request::try_from(request)?;
        request.headers_mut().extend((self.headers)()?);
        *request.timeout_mut() = Some(TIMEOUT);
        let client = self.client.clone();
        let sent = self.runtime.spawn(async move {
            let mut answer = client.execute(request).await?;
            let status = answer.status();
            let mut body = Vec::new();
            while let Some(chunk) = answer.chunk().await? {
                body.extend_from_slice(&chunk[..chunk.len().min(BODY_BYTES_MAX - body.len())]);
                if body.len() == BODY_BYTES_MAX {
                    break;
                }
            }
            Ok::<_, reqwest::Error>((status, body))
        });
        let (status, body) = sent.await??;
        Ok(Response::builder().status(status).body(body.into())?)
    }
}

/// Tells when spans begin to get lost, and when they arrive again; not for each batch.
#[derive(Debug)]
struct Telling<E> {
    exporter: E,
    failing: AtomicBool,
}

impl<E: Export> Export for Telling<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let result = self.exporter.export(batch).await;
        match &result {
            Ok(()) if self.failing.swap(false, Ordering::Relaxed) => tracing::info!("spans are sent again"),
            Err(error) if !self.failing.swap(true, Ordering::Relaxed) => {
                tracing::warn!(spans, %error, "spans could not be sent and are lost, as are further ones until it is told otherwise");
            }
            Ok(()) | Err(_) => {}
        }
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock, SystemClock};

    #[test]
    fn about_the_configured_share_of_runs_is_sent() {
        for (ratio, least, most) in [(1.0, 1000, 1000), (0.5, 400, 600), (0.1, 50, 150), (0.001, 0, 20)] {
            let ids = (0..1000).map(|_| TraceId::from(SystemClock.uuid().as_u128()));
            let taken = ids.filter(|id| Share(ratio).takes(*id)).count();
            assert!((least..=most).contains(&taken), "{ratio}: {taken} of 1000");
        }
    }
}
