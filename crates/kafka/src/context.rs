//! State shared by all connections, and the environment of the requests of one.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use stafett_broker::Broker;
use stafett_kafka_wire::{Str, Uuid};
use stafett_model::Lock;
use stafett_net::{ByteBudget, ConnectionEntry, Shedding, Trace};
use stafett_topics::TRANSACTIONS_TOPIC;
use stafett_transactions::TransactionError;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::authority::Identity;
use crate::cell_transactions::ToCoordinators;
use crate::cells::Upstream;
use crate::fetch_sessions::FetchSessions;
use crate::internal_topic::InternalTopic;
use crate::log_limit::LogLimit;
use crate::metrics::Metrics;
use crate::offsets_topic::OffsetsTopic;
use crate::settings::{Endpoint, KafkaSettings};
use crate::share_sessions::{OpenedSession, ShareMember, ShareSessions};
use crate::throttle::Throttle;

pub(crate) const FIRST_CELL: u32 = 0;
/// Maximum large answers in memory at once, over all connections.
const LARGE_RESPONSES_MAX: usize = 2;

#[derive(Debug)]
pub(crate) struct KafkaContext {
    pub broker: Arc<Broker>,
    pub settings: KafkaSettings,
    pub metrics: Metrics,
    pub fetch_sessions: Arc<FetchSessions>,
    pub share_sessions: ShareSessions,
    pub offsets_topic: OffsetsTopic,
    /// Stands for the stored state of transactions, and is empty.
    pub transactions_topic: InternalTopic,
    /// In another cell than the first one: the way to the coordinators of transactions.
    pub coordinators: Option<ToCoordinators>,
    pub cluster_id: Str,
    /// Permits for answers that are much larger than their requests.
    pub large_responses: Arc<Semaphore>,
    /// Limit of lines about refused transactional producers.
    pub refusal_log: LogLimit,
    /// Count of topic deletions: a topic that was looked up before the last one may be gone.
    deletions: AtomicU64,
}

impl KafkaContext {
    pub(crate) fn new(broker: Arc<Broker>, settings: KafkaSettings, metrics: Metrics) -> Self {
        Self {
            fetch_sessions: Arc::new(FetchSessions::new(&settings, &metrics)),
            share_sessions: ShareSessions::default(),
            cluster_id: {
                let first = settings.first_cell.as_ref();
                let id = first.map_or_else(|| broker.cluster_id(), |first| first.cluster_id());
                Uuid::from(id).to_string().into()
            },
            coordinators: match (&settings.first_cell, &settings.cells) {
                (Some(_), Some(cells)) => Some(ToCoordinators::new(Arc::clone(cells))),
                _ => None,
            },
            broker,
            settings,
            metrics,
            offsets_topic: OffsetsTopic::default(),
            transactions_topic: InternalTopic::new(TRANSACTIONS_TOPIC),
            large_responses: Arc::new(Semaphore::new(LARGE_RESPONSES_MAX)),
            refusal_log: LogLimit::default(),
            deletions: AtomicU64::new(0),
        }
    }

    /// Ends a share session, unless its member has opened another one since: its records come again.
    pub(crate) fn end_share_session(&self, session: &OpenedSession) {
        if self.share_sessions.close(session) {
            self.release_records(&session.member);
        }
    }

    /// Returns the records that a member of a share group holds.
    fn release_records(&self, member: &ShareMember) {
        for place in self.broker.shares().of_group(&member.group) {
            place.release(&member.id);
        }
    }

    /// Returns true if no other node can have owned the cell up to now: answers that were made before are of
    /// its present state.
    pub(crate) fn may_answer(&self) -> bool {
        self.broker.tenure().holds()
    }

    /// Returns true if `__consumer_offsets` is to be created. The first cell keeps it, and has its own
    /// commits there alone.
    pub(crate) fn needs_offsets_topic(&self) -> bool {
        !self.is_further_cell() && !self.offsets_topic.topic().is_there()
    }

    /// Appends pending commits to `__consumer_offsets`, at the first cell.
    pub(crate) async fn refresh_offsets_topic(&self) {
        if !self.is_further_cell() {
            self.offsets_topic.refresh(&self.broker).await;
        }
    }

    pub(crate) fn deletions(&self) -> u64 {
        self.deletions.load(Ordering::Acquire)
    }

