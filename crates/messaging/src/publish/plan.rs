//! Targets of published messages; each set of targets is looked up once.

use std::collections::HashMap;
use std::sync::Arc;

use bytestring::ByteString;
use smallvec::SmallVec;
use stafett_model::{LogId, Namespace};
use stafett_routing::{DependsOn, PREFETCH_MAX, Router, Routes};

use super::{Preview, Publish, PublishError, PublishRefusal, PublishTicket, Published};
use crate::delayed::{Bucket, DelayedMessage};
use crate::exchanges::Target;
use crate::exchanges::namespace::NamespaceRouting;
use crate::exchanges::resolver::{ResolvedTargets, Resolver};
use crate::exchanges::routed_message::RoutedMessage;
use crate::queues::{AppendTicket, Publication, RouteIndex, Targets};
use stafett_delivery::OpenMove;

pub(super) struct Plan<'a> {
    resolver: &'a Resolver,
    namespace: &'a Namespace,
    exchange: &'a str,
    space: Arc<NamespaceRouting>,
    /// Messages, and those without targets, that were counted for their exchanges.
    counted: (usize, usize),
    router: Router<Target>,
    routes: Routes<Target>,
    /// Sets of targets that messages of this batch go to.
    places: Vec<PlannedRoute>,
    by_targets: HashMap<Vec<Target>, usize>,
    /// Index of the previous message's place, and its routing key if that mattered.
    last: Option<(usize, Option<ByteString>)>,
    publication: Publication,
    owners: Vec<u32>,
    published: Vec<Published>,
    unroutable: Vec<(usize, Publish)>,
    /// Delayed messages, which wait in a bucket.
    waiting: Vec<(usize, DelayedMessage)>,
}

/// A set of targets, with its routes by the logs of topics that message keys select.
struct PlannedRoute {
    targets: Vec<Target>,
    places: ResolvedTargets,
    routes: SmallVec<[(SmallVec<[LogId; 1]>, RouteIndex); 1]>,
}

impl<'a> Plan<'a> {
    /// Plans against the bindings of now. [`Self::set_exchange`] comes next.
    pub(super) fn new(
        resolver: &'a Resolver,
        namespace: &'a Namespace,
        publication: Publication,
        messages: usize,
    ) -> Result<Self, PublishError> {
        let space = resolver.exchanges.space(namespace);
        let space = space.ok_or(PublishError::NoSuchNamespace)?;
        Ok(Self {
            resolver,
            namespace,
            exchange: "",
            router: space.router(),
            space,
            counted: (0, 0),
            routes: Routes::default(),
            places: Vec::new(),
            by_targets: HashMap::new(),
            last: None,
            publication,
            owners: Vec::with_capacity(messages),
            published: Vec::with_capacity(messages),
            unroutable: Vec::new(),
            waiting: Vec::new(),
        })
    }

    /// Sets the exchange of the messages that are added next.
    pub(super) fn set_exchange(&mut self, exchange: &'a str) -> Result<(), PublishError> {
        self.count_exchange();
        match self.router.is_internal(exchange) {
            None => return Err(PublishError::NoSuchExchange),
            Some(true) => return Err(PublishError::Internal),
            Some(false) => {}
        }
        self.exchange = exchange;
        self.last = None;
        Ok(())
    }

    pub(super) fn add_all(&mut self, messages: Vec<Publish>) {
        let mut messages = messages.into_iter();
        while let Some(next) = messages.as_slice().chunks(PREFETCH_MAX).next() {
            self.foresee(next);
            messages
                .by_ref()
                .take(PREFETCH_MAX)
                .for_each(|publish| self.add(publish));
        }
    }

    /// Adds a message that has no targets.
    pub(super) fn add_unroutable(&mut self, publish: Publish) {
        self.unroutable.push((self.published.len(), publish));
        self.published.push(Published::Unroutable);
        // Its exchange does not exist.
        self.counted = (self.published.len(), self.unroutable.len());
    }

