//! Consumers of a WebSocket: credit, deliveries, settlements.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stafett_access::{Action, Caller, Resource};
use stafett_delivery::{
    Consumer, ConsumerSpec, Delivery, DeliveryBatch, DeliveryId, Event, MessageFilter, Outbox, Settle,
};
use stafett_http::Problem;
use stafett_messaging::queues::{OwnerId, Queue};
use stafett_messaging::{ConsumerFacts, ConsumerHolder, ConsumerSource, ListedConsumer, Messaging};
use stafett_routing::Filter;
use tokio::sync::Notify;

use crate::caller::queue_name;
use crate::content::Form;
use crate::message::{MessageOf, Shown, parse_message_id};
use crate::refusals::of_consuming;
use crate::settle::SettledLeases;

/// Bytes of the messages that wait for the connection; as much as other protocols have.
const OUTBOX_BYTES: usize = 64 << 10;
/// Bound on the consumers of a connection.
const CONSUMERS_MAX: usize = 1024;
const CREDIT: u32 = 100;
const CREDIT_MAX: u32 = 10_000;

/// Command `consume`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Consume {
    /// The caller's own queue if it is absent.
    pub(super) queue: Option<String>,
    /// Messages that may be unsettled, 1 to 10,000; 100 if it is absent.
    credit: Option<u32>,
    /// `settle`, the default; or `auto`: messages are done when they are sent.
    ack: Option<String>,
    /// True if no other consumer is allowed.
    exclusive: bool,
    /// The highest is served first.
    priority: i32,
    /// Condition on the messages that it gets; others stay for other consumers.
    filter: Option<String>,
    #[serde(rename = "as")]
    form: Option<String>,
}

/// Command `settle` of a consumer's messages.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Settlement {
    consumer: u64,
    /// Ids of messages that are done.
    complete: Vec<String>,
    /// Ids of messages that return to the queue.
    requeue: Vec<String>,
    /// Ids of messages that are dead-lettered, or dropped.
    discard: Vec<String>,
}

/// Answer to `consume`.
#[derive(Debug, Serialize)]
pub(super) struct Consuming<'a> {
    consumer: u64,
    queue: &'a str,
    credit: u32,
}

#[derive(Debug)]
struct Held {
    /// `None` if an operator has ended it; its messages can still be settled.
    consumer: Option<(Consumer, ListedConsumer)>,
    queue: Arc<Queue>,
    /// Messages that were sent and are not settled.
    unsettled: HashSet<DeliveryId>,
    settles: bool,
    form: Form,
}

/// Consumers of one connection.
#[derive(Debug)]
pub(super) struct Consumers {
    owner: OwnerId,
    /// Id of the connection.
    connection: u64,
    outbox: Arc<Outbox>,
    held: HashMap<u64, Held>,
    last: u64,
    runs: Vec<DeliveryBatch>,
    events: Vec<Event>,
}

/// A message that is pushed.
#[derive(Debug, Serialize)]
struct Pushed {
    consumer: u64,
    message: MessageOf,
}

/// Notice of a consumer's end.
#[derive(Debug, Serialize)]
struct Ended {
    consumer: u64,
    ended: &'static str,
}

impl Consume {
    fn filter(&self, messaging: &Messaging) -> Result<Option<Arc<dyn MessageFilter>>, Problem> {
        let filter = self.filter.as_deref().map(Filter::compile).transpose();
        let filter = filter.map_err(|why| Problem::bad_request(format!("filter: {why}")))?;
        Ok(filter.map(|filter| messaging.filter(filter)))
    }
}

impl Consumers {
    pub(super) fn new(owner: OwnerId, connection: u64, wake: Arc<Notify>) -> Self {
        Self {
            owner,
            connection,
            outbox: Outbox::with_wake(OUTBOX_BYTES, wake),
            held: HashMap::new(),
            last: 0,
            runs: Vec::new(),
            events: Vec::new(),
        }
    }

