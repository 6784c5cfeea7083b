//! A queue over a topic of Kafka's producers: it has every record of the topic, of all partitions, also of
//! those that are added, until they are settled, and goes with its topic.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use stafett_amqp_wire::TableBuilder;
use stafett_amqp_wire::methods::queue;
use stafett_kafka_wire::messages::create_partitions::CreatePartitionsTopic;
use stafett_kafka_wire::messages::create_topics::{CreatableTopic, CreatableTopicConfig};
use stafett_kafka_wire::messages::delete_topics::DeleteTopicState;
use stafett_kafka_wire::messages::{CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest};
use stafett_model::Namespace;

use self::feed::Feed;
use super::client::Client;
use super::copies::{Copies, Origin, Place};
use super::patience::{Patience, Times};
use crate::random::Random;
use crate::server::{Server, pumped};
use crate::steps::Settling;
use crate::world::{Broken, Finding, World};

mod feed;

const TOPIC: &str = "grown";
const NAME: &str = "view";
/// Number of the queue among its client's.
const QUEUE: u8 = 0;
/// Number of the client, which also decides its prefetch.
const NUMBER: u8 = 14;
const PARTITIONS_MAX: u8 = 4;
/// Kafka's error code for a topic that is there: an earlier request, without an answer, made it.
const ALREADY_EXISTS: i16 = 36;
/// Milliseconds after which the queue has everything.
const QUIET_MS: u32 = 10_000;

/// Step of the queue, its topic and its consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ViewStep {
    /// A producer sends batches to a partition; the topic and the queue are made if they are missing.
    Produce {
        partition: u8,
        count: u8,
    },
    Grow,
    Delete,
    Consume,
    Settle {
        count: u8,
        how: Settling,
    },
    Cut,
    /// Waits until the queue has everything that was acknowledged.
    Look,
}

impl ViewStep {
    pub fn draw(random: &mut Random) -> Self {
        let mut small = |bound: u8| u8::try_from(random.below(bound.into())).unwrap_or(0);
        let (kind, count, partition) = (small(20), small(12), small(PARTITIONS_MAX));
        match kind {
            0 => Self::Delete,
            1 | 2 => Self::Grow,
            3..=5 => Self::Consume,
            6..=10 => Self::Settle {
                count: 1 + count,
                how: random.pick(&[Settling::Ack, Settling::AckAll, Settling::Requeue]),
            },
            11 => Self::Cut,
            12 => Self::Look,
            _ => Self::Produce { partition, count },
        }
    }
}

/// The queue and its topic, as their clients know them.
#[derive(Debug, Clone)]
pub(super) struct View {
    pub(super) client: Client,
    pub(super) copies: Copies,
    feed: Feed,
    /// Partitions of the topic, at least and at most; 0 if it may be missing.
    partitions: (u8, u8),
    /// True once the queue was declared over the present topic.
    is_declared: bool,
    /// True if its deletion was not answered.
    is_going: bool,
}

impl View {
    pub(super) fn new() -> Self {
        Self {
            client: Client::of_queues(NUMBER, &[NAME]),
            copies: Copies::default(),
            feed: Feed::default(),
            partitions: (0, 0),
            is_declared: false,
            is_going: false,
        }
    }

    pub(super) fn turn(
        &mut self,
        may_refuse: bool,
        now_ms: i64,
        notes: &mut Vec<String>,
    ) -> Result<(), Finding> {
        self.client.turn(&mut self.copies, may_refuse, now_ms, notes)?;
        self.feed.turn(&mut self.copies, may_refuse, notes)
    }

    pub(super) fn on_end(&mut self, now_ms: i64) {
        self.client.lose(&mut self.copies, now_ms);
        self.feed.leave();
        self.copies.on_end();
    }
}

impl World {
    pub async fn view_step(&mut self, server: &mut Server, step: ViewStep) -> Result<(), Broken> {
        let now_ms = self.now_ms();
        if let ViewStep::Delete = step {
            return self.delete_view(server).await;
        }
        if !self.make_view(server).await? {
            return Ok(());
        }
        match step {
            ViewStep::Delete => {}
            ViewStep::Produce { partition, count } => self.feed_view(server, partition, count)?,
            ViewStep::Grow => self.grow_view(server).await?,
            ViewStep::Consume => {
                let View { client, copies, .. } = &mut self.amqp.view;
                client.connect(server)?;
                client.consume(copies, QUEUE, now_ms);
            }
            ViewStep::Settle { count, how } => {
                let View { client, copies, .. } = &mut self.amqp.view;
                client.settle(copies, count, how, now_ms);
            }
            ViewStep::Cut => {
                let View { client, copies, .. } = &mut self.amqp.view;
                client.lose(copies, now_ms);
            }
            ViewStep::Look => self.await_view(server).await?,
        }
        Ok(())
    }

