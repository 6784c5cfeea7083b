//! From routing targets to queues and logs of topics, looked up by name.

use std::sync::{Arc, Weak};

use bytestring::ByteString;
use smallvec::SmallVec;
use stafett_journal::Frame;
use stafett_model::{LogId, Message, Namespace, SharedLock};
use stafett_routing::{Router, Routes};
use stafett_store::Stored;
use stafett_topics::{Topic, TopicDefaults, Topics, is_internal};

use super::binding::Destination;
use super::namespace::NamespaceRouting;
use super::routed_message::RoutedMessage;
use super::{BindError, Exchanges, NewBinding, Target};
use crate::delayed::Delayed;
use crate::queues::{DeadLetterRouter, Queue, Queues, Targets};

/// Everything that routing a message needs.
#[derive(Debug)]
pub(crate) struct Resolver {
    pub(crate) exchanges: Exchanges,
    pub(crate) queues: Arc<Queues>,
    pub(crate) topics: Arc<Topics>,
    pub(crate) delayed: Arc<Delayed>,
    pub(crate) settings: Arc<SharedLock<TopicDefaults>>,
}

/// Leaves out topics that the broker alone writes.
fn written(topic: Option<Arc<Topic>>) -> Option<Arc<Topic>> {
    topic.filter(|topic| !is_internal(&topic.name))
}

/// Queues and topics of one set of targets.
#[derive(Debug)]
pub(crate) struct ResolvedTargets {
    pub(crate) queues: SmallVec<[Arc<Queue>; 1]>,
    pub(crate) topics: SmallVec<[Arc<Topic>; 1]>,
    /// Bound on the size of a message for all these topics, in bytes.
    pub(crate) message_bytes_max: usize,
    /// True if a topic replaces the messages' timestamps by the time of arrival.
    pub(crate) append_time: bool,
    /// True if a topic is compacted by key.
    pub(crate) compacts: bool,
}

impl Resolver {
    /// Looks up the targets by name. Those that no longer exist are left out.
    pub(crate) fn resolve(&self, namespace: &Namespace, targets: &[Target]) -> ResolvedTargets {
        let mut places = ResolvedTargets {
            queues: SmallVec::new(),
            topics: SmallVec::new(),
            message_bytes_max: usize::MAX,
            append_time: false,
            compacts: false,
        };
        for target in targets {
            match target {
                Target::Queue(name) => {
                    let queue = self.queues.get(namespace, name);
                    match queue.as_ref().and_then(|queue| queue.over) {
                        // Messages for a queue over a topic go to the topic.
                        Some(topic) => places.topics.extend(written(self.topics.with_id(topic))),
                        None => places.queues.extend(queue),
                    }
                }
                Target::Topic(name) => places.topics.extend(written(self.topics.named(name))),
            }
        }
        if !places.topics.is_empty() {
            let settings = *self.settings.read();
            for topic in &places.topics {
                let rules = settings.rules(&topic.settings);
                places.message_bytes_max = places.message_bytes_max.min(rules.single_message_bytes_max());
                places.append_time |= rules.append_time;
                places.compacts |= rules.compacts;
            }
        }
        places
    }

    /// Binds a queue, an exchange or a topic to an exchange; idempotent.
    pub(crate) fn bind(&self, namespace: &Namespace, new: NewBinding) -> Result<Stored, BindError> {
        let queue = match &new.destination {
            Destination::Queue(name) => self.queues.get(namespace, name),
            Destination::Exchange(_) | Destination::Topic(_) => None,
        };
        let survives_restart = self.survives_restart(namespace, &new.destination);
        let destination = new.destination.clone();
        let stored = self.exchanges.bind(
            namespace,
            new,
            survives_restart.ok_or(BindError::NoSuchDestination)?,
        )?;
        // A concurrent deletion may have missed the new binding.
        let is_gone = match &queue {
            Some(queue) => queue.is_deleted(),
            None => self.survives_restart(namespace, &destination).is_none(),
        };
        if is_gone {
            self.exchanges.forget(namespace, &destination);
            return Err(BindError::NoSuchDestination);
        }
        Ok(stored)
    }

    /// Returns true if a binding's destination survives a restart, `None` if it does not exist.
    pub(crate) fn survives_restart(&self, namespace: &Namespace, destination: &Destination) -> Option<bool> {
        match destination {
            Destination::Queue(name) => {
                let queue = self.queues.get(namespace, name)?;
                Some(queue.durable && queue.exclusive.is_none())
            }
            Destination::Exchange(_) => Some(true),
            Destination::Topic(name) => written(self.topics.named(name)).map(|_| true),
        }
    }
}