    pub(crate) fn on_deletion(&self) {
        self.deletions.fetch_add(1, Ordering::AcqRel);
    }
}

/// Environment of the requests of a connection.
#[derive(Debug)]
pub(crate) struct RequestContext {
    pub shared: Arc<KafkaContext>,
    pub entry: Arc<ConnectionEntry>,
    pub identity: Identity,
    /// The client has TLS with a listener: it is told of others with TLS.
    pub is_tls: bool,
    /// In another cell than the first one: the way there, once a request went it.
    pub upstream: OnceLock<Box<Upstream>>,
    /// Cancelled when the connection must not wait any longer.
    pub drain: CancellationToken,
    pub budget: Arc<ByteBudget>,
    /// True if the client does not block while a heartbeat is unanswered.
    pub is_patient: AtomicBool,
    /// True if the registry of connections knows the client.
    pub is_introduced: AtomicBool,
    /// Share sessions that were opened here. They end with the connection.
    pub opened_sessions: Lock<Vec<OpenedSession>>,
    /// `None` if the listener refuses nothing.
    pub shedding: Option<Arc<Shedding>>,
    /// `None` if there is no performance log.
    pub trace: Option<Arc<Trace>>,
    pub throttle: Throttle,
    /// True once a batch was refused because requests waited too long: batches behind it may be on their way.
    pub has_refused: AtomicBool,
}

impl Drop for RequestContext {
    fn drop(&mut self) {
        let all_opened = std::mem::take(&mut *self.opened_sessions.lock());
        for opened in all_opened {
            self.shared.end_share_session(&opened);
        }
    }
}

impl RequestContext {
    /// Returns true if the client takes this node for another one, which has no groups and no transactions.
    pub(crate) fn stands_for_other_node(&self) -> bool {
        self.entry.is_relayed()
    }

    /// Returns the time that a client is to hold back before it fetches again, in ms.
    pub(crate) fn throttle_ms(&self) -> i32 {
        match &self.shedding {
            Some(shedding) if shedding.is_shedding() => {
                i32::try_from(shedding.waiting().as_millis()).unwrap_or(i32::MAX)
            }
            Some(_) | None => 0,
        }
    }

    /// Writes down why a step of a transaction is refused: answers have no text, and clients of some errors
    /// say no more than to look here.
    pub(crate) fn log_refused_transaction(&self, id: &str, why: &TransactionError) {
        if *why != TransactionError::Busy && self.shared.refusal_log.allows() {
            tracing::warn!(%id, %why, peer = %self.entry.peer, "a transactional producer is refused");
        }
    }

    /// Returns the id of this broker.
    pub(crate) fn broker_id(&self) -> i32 {
        self.shared.settings.broker_id
    }

    /// Returns id and address of all brokers that this client can reach, this one first.
    pub(crate) fn brokers(&self) -> Vec<(i32, Str, i32)> {
        let (host, port) = self.endpoint();
        let mut brokers = vec![(self.broker_id(), host, port)];
        for other in self.shared.settings.others() {
            let endpoint = if self.is_tls { other.tls } else { other.plain };
            if let Some(Endpoint { host, port }) = endpoint {
                brokers.push((other.id, host.into(), i32::from(port)));
            }
        }
        brokers
    }

    /// Returns id and address of the broker of the first cell: the controller, and the coordinator of
    /// transactions. `None` if there is none for now.
    pub(crate) fn controller(&self) -> Option<(i32, Str, i32)> {
        self.broker_of(FIRST_CELL)
    }

    /// Returns id and address of the broker of a cell. `None` if there is none for now.
    pub(crate) fn broker_of(&self, cell: u32) -> Option<(i32, Str, i32)> {
        let id = self.shared.leader_of(cell)?;
        self.brokers().into_iter().find(|(other, ..)| *other == id)
    }

    /// Returns the address for clients: the advertised one, or the one that this client connected to.
    pub(crate) fn endpoint(&self) -> (Str, i32) {
        let settings = &self.shared.settings;
        let advertised = if self.is_tls {
            &settings.advertised_tls
        } else {
            &settings.advertised
        };
        match advertised {
            Some(Endpoint { host, port }) => (Str::copy_from(host), i32::from(*port)),
            None => (
                self.entry.local.ip().to_canonical().to_string().into(),
                i32::from(self.entry.local.port()),
            ),
        }
    }
}