    fn feed_view(&mut self, server: &mut Server, partition: u8, count: u8) -> Result<(), Finding> {
        let view = &mut self.amqp.view;
        let partition = partition % view.partitions.0.max(1);
        view.feed.connect(server)?;
        for _ in 0..count {
            let origin = Origin {
                // A partition keeps the order of one connection.
                stream: view.feed.stream(partition),
                priority: 0,
                times: Times::new(Patience::default(), view.copies.clock_ms),
            };
            let number = view.copies.add(&[QUEUE], true, origin);
            view.feed.send(TOPIC, partition, number)?;
            self.trace
                .note(|| format!("record {number} is sent to {partition} of the view"));
        }
        Ok(())
    }

    /// Makes the topic and the queue if they are missing. Returns true if both are there.
    async fn make_view(&mut self, server: &mut Server) -> Result<bool, Broken> {
        if self.amqp.view.is_declared {
            return Ok(true);
        }
        if self.may_refuse {
            return Ok(false);
        }
        if self.amqp.view.partitions.0 == 0 {
            self.amqp.view.partitions = (0, 1);
            let topic = CreatableTopic {
                name: TOPIC.into(),
                num_partitions: 1,
                replication_factor: -1,
                configs: [
                    ("retention.ms", "-1"),
                    ("message.timestamp.after.max.ms", "9223372036854775807"),
                ]
                .map(|(name, value)| CreatableTopicConfig {
                    name: name.into(),
                    value: Some(value.into()),
                })
                .into(),
                ..CreatableTopic::default()
            };
            let request = CreateTopicsRequest {
                topics: vec![topic],
                timeout_ms: 60_000,
                ..CreateTopicsRequest::default()
            };
            let answer = self.ask(server, 7, &request).await?;
            match answer.topics.first().map(|topic| topic.error_code) {
                Some(0 | ALREADY_EXISTS) => {}
                _ if self.may_refuse || self.has_failed() => return Ok(false),
                _ => return Err(Finding(format!("the topic of a view is not made: {answer:?}")).into()),
            }
        }
        self.amqp.view.partitions.0 = self.amqp.view.partitions.1;
        let declare = queue::Declare {
            queue: NAME.into(),
            durable: true,
            arguments: TableBuilder::new().with("x-stafett-topic", TOPIC).finish(),
            ..queue::Declare::default()
        };
        self.tell(server, vec![declare.into()]).await?;
        self.amqp.view.is_declared = true;
        Ok(true)
    }

    async fn grow_view(&mut self, server: &mut Server) -> Result<(), Broken> {
        let View { partitions, .. } = &mut self.amqp.view;
        let count = partitions.1 + 1;
        if partitions.0 != partitions.1 || count > PARTITIONS_MAX {
            return Ok(());
        }
        partitions.1 = count;
        let request = CreatePartitionsRequest {
            topics: vec![CreatePartitionsTopic {
                name: TOPIC.into(),
                count: count.into(),
                assignments: None,
            }],
            timeout_ms: 60_000,
            validate_only: false,
        };
        let answer = self.ask(server, 2, &request).await?;
        match answer.results.first().map(|topic| topic.error_code) {
            Some(0) => self.amqp.view.partitions.0 = count,
            _ if self.may_refuse || self.has_failed() => {}
            _ => return Err(Finding(format!("a topic does not grow: {answer:?}")).into()),
        }
        Ok(())
    }