impl Resolver {
    /// Looks up queues, and stored topics, for the default exchange, whose routing keys are their names.
    pub(crate) fn default_exchange_names<'a>(
        &'a self,
        namespace: &'a Namespace,
    ) -> impl Fn(&[u8]) -> Option<Target> + 'a {
        move |name| {
            let name = std::str::from_utf8(name).ok()?;
            if self.queues.get(namespace, name).is_some() {
                return Some(Target::Queue(name.into()));
            }
            let topic = self.topics.in_namespace(namespace, name)?;
            Some(Target::Topic((*topic.name).into()))
        }
    }

    /// Routes a message that was published before: a dead letter or a delayed message. It is not delayed
    /// again. Compacted topics are left out if it has no key: they would lose it.
    pub(crate) fn reroute(
        &self,
        routing: &NamespaceRouting,
        exchange: &str,
        more_keys: &[ByteString],
        message: &Message,
    ) -> Targets {
        let router = routing.router();
        let place = (&routing.name, &router, exchange);
        let Some(mut places) = self.places_again(place, more_keys, message) else {
            return Targets::default();
        };
        if places.refuses_key_of(message) {
            let settings = *self.settings.read();
            let before = places.topics.len();
            places
                .topics
                .retain(|topic| !settings.rules(&topic.settings).compacts);
            let left_out = before - places.topics.len();
            self.exchanges.metrics.without_key.inc_by(left_out as u64);
        }
        places.targets(message)
    }

    /// Returns true if a message that waits at an exchange would be refused for its missing key if it were
    /// routed now.
    pub(crate) fn would_miss_key(
        &self,
        place: (&Namespace, &Router<Target>, &str),
        more_keys: &[ByteString],
        message: &Message,
    ) -> bool {
        let compacts = |places: ResolvedTargets| places.compacts;
        message.key.is_none() && self.places_again(place, more_keys, message).is_some_and(compacts)
    }

    /// Routes a message at an exchange of a namespace, and does not delay it. `None` if there is no such
    /// exchange.
    pub(crate) fn places_again(
        &self,
        (namespace, router, exchange): (&Namespace, &Router<Target>, &str),
        more_keys: &[ByteString],
        message: &Message,
    ) -> Option<ResolvedTargets> {
        let seen = RoutedMessage {
            key: &message.routing_key,
            more_keys,
            message,
            facts: self.exchanges.facts(),
            delayed: false,
            metrics: &self.exchanges.metrics,
        };
        let mut found = Routes::default();
        let names = self.default_exchange_names(namespace);
        router.route(exchange, &seen, &names, &mut found).ok()?;
        Some(self.resolve(namespace, found.targets()))
    }
}

impl ResolvedTargets {
    pub(crate) fn is_empty(&self) -> bool {
        self.queues.is_empty() && self.topics.is_empty()
    }

    /// Returns true if a message cannot be stored in one of the topics, as it has no key.
    pub(crate) fn refuses_key_of(&self, message: &Message) -> bool {
        self.compacts && message.key.is_none()
    }

    /// Returns the logs that a message goes to: in each topic the partition of its key or, without one, of
    /// its routing key.
    pub(crate) fn logs(&self, message: &Message) -> SmallVec<[LogId; 1]> {
        let key = message.key.as_deref().unwrap_or(message.routing_key.as_bytes());
        self.topics
            .iter()
            .filter_map(|topic| topic.log_by_key(key))
            .collect()
    }

    pub(crate) fn targets(&self, message: &Message) -> Targets {
        Targets {
            queues: self.queues.clone(),
            logs: self.logs(message),
            append_time: self.append_time,
            is_waiting: false,
        }
    }
}

/// Weak resolver; queues route their dead letters through it.
#[derive(Debug, Clone)]
pub(crate) struct WeakResolver(pub(crate) Weak<Resolver>);

impl DeadLetterRouter for WeakResolver {
    fn targets(&self, namespace: &Namespace, message: &Message, by_more_keys: bool) -> Targets {
        let Some(resolver) = self.0.upgrade() else {
            return Targets::default();
        };
        let exchanges = &resolver.exchanges;
        let more_keys = if by_more_keys {
            exchanges.facts().more_keys(message)
        } else {
            Vec::new()
        };
        let routing = exchanges.space(namespace);
        let targets = |routing: Arc<NamespaceRouting>| {
            resolver.reroute(&routing, &message.exchange, &more_keys, message)
        };
        routing.map(targets).unwrap_or_default()
    }

    fn has_namespace(&self, namespace: &Namespace) -> bool {
        let resolver = self.0.upgrade();
        resolver.is_some_and(|resolver| resolver.exchanges.has_namespace(namespace))
    }

    fn remove_bindings(&self, queue: &Queue, append: &mut dyn FnMut(Vec<Frame>)) -> bool {
        if let Some(space) = self.routing_of(queue) {
            return space.remove_bindings_with(&destination(queue), append);
        }
        append(Vec::new());
        false
    }

    fn remove_more_bindings(&self, queue: &Queue) -> bool {
        let space = self.routing_of(queue);
        // If this is not stored, the next start does it.
        space.is_some_and(|space| space.forget_step(&destination(queue)).unwrap_or(false))
    }

    fn on_queue_removed(&self, queue: &Queue) {
        // Removes bindings made after the removal began.
        if let Some(space) = self.routing_of(queue) {
            space.forget(&destination(queue));
        }
    }
}

impl WeakResolver {
    fn routing_of(&self, queue: &Queue) -> Option<Arc<NamespaceRouting>> {
        self.0.upgrade()?.exchanges.space(&queue.namespace)
    }
}

fn destination(queue: &Queue) -> Destination {
    Destination::Queue((&*queue.name).into())
}
