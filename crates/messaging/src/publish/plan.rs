//! Targets of a batch of published messages; each set of targets is looked up once.

use std::collections::HashMap;

use bytestring::ByteString;
use smallvec::SmallVec;
use stafett_model::{LogId, Namespace, NamespaceId};
use stafett_routing::{DependsOn, Router, Routes};

use super::{Publish, PublishError, PublishRefusal, PublishTicket, Published};
use crate::delayed::DelayedMessage;
use crate::exchanges::Target;
use crate::exchanges::message_attributes::RoutedMessage;
use crate::exchanges::resolver::{ResolvedTargets, Resolver};
use crate::queues::{Publication, RouteIndex, Targets};

pub(super) struct Plan<'a> {
    resolver: &'a Resolver,
    namespace: &'a Namespace,
    exchange: &'a str,
    space: NamespaceId,
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
    pub(super) fn new(
        resolver: &'a Resolver,
        namespace: &'a Namespace,
        exchange: &'a str,
        messages: usize,
    ) -> Result<Self, PublishError> {
        let space = resolver.exchanges.space(namespace);
        let space = space.ok_or(PublishError::NoSuchNamespace)?;
        let router = space.router();
        match router.is_internal(exchange) {
            None => return Err(PublishError::NoSuchExchange),
            Some(true) => return Err(PublishError::Internal),
            Some(false) => {}
        }
        Ok(Self {
            resolver,
            namespace,
            exchange,
            space: space.id,
            router,
            routes: Routes::default(),
            places: Vec::new(),
            by_targets: HashMap::new(),
            last: None,
            publication: Publication::with_capacity(messages),
            owners: Vec::with_capacity(messages),
            published: Vec::with_capacity(messages),
            unroutable: Vec::new(),
            waiting: Vec::new(),
        })
    }

    /// Prefetches the routing of messages that are about to be added.
    pub(super) fn foresee(&self, messages: &[Publish]) {
        let keys = messages
            .iter()
            .map(|publish| publish.message.routing_key.as_bytes());
        self.router.prefetch(self.exchange, keys.map(AsRef::as_ref));
    }

    pub(super) fn add(&mut self, publish: Publish) {
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
        if publish.message.bytes() > place.places.message_bytes_max {
            if let Some(published) = self.published.last_mut() {
                *published = Published::Refused(PublishRefusal::TooLarge);
            }
            return;
        }
        let route = place.route(&publish, &mut self.publication);
        self.publication.push(publish.message, route);
        self.owners.push(u32::try_from(index).unwrap_or(u32::MAX));
    }

    pub(super) fn store(mut self) -> PublishTicket {
        // Buckets are held until their messages are staged.
        let mut buckets = Vec::new();
        let mut by_log: HashMap<LogId, RouteIndex> = HashMap::new();
        for (index, waiting) in self.waiting.drain(..) {
            let publication = &mut self.publication;
            let route = by_log.entry(waiting.log).or_insert_with(|| {
                publication.route(Targets {
                    queues: SmallVec::new(),
                    logs: SmallVec::from_buf([waiting.log]),
                    append_time: false,
                })
            });
            publication.push(waiting.message, *route);
            self.owners.push(u32::try_from(index).unwrap_or(u32::MAX));
            buckets.push(waiting.bucket);
        }
        let appending = (!self.publication.is_empty()).then(|| {
            let ticket = self.resolver.queues.append(self.publication);
            (ticket, self.owners)
        });
        drop(buckets);
        let metrics = &self.resolver.exchanges.metrics;
        metrics.published.inc_by(self.published.len() as u64);
        metrics.unroutable.inc_by(self.unroutable.len() as u64);
        PublishTicket::new(self.published, self.unroutable, appending)
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

    fn route(&mut self, index: usize, publish: &Publish) -> usize {
        let message = &publish.message;
        let seen = RoutedMessage {
            key: &message.routing_key,
            more_keys: &publish.more_keys,
            message,
            facts: self.resolver.exchanges.facts(),
            delayed: message.delay_ms.is_some_and(|ms| ms > 0),
        };
        let names = self.resolver.default_exchange_names(self.namespace);
        if self
            .router
            .route(self.exchange, &seen, &names, &mut self.routes)
            .is_err()
        {
            return usize::MAX;
        }
        for exchange in self.routes.delayed_at() {
            let delayed = &self.resolver.delayed;
            match delayed.wait(
                (self.namespace, self.space),
                exchange,
                message,
                &publish.more_keys,
            ) {
                Ok(waiting) => self.waiting.push((index, waiting)),
                Err(why) => {
                    if let Some(published) = self.published.last_mut() {
                        *published = Published::Refused(why.into());
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
        });
        self.routes.push((logs, route));
        route
    }
}