    async fn delete_view(&mut self, server: &mut Server) -> Result<(), Broken> {
        let now_ms = self.now_ms();
        let view = &mut self.amqp.view;
        if !view.is_declared || view.feed.is_waiting() {
            return Ok(());
        }
        // Its deletion ends consumers.
        view.client.lose(&mut view.copies, now_ms);
        view.is_going = true;
        let request = DeleteTopicsRequest {
            topics: vec![DeleteTopicState {
                name: Some(TOPIC.into()),
                ..DeleteTopicState::default()
            }],
            timeout_ms: 60_000,
            ..DeleteTopicsRequest::default()
        };
        let answer = self.ask(server, 6, &request).await?;
        match answer.responses.first().map(|topic| topic.error_code) {
            Some(0) => Ok(self.forget_view(server)?),
            _ if self.may_refuse || self.has_failed() => Ok(()),
            _ => Err(Finding(format!("the topic of a view is not deleted: {answer:?}")).into()),
        }
    }

    /// Checks that topic and queue are gone together, and forgets their messages.
    fn forget_view(&mut self, server: &Server) -> Result<(), Finding> {
        let queues = server.broker.messaging().queues();
        let is_there = queues.get(&Namespace::default(), NAME).is_some();
        if is_there || server.broker.topics().named(TOPIC).is_some() {
            return Err(Finding(
                "a topic is deleted, and it or the queue over it is there".to_owned(),
            ));
        }
        let view = &mut self.amqp.view;
        view.copies.forget_all();
        view.feed.forget_all();
        (view.partitions, view.is_declared, view.is_going) = ((0, 0), false, false);
        Ok(())
    }

    /// Waits until the queue has as many messages as its clients know of.
    async fn await_view(&mut self, server: &mut Server) -> Result<(), Broken> {
        let mut seen = (0, (0, 0));
        for _ in 0..QUIET_MS {
            self.tick(server).await?;
            let queues = server.broker.messaging().queues();
            let counts = queues
                .get(&Namespace::default(), NAME)
                .map(|queue| queue.counts());
            let count = counts.map_or(0, |counts| counts.ready + counts.in_flight as u64);
            seen = (count, self.amqp.view.copies.bounds());
            let is_waiting = self.amqp.view.feed.is_waiting() || self.amqp.view.client.is_waiting();
            if !is_waiting && (seen.1.0..=seen.1.1).contains(&count) || self.has_failed() {
                return Ok(());
            }
        }
        if self.may_refuse {
            return Ok(());
        }
        let (count, bounds) = seen;
        Err(Finding(format!(
            "a queue over a topic has {count} messages, clients know of {bounds:?}"
        ))
        .into())
    }

    /// Checks after a start that the queue has all that is not settled, or is gone with its topic.
    pub async fn check_view(&mut self, server: &mut Server) -> Result<(), Broken> {
        let queue = server
            .broker
            .messaging()
            .queues()
            .get(&Namespace::default(), NAME);
        let topic = server.broker.topics().named(TOPIC);
        if topic.is_none() && (self.amqp.view.is_going || self.amqp.view.partitions.0 == 0) {
            drop(queue);
            return Ok(self.forget_view(server)?);
        }
        let view = &mut self.amqp.view;
        view.is_going = false;
        let count = topic.map_or(0, |topic| u8::try_from(topic.partitions()).unwrap_or(u8::MAX));
        let (least, most) = view.partitions;
        if !(least..=most).contains(&count) || view.is_declared && queue.is_none() {
            let is_there = queue.is_some();
            return Err(Finding(format!(
                "the topic below a queue has {count} partitions of {least} to {most}; the queue: {is_there}"
            ))
            .into());
        }
        view.partitions = (count, count);
        view.is_declared = queue.is_some();
        let Some(queue) = queue else { return Ok(()) };
        let mut found: BTreeMap<(usize, Place), u32> = BTreeMap::new();
        for left in (0..QUIET_MS / 100).rev() {
            found.clear();
            let look = queue.peek(|_, message| {
                if let Some((number, _)) = crate::kafka::id_of(message.value()) {
                    *found.entry((number, Place(QUEUE))).or_default() += 1;
                }
                ControlFlow::Continue(())
            });
            if let Err(failed) = pumped(&server.journal, look).await {
                self.tick(server).await?;
                return Err(Finding(failed.0).into());
            }
            match self.amqp.view.copies.check(&found) {
                Ok(()) => break,
                Err(Finding(what)) if left == 0 => {
                    return Err(Finding(format!("in a queue over a topic: {what}")).into());
                }
                Err(_) => self.rest(server, 100).await?,
            }
        }
        self.amqp.view.copies.resolve(&found);
        Ok(())
    }
}