    pub(super) fn consume<'q>(
        &mut self,
        messaging: &Messaging,
        queue: &'q Arc<Queue>,
        wanted: &Consume,
    ) -> Result<Consuming<'q>, Problem> {
        if self.held.len() == CONSUMERS_MAX {
            let why = format!("a connection has {CONSUMERS_MAX} consumers at most");
            return Err(Problem::bad_request(why));
        }
        let settles = match wanted.ack.as_deref() {
            None | Some("settle") => true,
            Some("auto") => false,
            Some(other) => {
                return Err(Problem::bad_request(format!(
                    "ack is settle or auto, not {other:?}"
                )));
            }
        };
        let credit = wanted.credit.unwrap_or(CREDIT);
        if !(1..=CREDIT_MAX).contains(&credit) {
            return Err(Problem::bad_request(format!(
                "credit is 1 to {CREDIT_MAX}, not {credit}"
            )));
        }
        let form = Form::of(wanted.form.as_deref())?;
        let spec = ConsumerSpec {
            settles,
            exclusive: wanted.exclusive,
            priority: wanted.priority,
            credit: settles.then_some(credit),
            shared_credit: None,
            filter: wanted.filter(messaging)?,
        };
        self.last += 1;
        let number = self.last;
        let facts = self.facts(queue, &spec);
        let consumer = queue.consume(self.owner, spec, Arc::clone(&self.outbox), number);
        let consumer = consumer.map_err(of_consuming)?;
        let holder = ConsumerHolder::Queue(consumer.downgrade());
        let listed = messaging.consumers().add(facts, holder);
        let held = Held {
            consumer: Some((consumer, listed)),
            queue: Arc::clone(queue),
            unsettled: HashSet::new(),
            settles,
            form,
        };
        self.held.insert(number, held);
        Ok(Consuming {
            consumer: number,
            queue: &queue.name,
            credit,
        })
    }

    fn facts(&self, queue: &Queue, spec: &ConsumerSpec) -> ConsumerFacts {
        ConsumerFacts {
            connection: self.connection,
            channel: 0,
            name: self.last.to_string().into(),
            source: ConsumerSource::Queue(queue.id),
            namespace: queue.namespace.clone(),
            source_name: queue.name.clone(),
            settles: spec.settles,
            exclusive: spec.exclusive,
            priority: spec.priority,
            credit: spec.credit,
            arguments: Bytes::new(),
        }
    }

    /// Ends a consumer; its messages that are not settled return to the queue.
    pub(super) fn cancel(&mut self, number: u64) -> Result<(), Problem> {
        self.held
            .remove(&number)
            .map(Held::end)
            .ok_or_else(|| no_such_consumer(number))
    }

    pub(super) fn settle(&mut self, wanted: Settlement) -> Result<SettledLeases, Problem> {
        let number = wanted.consumer;
        let held = self
            .held
            .get_mut(&number)
            .ok_or_else(|| no_such_consumer(number))?;
        let mut settlements = Vec::with_capacity(wanted.complete.len());
        let mut unknown: Vec<String> = Vec::new();
        let kinds = [
            (wanted.complete, Settle::Complete),
            (wanted.requeue, Settle::Requeue),
            (wanted.discard, Settle::Discard),
        ];
        for (texts, what) in kinds {
            for text in texts {
                match parse_message_id(held.queue.id, &text).filter(|id| held.unsettled.remove(id)) {
                    Some(id) => settlements.push((id, what)),
                    None => unknown.push(text),
                }
            }
        }
        if !settlements.is_empty() {
            held.queue.settle(&settlements);
        }
        if held.consumer.is_none() && held.unsettled.is_empty() {
            self.held.remove(&number);
        }
        Ok(SettledLeases {
            settled: settlements.len(),
            extended: 0,
            unknown,
        })
    }

    /// Ends the consumers of queues that the caller may no longer read.
    pub(super) fn end_refused(&mut self, by: &Caller, scratch: &mut Vec<u8>, mut put: impl FnMut(&[u8])) {
        let held = self.held.iter();
        let refused = held.filter(|(_, held)| !held.may_read(by));
        let refused: Vec<u64> = refused.map(|(number, _)| *number).collect();
        for consumer in refused {
            drop(self.cancel(consumer));
            let ended = "refused";
            write(&Ended { consumer, ended }, scratch);
            put(scratch);
        }
    }

    /// Hands the messages that wait, and notices, to `put` as JSON.
    pub(super) fn take(&mut self, scratch: &mut Vec<u8>, mut put: impl FnMut(&[u8])) {
        let mut runs = std::mem::take(&mut self.runs);
        let mut events = std::mem::take(&mut self.events);
        self.outbox.take(&mut runs, &mut events);
        for run in runs.drain(..) {
            let Some(held) = self.held.get_mut(&run.token) else {
                // The consumer ended meanwhile.
                let back: Vec<_> = run
                    .deliveries
                    .iter()
                    .map(|one| (one.id, Settle::Requeue))
                    .collect();
                run.source.settle(&back);
                continue;
            };
            for delivery in &run.deliveries {
                held.show(run.token, delivery, scratch);
                put(scratch);
            }
        }
        for Event::ConsumerGone { token } in events.drain(..) {
            if let Some(ended) = self.on_gone(token) {
                let notice = Ended {
                    consumer: token,
                    ended,
                };
                write(&notice, scratch);
                put(scratch);
            }
        }
        (self.runs, self.events) = (runs, events);
    }

    /// Returns the reason why a consumer has ended. `None` if the client has ended it before.
    fn on_gone(&mut self, token: u64) -> Option<&'static str> {
        let held = self.held.get_mut(&token)?;
        held.consumer = None;
        if held.queue.is_deleted() {
            self.held.remove(&token);
            return Some("queue_gone");
        }
        if held.unsettled.is_empty() {
            self.held.remove(&token);
        }
        Some("cancelled")
    }
}

