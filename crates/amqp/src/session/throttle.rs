//! Quotas of a connection: the bodies that it publishes and gets, and its requests, are taken from the
//! buckets of its user and client. Nothing more of a client that is beyond its quota is read until its debt
//! is gone; its consumers get nothing more while that of their deliveries is not.
//!
//! A request is a method, or a published message. The client is the connection's `connection_name`.

use std::time::Duration;

use stafett_access::Rate;
use stafett_amqp_wire::Value;
use stafett_broker::ConnectionQuota;
use tokio::time::Instant;

use super::Session;

#[derive(Debug, Default)]
pub(super) struct Throttle {
    quota: ConnectionQuota,
    /// Set when there are quotas.
    client: Option<Box<str>>,
    reads_from: Option<Instant>,
    delivers_from: Option<Instant>,
}

impl Session {
    /// Takes bytes or requests of the client from the quota.
    pub(super) fn charge(&mut self, rate: Rate, count: usize) {
        if let Some(until) = self.owed_until(rate, count) {
            self.throttle.reads_from = self.throttle.reads_from.max(Some(until));
        }
    }

    /// Takes deliveries from the quota.
    pub(super) fn charge_deliveries(&mut self, bytes: usize) {
        if let Some(until) = self.owed_until(Rate::Fetched, bytes) {
            self.throttle.delivers_from = self.throttle.delivers_from.max(Some(until));
        }
    }

    fn has_quotas(&self) -> bool {
        self.context.broker.access().directory().has_quotas()
    }

    fn owed_until(&mut self, rate: Rate, count: usize) -> Option<Instant> {
        if !self.has_quotas() {
            return None;
        }
        let throttle = &mut self.throttle;
        let table = &self.agreed.client.table;
        let client = throttle
            .client
            .get_or_insert_with(|| match table.get("connection_name") {
                Some(Value::LongString(name)) => String::from_utf8_lossy(&name).into(),
                Some(_) | None => Box::default(),
            });
        let access = self.context.broker.access();
        let of = (self.caller.name(), &**client);
        let wait = access.charge(&mut throttle.quota, of, rate, count);
        if wait < Duration::from_millis(1) {
            return None;
        }
        self.context.metrics.on_throttled(rate, wait);
        Some(Instant::now() + wait)
    }

    /// Returns true if nothing may be read for now.
    pub(crate) fn is_muted(&self) -> bool {
        !self.closing && is_ahead(self.throttle.reads_from) && self.has_quotas()
    }

    /// Returns true if nothing may be delivered for now.
    pub(crate) fn is_sated(&self) -> bool {
        !self.closing && is_ahead(self.throttle.delivers_from) && self.has_quotas()
    }

    /// Returns the time at which the first of both ends.
    pub(crate) fn throttled_until(&self) -> Option<Instant> {
        let Throttle {
            reads_from,
            delivers_from,
            ..
        } = &self.throttle;
        let both = [*reads_from, *delivers_from];
        both.into_iter()
            .flatten()
            .filter(|until| is_ahead(Some(*until)))
            .min()
    }
}

/// Looks at the clock only if there is a time.
fn is_ahead(until: Option<Instant>) -> bool {
    until.is_some_and(|until| until > Instant::now())
}

#[cfg(test)]
mod tests {
    use stafett_access::{Change, Entity, Part, Rates};

    use super::*;
    use crate::session::tests::bench::Bench;

    #[tokio::test(start_paused = true)]
    async fn a_debt_keeps_a_client_from_being_read_and_its_consumers_from_messages() {
        let bench = Bench::start(&[]).await;
        let mut session = bench.session_of("ann");
        session.charge(Rate::Produced, 1 << 20);
        assert!(!session.is_muted(), "without a quota");
        let entity = Entity {
            user: Some(Part::Named("ann".into())),
            client: None,
        };
        let rates = Rates::from([(Rate::Produced, 100.0), (Rate::Fetched, 10.0)]);
        let context = std::sync::Arc::clone(&session.context);
        let directory = context.broker.access().directory();
        directory.apply([Change::SetQuota(entity.clone(), rates)]);
        session.charge(Rate::Produced, 100);
        assert!(!session.is_muted(), "the bytes of a second come at once");
        session.charge(Rate::Produced, 200);
        assert!(session.is_muted() && !session.is_sated());
        assert_eq!(
            session.throttled_until(),
            Some(Instant::now() + Duration::from_secs(2))
        );
        session.charge_deliveries(20);
        assert!(session.is_sated());
        assert_eq!(
            session.throttled_until(),
            Some(Instant::now() + Duration::from_secs(1))
        );
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(session.is_muted() && !session.is_sated());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!session.is_muted() && session.throttled_until().is_none());
        // Getting is asked for.
        session.charge(Rate::Fetched, 100);
        assert!(session.is_muted() && !session.is_sated());
        session.closing = true;
        assert!(!session.is_muted(), "the answer to the end is read");
        session.closing = false;
        directory.apply([Change::SetQuota(entity, Rates::new())]);
        assert!(!session.is_muted(), "a debt goes with its quota");
    }
}
