//! Metrics of the front end. Handles are resolved once; a request costs one update of each.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use stafett_access::Rate;
use stafett_kafka_wire::{ApiKey, ErrorCode};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ApiLabel {
    api: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ErrorLabels {
    api: &'static str,
    code: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RateLabel {
    rate: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StageLabels {
    api: &'static str,
    stage: &'static str,
}

/// The handles of one API.
#[derive(Debug)]
struct ForApi {
    api: ApiKey,
    requests: Counter,
    parse: Histogram,
    wait: Histogram,
}

#[derive(Debug)]
pub(crate) struct Metrics {
    apis: Vec<ForApi>,
    errors: Family<ErrorLabels, Counter>,
    closed: Family<ReasonLabel, Counter>,
    throttled: Family<RateLabel, Counter>,
    throttle_ms: Family<RateLabel, Counter>,
    answer: Histogram,
    pub produced_batches: Counter,
    pub produced_records: Counter,
    pub produced_bytes: Counter,
    pub fetched_records: Counter,
    pub fetched_bytes: Counter,
    pub fetch_sessions: Gauge,
    pub fetch_session_partitions: Gauge,
    pub fetch_sessions_evicted: Counter,
}

fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.000_01, 2.0, 20))
}

impl Metrics {
    /// Registers the metrics of the given APIs, and those of the front end.
    pub(crate) fn register(apis: impl Iterator<Item = &'static ApiKey>, registry: &mut Registry) -> Self {
        let registry = registry.sub_registry_with_prefix("kafka");
        let requests = Family::<ApiLabel, Counter>::default();
        let stages = Family::<StageLabels, Histogram>::new_with_constructor(seconds);
        let for_api = |api: &ApiKey| {
            let api = *api;
            let stage = |stage| {
                stages
                    .get_or_create(&StageLabels {
                        api: api.name(),
                        stage,
                    })
                    .clone()
            };
            let requests = requests.get_or_create(&ApiLabel { api: api.name() }).clone();
            ForApi {
                api,
                requests,
                parse: stage("parse"),
                wait: stage("wait"),
            }
        };
        let it = Self {
            apis: apis.map(for_api).collect(),
            errors: Family::default(),
            closed: Family::default(),
            throttled: Family::default(),
            throttle_ms: Family::default(),
            answer: stages
                .get_or_create(&StageLabels {
                    api: "all",
                    stage: "answer",
                })
                .clone(),
            produced_batches: Counter::default(),
            produced_records: Counter::default(),
            produced_bytes: Counter::default(),
            fetched_records: Counter::default(),
            fetched_bytes: Counter::default(),
            fetch_sessions: Gauge::default(),
            fetch_session_partitions: Gauge::default(),
            fetch_sessions_evicted: Counter::default(),
        };
        registry.register("requests", "Requests by API", requests);
        registry.register("stage_seconds", "Time that requests spend in each stage", stages);
        registry.register("errors", "Errors answered, by API and code", it.errors.clone());
        registry.register(
            "closed",
            "Connections ended because of what came in, by reason",
            it.closed.clone(),
        );
        it.register_flow(registry);
        it.register_quotas(registry);
        it
    }

    fn register_quotas(&self, registry: &mut Registry) {
        let throttled = self.throttled.clone();
        registry.register("throttled", "Requests beyond a quota, by rate", throttled);
        let help = "Milliseconds that clients beyond a quota had to wait, by rate";
        registry.register("throttle_milliseconds", help, self.throttle_ms.clone());
    }

    /// Counts a request beyond its quota.
    pub(crate) fn on_throttled(&self, rate: Rate, wait: Duration) {
        let label = RateLabel { rate: rate.word() };
        self.throttled.get_or_create(&label).inc();
        let ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        self.throttle_ms.get_or_create(&label).inc_by(ms);
    }

    fn register_flow(&self, registry: &mut Registry) {
        registry.register("produced_batches", "Batches taken", self.produced_batches.clone());
        registry.register("produced_records", "Records taken", self.produced_records.clone());
        registry.register(
            "produced_bytes",
            "Bytes of batches taken",
            self.produced_bytes.clone(),
        );
        registry.register(
            "fetched_records",
            "Records given out",
            self.fetched_records.clone(),
        );
        registry.register(
            "fetched_bytes",
            "Bytes of batches given out",
            self.fetched_bytes.clone(),
        );
        registry.register("fetch_sessions", "Fetch sessions", self.fetch_sessions.clone());
        registry.register(
            "fetch_session_partitions",
            "Partitions in all fetch sessions",
            self.fetch_session_partitions.clone(),
        );
        registry.register(
            "fetch_sessions_evicted",
            "Fetch sessions that made room for others",
            self.fetch_sessions_evicted.clone(),
        );
    }

    /// Counts a parsed request.
    pub(crate) fn on_request(&self, api: ApiKey, parse: Duration) {
        self.on_requests(api, 1, parse);
    }

    /// Counts requests that were parsed together.
    pub(crate) fn on_requests(&self, api: ApiKey, count: u64, parse: Duration) {
        if let Some(handles) = self.of(api) {
            handles.requests.inc_by(count);
            // The mean, where there are several.
            handles.parse.observe(parse.as_secs_f64() / count as f64);
        }
    }

    /// Records the time between a request's parsing and its answer being ready.
    pub(crate) fn on_ready(&self, api: ApiKey, wait: Duration) {
        if let Some(handles) = self.of(api) {
            handles.wait.observe(wait.as_secs_f64());
        }
    }

    /// Records the time of one write of answers.
    pub(crate) fn on_written(&self, took: Duration) {
        self.answer.observe(took.as_secs_f64());
    }

    pub(crate) fn on_close(&self, reason: &'static str) {
        self.closed.get_or_create(&ReasonLabel { reason }).inc();
    }

    /// Counts an error and returns its number.
    pub(crate) fn error(&self, api: ApiKey, code: ErrorCode) -> i16 {
        if !code.is_none() {
            self.errors(api, code, 1);
        }
        code.code()
    }

    pub(crate) fn errors(&self, api: ApiKey, code: ErrorCode, count: u64) {
        self.errors
            .get_or_create(&ErrorLabels {
                api: api.name(),
                code: code.name(),
            })
            .inc_by(count);
    }

    fn of(&self, api: ApiKey) -> Option<&ForApi> {
        self.apis.iter().find(|handles| handles.api == api)
    }
}