impl Held {
    /// Returns true for a queue that the caller may read, or that is its own.
    fn may_read(&self, by: &Caller) -> bool {
        let queue = &self.queue;
        let own = by.name().map(queue_name);
        by.may(
            Action::Read,
            &Resource::queue(queue.namespace.as_str(), &queue.name),
        ) || queue.personal && own.is_some_and(|own| own == *queue.name)
    }

    fn show(&mut self, consumer: u64, delivery: &Delivery, scratch: &mut Vec<u8>) {
        let shown = Shown {
            state: if self.settles { "in_flight" } else { "settled" },
            delivery_count: delivery.delivery_count,
            redelivered: delivery.redelivered,
            lease: None,
            form: self.form,
            is_whole: true,
        };
        if self.settles {
            self.unsettled.insert(delivery.id);
        }
        let message = MessageOf::of(&self.queue, delivery.id, &delivery.message, shown);
        write(&Pushed { consumer, message }, scratch);
    }

    /// Ends the consumer: returned messages go to others, in their order.
    fn end(self) {
        if let Some((consumer, _)) = &self.consumer {
            consumer.hold();
        }
        let mut back: Vec<_> = self
            .unsettled
            .into_iter()
            .map(|id| (id, Settle::Requeue))
            .collect();
        back.sort_unstable_by_key(|(id, _)| (id.lane, id.offset));
        if !back.is_empty() {
            self.queue.settle(&back);
        }
        if let Some((consumer, _)) = self.consumer {
            consumer.cancel();
        }
    }
}

impl Drop for Consumers {
    fn drop(&mut self) {
        self.held.drain().for_each(|(_, held)| held.end());
    }
}

fn no_such_consumer(number: u64) -> Problem {
    Problem::bad_request(format!("this connection has no consumer {number}"))
}

fn write(value: &impl Serialize, scratch: &mut Vec<u8>) {
    scratch.clear();
    // Shapes of this crate can always be written.
    drop(serde_json::to_writer(scratch, value));
}
