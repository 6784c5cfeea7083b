//! State shared by all connections.

use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::{self, AtomicU64};

use prometheus_client::registry::Registry;
use stafett_broker::Broker;
use stafett_kafka_wire::{ErrorCode, Str, Uuid};
use stafett_net::{Connection, Protocol};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::fetch_sessions::FetchSessions;
use crate::language::Consumers;
use crate::metrics::Metrics;
use crate::offsets_topic::OffsetsTopic;
use crate::settings::KafkaSettings;
use crate::{configs, connection};

/// Maximum large answers in memory at once, over all connections.
const LARGE_ANSWERS_MAX: usize = 2;

/// The Kafka front end of a listener.
#[derive(Debug)]
pub struct Kafka {
    shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub broker: Arc<Broker>,
    pub settings: KafkaSettings,
    pub metrics: Metrics,
    pub fetch_sessions: FetchSessions,
    pub offsets_topic: OffsetsTopic,
    pub cluster_id: Str,
    /// Permits for answers that are much larger than their requests.
    pub large_answers: Arc<Semaphore>,
    /// Count of topic deletions: a topic that was looked up before the last one may be gone.
    deletions: AtomicU64,
}

impl Kafka {
    /// Creates the front end of `broker` and registers its metrics.
    pub fn new(broker: Arc<Broker>, settings: KafkaSettings, registry: &mut Registry) -> Self {
        let metrics = Metrics::register(registry);
        let fetch_sessions = FetchSessions::new(&settings, &metrics);
        broker.groups().set_member_protocol(Box::new(Consumers));
        broker.learn_group_settings(configs::group_overrides);
        let cluster_id = Uuid::from(broker.cluster_id()).to_string().into();
        let deletions = AtomicU64::new(0);
        let large_answers = Arc::new(Semaphore::new(LARGE_ANSWERS_MAX));
        let shared = Shared {
            broker,
            settings,
            metrics,
            fetch_sessions,
            offsets_topic: OffsetsTopic::default(),
            cluster_id,
            large_answers,
            deletions,
        };
        Self {
            shared: Arc::new(shared),
        }
    }
}

impl Protocol for Kafka {
    fn connection(&self, connection: Connection) -> impl Future<Output = ()> + Send {
        connection::serve(Arc::clone(&self.shared), connection)
    }
}

impl Shared {
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
pub(crate) async fn large_answer(shared: &Shared) -> Option<OwnedSemaphorePermit> {
    Arc::clone(&shared.large_answers).acquire_owned().await.ok()
}
