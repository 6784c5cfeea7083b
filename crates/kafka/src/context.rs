//! State shared by all connections.

use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::{self, AtomicU64};

use prometheus_client::registry::Registry;
use stafett_broker::Broker;
use stafett_kafka_wire::{ErrorCode, Str, Uuid};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::fetch_sessions::FetchSessions;
use crate::metrics::Metrics;
use crate::offsets_topic::OffsetsTopic;
use crate::settings::KafkaSettings;

/// Maximum large answers in memory at once, over all connections.
const LARGE_RESPONSES_MAX: usize = 2;

#[derive(Debug)]
pub(crate) struct KafkaContext {
    pub broker: Arc<Broker>,
    pub settings: KafkaSettings,
    pub metrics: Metrics,
    pub fetch_sessions: FetchSessions,
    pub offsets_topic: OffsetsTopic,
    pub cluster_id: Str,
    /// Permits for answers that are much larger than their requests.
    pub large_responses: Arc<Semaphore>,
    /// Count of topic deletions: a topic that was looked up before the last one may be gone.
    deletions: AtomicU64,
}

impl KafkaContext {
    /// Registers the metrics of the front end.
    pub(crate) fn new(broker: Arc<Broker>, settings: KafkaSettings, registry: &mut Registry) -> Self {
        let metrics = Metrics::register(registry);
        Self {
            fetch_sessions: FetchSessions::new(&settings, &metrics),
            cluster_id: Uuid::from(broker.cluster_id()).to_string().into(),
            broker,
            settings,
            metrics,
            offsets_topic: OffsetsTopic::default(),
            large_responses: Arc::new(Semaphore::new(LARGE_RESPONSES_MAX)),
            deletions: AtomicU64::new(0),
        }
    }

    /// Returns the leader epoch of all partitions: the broker's epoch.
    pub(crate) fn leader_epoch(&self) -> i32 {
        i32::try_from(self.broker.catalog().epoch().0).unwrap_or(i32::MAX)
    }

    /// Compares a client's leader epoch with the current one; -1 means no epoch.
    pub(crate) fn check_leader_epoch(&self, believed: i32) -> Result<(), ErrorCode> {
        match believed.cmp(&self.leader_epoch()) {
            _ if believed == -1 => Ok(()),
            Ordering::Less => Err(ErrorCode::FencedLeaderEpoch),
            Ordering::Equal => Ok(()),
            Ordering::Greater => Err(ErrorCode::UnknownLeaderEpoch),
        }
    }

    pub(crate) fn deletions(&self) -> u64 {
        self.deletions.load(atomic::Ordering::Acquire)
    }

    pub(crate) fn on_deletion(&self) {
        self.deletions.fetch_add(1, atomic::Ordering::AcqRel);
    }
}

/// Waits for the permit to have a large answer in memory. The holder must wait for nothing but its client.
pub(crate) async fn large_response(shared: &KafkaContext) -> Option<OwnedSemaphorePermit> {
    Arc::clone(&shared.large_responses).acquire_owned().await.ok()
}