    /// Prefetches the routing of messages that are about to be added.
    fn foresee(&self, messages: &[Publish]) {
        let keys = messages
            .iter()
            .map(|publish| publish.message.routing_key.as_bytes());
        self.router.prefetch(self.exchange, keys.map(AsRef::as_ref));
    }

    fn add(&mut self, publish: Publish) {
        let index = self.published.len();
        self.published.push(Published::Stored);
        let known = self.known(&publish);
        let at = known.unwrap_or_else(|| self.route(index, &publish));
        let Some(place) = self.places.get_mut(at) else {
            return;
        };
        if place.places.is_empty() {
            let waits = known.is_none() && !self.routes.delayed_at().is_empty();
            if !waits {
                self.unroutable.push((index, publish));
                if let Some(published) = self.published.last_mut() {
                    *published = Published::Unroutable;
                }
            }
            return;
        }
        let refusal = if publish.message.bytes() > place.places.message_bytes_max {
            Some(PublishRefusal::TooLarge)
        } else if place.places.refuses_key_of(&publish.message) {
            Some(PublishRefusal::WithoutKey)
        } else {
            None
        };
        if let Some(why) = refusal {
            if let Some(published) = self.published.last_mut() {
                *published = Published::Refused(why);
            }
            return;
        }
        let route = place.route(&publish, &mut self.publication);
        self.publication.push(publish.message, route);
        self.owners.push(u32::try_from(index).unwrap_or(u32::MAX));
    }

    pub(super) fn store(mut self) -> PublishTicket {
        let buckets = self.add_delayed();
        let appending = (!self.publication.is_empty()).then(|| {
            let ticket = self.resolver.queues.append(std::mem::take(&mut self.publication));
            (ticket, std::mem::take(&mut self.owners))
        });
        drop(buckets);
        self.count();
        PublishTicket::new(self.published, self.unroutable, appending)
    }

    /// Stores all messages and settles others, as one append. Returns its ticket, and the messages without
    /// targets, with their indexes. Nothing is stored if a message is refused.
    pub(super) fn store_together(
        mut self,
        settled: &[OpenMove],
    ) -> Result<(AppendTicket, Vec<(usize, Publish)>), PublishRefusal> {
        for published in &self.published {
            if let Published::Refused(why) = published {
                return Err(*why);
            }
        }
        let buckets = self.add_delayed();
        let publication = std::mem::take(&mut self.publication);
        let ticket = self.resolver.queues.append_settling(None, publication, settled);
        drop(buckets);
        self.count();
        Ok((ticket, self.unroutable))
    }

    /// Adds the delayed messages to the publication. Returns their buckets, to be held until the messages are
    /// staged.
    fn add_delayed(&mut self) -> Vec<Arc<Bucket>> {
        let mut buckets = Vec::new();
        let mut by_log: HashMap<LogId, RouteIndex> = HashMap::new();
        for (index, waiting) in self.waiting.drain(..) {
            let publication = &mut self.publication;
            let route = by_log
                .entry(waiting.log)
                .or_insert_with(|| publication.route(Targets::waiting(waiting.log)));
            publication.push(waiting.message, *route);
            self.owners.push(u32::try_from(index).unwrap_or(u32::MAX));
            buckets.push(waiting.bucket);
        }
        buckets
    }

    /// Counts the messages since the last call for the exchange.
    fn count_exchange(&mut self) {
        let now = (self.published.len(), self.unroutable.len());
        let (published, unroutable) = (now.0 - self.counted.0, now.1 - self.counted.1);
        if published > 0 {
            let sampler = &self.resolver.exchanges.sampler;
            let (published, unroutable) = (published as u64, unroutable as u64);
            self.space
                .traffic
                .count(sampler, self.exchange, published, unroutable);
            self.counted = now;
        }
    }

    fn count(&mut self) {
        self.count_exchange();
        let metrics = &self.resolver.exchanges.metrics;
        metrics.published.inc_by(self.published.len() as u64);
        metrics.unroutable.inc_by(self.unroutable.len() as u64);
    }

