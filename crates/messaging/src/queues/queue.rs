//! A queue: its definition, and the dispatcher that hands out its messages.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use bytestring::ByteString;
use stafett_journal::StateWait;
use stafett_model::{Durability, Lock, LogId, Namespace};
use stafett_queue::consumers::ConsumerConflict;
use stafett_queue::{ChangedSettings, QueueSettings};
use stafett_topics::{Topic, TopicId};

use super::definition::{Declare, Definition, OwnerId, QueueId};
use super::policies::AppliedPolicies;
use super::publication::{Refused, StoredAt};
use super::registry::Queues;
use stafett_delivery::{
    Consumer, ConsumerSpec, DeliveryId, DeliveryState, Dispatcher, DispatcherSpec, LaneLog, LogOwnership,
    Outbox,
};

/// A queue. Its messages are handed out and settled by its dispatcher, whose methods are the queue's.
pub struct Queue {
    pub id: QueueId,
    pub namespace: Namespace,
    pub name: ByteString,
    pub durable: bool,
    pub exclusive: Option<OwnerId>,
    pub auto_delete: bool,
    /// True if the queue is that of a registered client.
    pub personal: bool,
    /// When the client was registered, in milliseconds since 1970, if that is known.
    pub registered_ms: Option<u64>,
    /// As declared: for properties that never change, and for the comparison of declarations. Those in force
    /// are [`Dispatcher::settings`].
    pub declared: Arc<QueueSettings>,
    /// Changes since the declaration. Written under the dispatcher's lock too.
    pub(super) changed: Lock<ChangedSettings>,
    /// Policies in force. Written under the dispatcher's lock too.
    pub(super) policies: Lock<AppliedPolicies>,
    /// Declaration in the format of the front end that made the queue, if it has one.
    pub arguments: Option<Bytes>,
    /// Stored topic whose messages are those of the queue.
    pub over: Option<TopicId>,
    dispatcher: Arc<Dispatcher>,
    pub(super) queues: Weak<Queues>,
    /// True if the definition is stored.
    pub(super) stored: AtomicBool,
    /// True if it is in the list of queues that may have messages.
    pub(super) is_listed: AtomicBool,
}

/// Refusal of a consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConsumeError {
    #[error("the queue has an exclusive consumer")]
    Exclusive,
    #[error("the queue has consumers: none can be exclusive")]
    InUse,
    #[error("the queue belongs to somebody else")]
    Locked,
    #[error("the queue is gone")]
    Gone,
    #[error("the consumers of the queue have as many distinct filters as may be, 100")]
    TooManyFilters,
}

impl Queue {
    pub(super) fn new(
        queues: &Arc<Queues>,
        definition: Definition,
        topic: Option<&Topic>,
        owner: Option<OwnerId>,
    ) -> Arc<Self> {
        let first = definition.logs.first().map_or(LogId(0), |(_, log)| *log);
        let policies =
            queues
                .policies
                .matching(&definition.namespace, &definition.name, &definition.settings);
        let owns_messages = definition.over.is_none();
        let in_force = policies.in_force(&definition.settings, &definition.changed, owns_messages);
        let in_force = Arc::new(in_force);
        let declared = Arc::new(definition.settings);
        let (ownership, logs) = if let Some(topic) = topic {
            (LogOwnership::Topic, LaneLog::of_topic(topic, 0))
        } else {
            let own = definition.logs.into_iter();
            let own = own.map(|(priority, log)| LaneLog::new(priority.into(), log));
            (LogOwnership::Own, own.collect())
        };
        let spec = DispatcherSpec {
            id: first.0,
            declared: Arc::clone(&declared),
            settings: in_force,
            is_paused: definition.is_paused,
            logs,
            ownership,
            is_stored: definition.durable && owner.is_none(),
            is_pulled: false,
        };
        Arc::new_cyclic(|queue: &Weak<Self>| Self {
            id: QueueId(first.0),
            namespace: definition.namespace,
            name: definition.name,
            durable: definition.durable,
            exclusive: owner,
            auto_delete: definition.auto_delete,
            personal: definition.personal,
            registered_ms: definition.registered_ms,
            declared,
            changed: Lock::new(definition.changed),
            policies: Lock::new(policies),
            arguments: definition.arguments,
            over: definition.over,
            dispatcher: Dispatcher::new(spec, &queues.context, queue.clone()),
            queues: Arc::downgrade(queues),
            stored: AtomicBool::new(false),
            is_listed: AtomicBool::new(false),
        })
    }

    /// Returns the definition to be stored.
    pub(super) fn definition(&self, inner: &DeliveryState) -> Definition {
        Definition {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            durable: self.durable,
            exclusive: self.exclusive.is_some(),
            auto_delete: self.auto_delete,
            personal: self.personal,
            registered_ms: self.registered_ms,
            settings: (*self.declared).clone(),
            changed: self.changed.lock().clone(),
            is_paused: inner.state.consumers.is_paused(),
            arguments: self.arguments.clone(),
            logs: self.own_logs(inner),
            over: self.over,
        }
    }

    /// Returns the queue's own logs, by priority.
    pub(super) fn own_logs(&self, inner: &DeliveryState) -> Vec<(u8, LogId)> {
        if self.over.is_some() {
            return vec![(0, LogId(self.id.0))];
        }
        let own = inner.logs.iter();
        own.filter_map(|lane| Some((u8::try_from(lane.lane).ok()?, lane.log)))
            .collect()
    }