    /// Returns the place of a message, if the previous message had to have the same.
    fn known(&self, publish: &Publish) -> Option<usize> {
        let key = &publish.message.routing_key;
        match &self.last {
            Some((at, None)) => Some(*at),
            Some((at, Some(last))) if publish.more_keys.is_empty() && last == key => Some(*at),
            _ => None,
        }
    }

    /// Looks up the targets of a message. False if it cannot be routed.
    fn find_targets(&mut self, publish: &Publish) -> bool {
        let message = &publish.message;
        let seen = RoutedMessage {
            key: &message.routing_key,
            more_keys: &publish.more_keys,
            message,
            facts: self.resolver.exchanges.facts(),
            delayed: message.delay_ms.is_some_and(|ms| ms > 0),
            metrics: &self.resolver.exchanges.metrics,
        };
        let names = self.resolver.default_exchange_names(self.namespace);
        let routed = self.router.route(self.exchange, &seen, &names, &mut self.routes);
        routed.is_ok()
    }

    /// Returns the targets that a message has now, and the exchanges at which it would wait.
    pub(super) fn preview(mut self, publish: &Publish) -> Preview {
        let mut preview = Preview::default();
        if !self.find_targets(publish) {
            return preview;
        }
        preview.delayed_at = self.routes.delayed_at().to_vec();
        for target in self.routes.targets() {
            match target {
                Target::Queue(name) => preview.queues.push(Arc::clone(name)),
                Target::Topic(name) => preview.topics.push(Arc::clone(name)),
            }
        }
        preview
    }

    fn route(&mut self, index: usize, publish: &Publish) -> usize {
        let message = &publish.message;
        if !self.find_targets(publish) {
            return usize::MAX;
        }
        for exchange in self.routes.delayed_at() {
            match self.delay(exchange, publish) {
                Ok(waiting) => self.waiting.push((index, waiting)),
                Err(why) => {
                    if let Some(published) = self.published.last_mut() {
                        *published = Published::Refused(why);
                    }
                }
            }
        }
        let targets = self.routes.targets();
        let last = self.places.last().filter(|last| last.targets == targets);
        let known = match last {
            Some(_) => self.places.len().checked_sub(1),
            None => self.by_targets.get(targets).copied(),
        };
        let at = known.unwrap_or_else(|| {
            let places = self.resolver.resolve(self.namespace, targets);
            self.places.push(PlannedRoute {
                targets: targets.to_vec(),
                places,
                routes: SmallVec::new(),
            });
            let at = self.places.len() - 1;
            self.by_targets.insert(targets.to_vec(), at);
            at
        });
        let key = &message.routing_key;
        self.last = match self.routes.depends_on() {
            DependsOn::Nothing => Some((at, None)),
            DependsOn::Keys if publish.more_keys.is_empty() => Some((at, Some(key.clone()))),
            DependsOn::Keys | DependsOn::Message => None,
        };
        at
    }

    /// Makes a message wait at an exchange. One is refused now that would be when its time comes.
    fn delay(&self, exchange: &str, publish: &Publish) -> Result<DelayedMessage, PublishRefusal> {
        let Publish { message, more_keys } = publish;
        let place = (self.namespace, &self.router, exchange);
        if self.resolver.would_miss_key(place, more_keys, message) {
            return Err(PublishRefusal::WithoutKey);
        }
        let space = (self.namespace, self.space.id);
        let waiting = self.resolver.delayed.wait(space, exchange, message, more_keys);
        waiting.map_err(PublishRefusal::from)
    }
}

impl PlannedRoute {
    /// Returns the message's route within the place; messages with the same logs share one.
    fn route(&mut self, publish: &Publish, publication: &mut Publication) -> RouteIndex {
        let logs = self.places.logs(&publish.message);
        if let Some((_, route)) = self.routes.iter().find(|(known, _)| *known == logs) {
            return *route;
        }
        let route = publication.route(Targets {
            queues: self.places.queues.clone(),
            logs: logs.clone(),
            append_time: self.places.append_time,
            is_waiting: false,
        });
        self.routes.push((logs, route));
        route
    }
}