    /// Returns the name of the first property in which a declaration differs; `None` if there is none.
    pub(super) fn differs(&self, declare: &Declare) -> Option<&'static str> {
        if self.durable != declare.durable {
            Some("durable")
        } else if self.exclusive.is_some() != declare.exclusive.is_some() {
            Some("exclusive")
        } else if self.auto_delete != declare.auto_delete {
            Some("auto-delete")
        } else if self.personal != declare.personal {
            Some("owner")
        } else if !self.is_declared_as(&declare.settings) {
            Some("settings")
        } else if self.arguments != declare.arguments {
            Some("arguments")
        } else {
            None
        }
    }

    /// Returns the id of a message that is stored at these places; `None` if none of them is in the queue.
    pub fn message_at(&self, places: &StoredAt) -> Option<DeliveryId> {
        let offset_in = |log: LogId| {
            let at = places.binary_search_by_key(&log, |(log, _)| *log).ok()?;
            Some(places.get(at)?.1)
        };
        if self.over.is_none()
            && let Some(offset) = offset_in(LogId(self.id.0))
        {
            return Some(DeliveryId { lane: 0, offset });
        }
        let inner = self.lock();
        let mut lanes = inner.logs.iter();
        lanes.find_map(|&LaneLog { lane, log, .. }| {
            let offset = offset_in(log)?;
            Some(DeliveryId { lane, offset })
        })
    }

    /// Returns the policies in force.
    pub fn policies(&self) -> AppliedPolicies {
        self.policies.lock().clone()
    }

    /// Returns true if a declaration has the settings of this queue: those of its own declaration, or those
    /// with the changes since.
    pub fn is_declared_as(&self, settings: &QueueSettings) -> bool {
        let settings = self.as_stored(settings);
        *self.declared == settings || self.declared.with(self.changed.lock().iter()) == settings
    }

    /// Returns the settings of the queue itself, with the changes since its declaration and without policies.
    pub fn own_settings(&self) -> QueueSettings {
        self.declared.with(self.changed.lock().iter())
    }

    /// Returns settings as a queue stored by an earlier version has them: properties unknown to it are taken
    /// from the queue.
    fn as_stored(&self, settings: &QueueSettings) -> QueueSettings {
        QueueSettings {
            two_priorities: self.declared.two_priorities,
            active_yields: self.declared.active_yields,
            keeps_transient: self.declared.keeps_transient,
            has_default_delivery_limit: self.declared.has_default_delivery_limit,
            ..settings.clone()
        }
    }

    /// Returns true if the queue survives a restart.
    pub(crate) fn survives_restart(&self) -> bool {
        self.durable && self.exclusive.is_none()
    }

    /// Returns the wait for changes of the definition.
    pub(super) fn state_wait(&self) -> StateWait {
        if self.survives_restart() {
            StateWait::Synced
        } else {
            StateWait::Written
        }
    }

    /// Returns the durability of its messages. `None` while the broker stops.
    pub fn durability(&self) -> Option<Durability> {
        self.queues.upgrade().map(|queues| queues.log_level(self))
    }

    pub fn is_deleted(&self) -> bool {
        self.dispatcher.is_ended()
    }

    /// Returns false if no message waits or is in flight, without a look at its logs. A queue over a topic
    /// may always have messages.
    pub fn may_have_messages(&self) -> bool {
        self.over.is_some() || self.is_listed.load(Ordering::Acquire)
    }

    /// Returns true if the queue outlives connections and restarts.
    pub fn is_kept(&self) -> bool {
        self.durable && self.exclusive.is_none()
    }

    /// Registers a consumer of a connection; its deliveries are put into `outbox` under `token`.
    pub fn consume(
        &self,
        owner: OwnerId,
        spec: ConsumerSpec,
        outbox: Arc<Outbox>,
        token: u64,
    ) -> Result<Consumer, ConsumeError> {
        if self.exclusive.is_some_and(|known| known != owner) {
            return Err(ConsumeError::Locked);
        }
        match self.dispatcher.add_consumer(spec, outbox, token) {
            Ok(consumer) => consumer.ok_or(ConsumeError::Gone),
            Err(ConsumerConflict::ByExclusive) => Err(ConsumeError::Exclusive),
            Err(ConsumerConflict::ByOthers) => Err(ConsumeError::InUse),
            Err(ConsumerConflict::ByFilters) => Err(ConsumeError::TooManyFilters),
        }
    }

    /// Returns the log for messages of a priority, which is created if it does not exist.
    pub(super) fn log_for(self: &Arc<Self>, priority: u8) -> Result<LogId, Refused> {
        let priority = self.declared.lane(priority);
        if self.over.is_some() {
            // A caller that knows message keys has chosen a partition already.
            let first = self.lock().logs.first().map(|lane| lane.log);
            return first.ok_or(Refused::Gone);
        }
        if !self.is_listed.load(Ordering::Acquire) {
            let queues = self.queues.upgrade().ok_or(Refused::Gone)?;
            queues.list_pending(self);
        }
        if priority == 0 {
            return Ok(LogId(self.id.0));
        }
        let mut inner = self.lock();
        if let Some(log) = inner.log(priority.into()) {
            return Ok(log);
        }
        let queues = self.queues.upgrade().ok_or(Refused::Gone)?;
        queues.add_lanes(self, &mut inner, priority)
    }
}

impl Deref for Queue {
    type Target = Arc<Dispatcher>;

    fn deref(&self) -> &Self::Target {
        &self.dispatcher
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("id", &self.id)
            .field("namespace", &self.namespace)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
