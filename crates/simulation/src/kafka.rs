//! Kafka clients: idempotent producers that resend batches, plain producers, and a reader.

mod commits;
pub mod connection;
mod consumers;
mod group_steps;
mod groups;
mod left;
mod owners;
mod producer;
mod readers;
mod reading;
mod sharing;
mod transactional;

pub use self::group_steps::GroupStep;
pub use self::readers::ReaderStep;
pub(crate) use self::reading::{ID, Reading, id_of};
pub use self::sharing::ShareStep;
pub use self::transactional::TransactionStep;

use std::collections::VecDeque;
use std::time::Duration;

use stafett_kafka_wire::Uuid;
use stafett_kafka_wire::messages::create_topics::{CreatableTopic, CreatableTopicConfig};
use stafett_kafka_wire::messages::delete_topics::DeleteTopicState;
use stafett_kafka_wire::messages::metadata::MetadataRequestTopic;
use stafett_kafka_wire::messages::{CreateTopicsRequest, DeleteTopicsRequest, MetadataRequest};
use stafett_model::Durability;

use self::commits::Commits;
use self::connection::Connection;
use self::consumers::Consumer;
pub use self::consumers::SESSION_MS;
use self::groups::Member;
pub use self::producer::Producer;
use self::readers::Reader;
use self::sharing::Sharing;
use self::transactional::Transactional;
use crate::ledger::compaction::policy;
use crate::ledger::{Ledger, LogKey};
use crate::server::Server;
use crate::steps::{PARTITIONS, PRODUCERS, TOPICS};
use crate::world::{Broken, Death, Finding, World};

/// Kafka side of a run.
#[derive(Debug, Clone)]
pub struct Kafka {
    pub topics: Vec<Topic>,
    pub producers: Vec<Producer>,
    /// Connection that creates topics and reads them.
    admin: Option<Connection>,
    pub ledger: Ledger,
    transactional: Vec<Transactional>,
    members: Vec<Member>,
    consumers: Vec<Consumer>,
    sharing: Sharing,
    readers: Vec<Reader>,
    commits: Commits,
    groups: u64,
}

/// A topic by name.
#[derive(Debug, Clone)]
pub struct Topic {
    number: u8,
    pub level: Durability,
    pub incarnation: u32,
    known: Known,
    /// Ids of deleted topics, which must not be used again.
    gone: Vec<Uuid>,
}

/// Known state of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    Missing,
    /// The creation was not answered.
    Creating,
    There(Uuid),
    /// The deletion was not answered.
    Deleting(Uuid),
}

/// Retention of topics.
pub const KEPT: Duration = Duration::from_hours(7 * 24);

const LEVELS: [&str; 4] = ["sync", "os", "interval:10,50", "memory"];

impl Kafka {
    pub fn new() -> Self {
        let topic = |number: u8| Topic {
            number,
            level: LEVELS
                .get(usize::from(number) % LEVELS.len())
                .and_then(|level| level.parse().ok())
                .unwrap_or_default(),
            incarnation: 0,
            known: Known::Missing,
            gone: Vec::new(),
        };
        Self {
            topics: (0..TOPICS).map(topic).collect(),
            producers: (0..PRODUCERS).map(Producer::new).collect(),
            admin: None,
            ledger: Ledger::default(),
            transactional: transactional::clients(),
            members: groups::members(),
            consumers: consumers::consumers(),
            sharing: Sharing::new(),
            readers: readers::readers(),
            commits: Commits::default(),
            groups: 0,
        }
    }

    /// Returns a new group of batches that keep their order.
    pub fn new_group(&mut self) -> u64 {
        self.groups += 1;
        self.groups
    }

    pub fn topic(&self, number: u8) -> Option<&Topic> {
        self.topics.get(usize::from(number))
    }

    /// Returns the current log of a partition.
    pub fn log(&self, topic: u8, partition: u8) -> Option<LogKey> {
        Some(self.topic(topic)?.log(partition))
    }

    /// Processes the broker's answers.
    pub fn turn(&mut self, may_refuse: bool, now_ms: i64) -> Result<Vec<String>, Finding> {
        let mut notes = Vec::new();
        for producer in &mut self.producers {
            producer.turn(&mut self.ledger, may_refuse, &mut notes)?;
        }
        self.ledger.transactions.turn(now_ms);
        for client in &mut self.transactional {
            client.turn(&mut self.ledger, may_refuse, &mut notes)?;
        }
        for member in &mut self.members {
            member.turn(&mut self.commits, may_refuse, now_ms, &mut notes)?;
        }
        self.turn_consumers(may_refuse, now_ms, &mut notes)?;
        self.sharing
            .turn(&self.topics, &mut self.ledger, may_refuse, now_ms, &mut notes)?;
        self.turn_readers(may_refuse, &mut notes)?;
        if let Some(admin) = &mut self.admin {
            admin.turn();
        }
        Ok(notes)
    }

    /// Handles the start of a shutdown.
    pub fn begin_stop(&mut self) {
        self.sharing.begin_stop();
    }

    /// Handles the end of the program: no connection is left.
    pub fn on_end(&mut self) {
        self.admin = None;
        self.members.iter_mut().for_each(Member::on_end);
        self.consumers.iter_mut().for_each(Consumer::on_end);
        self.sharing.on_end();
        self.readers.iter_mut().for_each(Reader::leave);
        for producer in &mut self.producers {
            producer.leave(&mut self.ledger);
        }
        for client in &mut self.transactional {
            client.leave(&self.ledger);
        }
    }

    /// Handles the end of the program as it was. `is_clean`: everything was stored.
    pub fn on_death(&mut self, death: Option<Death>, is_clean: bool) {
        self.ledger.transactions.on_death(death);
        self.sharing.on_death(is_clean);
        let topics = &self.topics;
        let is_synced = |number: u8| {
            let topic = topics.get(usize::from(number));
            topic.is_some_and(|topic| topic.level == Durability::Sync)
        };
        for reader in &mut self.readers {
            reader.on_death(death, is_synced);
        }
    }

    /// Records that all topics are new: no earlier batch is resent.
    pub fn begin_anew(&mut self) {
        self.producers.iter_mut().for_each(Producer::forget_all);
        self.readers.iter_mut().for_each(Reader::forget_all);
    }

    /// Gives up batches that were missing after a start and that no producer resends.
    pub fn forget_lost(&mut self) {
        let again: Vec<&VecDeque<usize>> = self.producers.iter().map(|it| &it.again).collect();
        for number in 0..self.ledger.batches.len() {
            let is_resent = |client: &Transactional| client.is_resending(number);
            if !again.iter().any(|again| again.contains(&number)) && !self.transactional.iter().any(is_resent)
            {
                self.ledger.give_up(number);
            }
        }
    }
}

impl Default for Kafka {
    fn default() -> Self {
        Self::new()
    }
}

impl Topic {
    pub fn name(&self) -> String {
        format!("t{}", self.number)
    }

    fn configs(&self) -> Vec<CreatableTopicConfig> {
        let mut configs = vec![
            config("stafett.durability", self.level.to_string()),
            config("retention.ms", KEPT.as_millis().to_string()),
            // The clock is set back, and batches are sent again.
            config("message.timestamp.after.max.ms", i64::MAX.to_string()),
        ];
        if let Some(policy) = policy(self.number) {
            configs.extend([
                config("cleanup.policy", policy.cleanup.to_owned()),
                config("min.cleanable.dirty.ratio", policy.dirty_ratio.to_owned()),
                config("min.compaction.lag.ms", policy.lag_ms.to_string()),
                config("delete.retention.ms", policy.tombstones_kept_ms.to_string()),
            ]);
        }
        configs
    }

    fn log(&self, partition: u8) -> LogKey {
        LogKey {
            topic: self.number,
            incarnation: self.incarnation,
            partition,
        }
    }

    pub fn is_there(&self) -> bool {
        matches!(self.known, Known::There(_))
    }
}

fn config(name: &'static str, value: String) -> CreatableTopicConfig {
    CreatableTopicConfig {
        name: name.into(),
        value: Some(value.into()),
    }
}

impl World {
    /// Resolves unanswered changes of topics and creates missing topics.
    pub async fn settle_topics(&mut self, server: &mut Server) -> Result<(), Broken> {
        for number in 0..TOPICS {
            self.look_at_topic(server, number).await?;
            let known = self.kafka.topic(number).map(|topic| topic.known);
            if known == Some(Known::Missing) {
                self.create_topic(server, number).await?;
            }
        }
        Ok(())
    }

    async fn look_at_topic(&mut self, server: &mut Server, number: u8) -> Result<(), Broken> {
        let Some(name) = self.kafka.topic(number).map(Topic::name) else {
            return Ok(());
        };
        let asked = MetadataRequestTopic {
            name: Some(name.clone().into()),
            ..MetadataRequestTopic::default()
        };
        let request = MetadataRequest {
            topics: Some(vec![asked]),
            allow_auto_topic_creation: false,
            ..MetadataRequest::default()
        };
        let answer = self.ask(server, 12, &request).await?;
        let seen = answer.topics.first().filter(|topic| topic.error_code == 0);
        let seen = seen.map(|topic| topic.topic_id);
        let Some(topic) = self.kafka.topics.get_mut(usize::from(number)) else {
            return Ok(());
        };
        topic.known = match (topic.known, seen) {
            (Known::Missing | Known::Creating, None) => Known::Missing,
            (Known::Creating, Some(id)) if !topic.gone.contains(&id) => Known::There(id),
            (Known::There(id), Some(seen)) if id == seen => Known::There(id),
            (Known::Deleting(id), Some(seen)) if id == seen => Known::There(id),
            (Known::Deleting(id), None) => {
                topic.gone.push(id);
                topic.incarnation += 1;
                let producers = self.kafka.producers.iter_mut();
                producers.for_each(|producer| producer.forget_topic(number));
                let clients = self.kafka.transactional.iter_mut();
                clients.for_each(|client| client.forget_topic(number));
                Known::Missing
            }
            (known, seen) => {
                return Err(Finding(format!("topic {name} is {known:?}, and seen is {seen:?}")).into());
            }
        };
        Ok(())
    }

    async fn create_topic(&mut self, server: &mut Server, number: u8) -> Result<(), Broken> {
        let Some(topic) = self.kafka.topics.get_mut(usize::from(number)) else {
            return Ok(());
        };
        topic.known = Known::Creating;
        let new = CreatableTopic {
            name: topic.name().into(),
            num_partitions: PARTITIONS.into(),
            replication_factor: -1,
            configs: topic.configs(),
            ..CreatableTopic::default()
        };
        let request = CreateTopicsRequest {
            topics: vec![new],
            timeout_ms: 60_000,
            ..CreateTopicsRequest::default()
        };
        let answer = self.ask(server, 7, &request).await?;
        let (has_failed, may_refuse) = (self.has_failed(), self.may_refuse);
        let Some((made, topic)) = answer
            .topics
            .first()
            .zip(self.kafka.topics.get_mut(usize::from(number)))
        else {
            return Ok(());
        };
        match made.error_code {
            0 if topic.gone.contains(&made.topic_id) => {
                return Err(Finding(format!("the id of a deleted topic came again: {made:?}")).into());
            }
            0 => topic.known = Known::There(made.topic_id),
            // A failed journal cannot tell whether it is stored.
            _ if has_failed => {}
            _ if may_refuse => topic.known = Known::Missing,
            _ => return Err(Finding(format!("a topic was not created: {made:?}")).into()),
        }
        Ok(())
    }

    /// Deletes a topic and creates it again.
    pub async fn recreate_topic(&mut self, server: &mut Server, number: u8) -> Result<(), Broken> {
        let is_used = self
            .kafka
            .producers
            .iter()
            .any(|producer| producer.is_waiting_for(number, &self.kafka.ledger))
            || self
                .kafka
                .transactional
                .iter()
                .any(|client| client.is_waiting_for(number, &self.kafka.ledger))
            || self
                .kafka
                .members
                .iter()
                .any(|member| member.is_waiting_for(number))
            || self
                .kafka
                .consumers
                .iter()
                .any(|consumer| consumer.is_waiting_for(number));
        let batches = &self.kafka.ledger.batches;
        let topic_of = |batch: usize| batches.get(batch).map(|batch| batch.log.topic);
        let is_used = is_used || self.amqp.copies.may_get_records(number, topic_of);
        let Some(topic) = self.kafka.topics.get_mut(usize::from(number)) else {
            return Ok(());
        };
        let Known::There(id) = topic.known else {
            return Ok(());
        };
        if is_used {
            // A batch in flight could belong to either topic.
            return Ok(());
        }
        topic.known = Known::Deleting(id);
        self.kafka.commits.on_deletion(topic.number);
        let request = DeleteTopicsRequest {
            topics: vec![DeleteTopicState {
                name: Some(topic.name().into()),
                ..DeleteTopicState::default()
            }],
            timeout_ms: 60_000,
            ..DeleteTopicsRequest::default()
        };
        let answer = self.ask(server, 6, &request).await?;
        let code = answer.responses.first().map(|topic| topic.error_code);
        match code {
            Some(0) => {}
            // The metadata of a failed broker may not be stored.
            _ if self.has_failed() => return Ok(()),
            _ if self.may_refuse => {}
            _ => return Err(Finding(format!("a topic was not deleted: {answer:?}")).into()),
        }
        self.look_at_topic(server, number).await?;
        let topic = self.kafka.topic(number);
        if code == Some(0) && topic.is_some_and(Topic::is_there) {
            return Err(Finding(format!("topic {number} is deleted and there")).into());
        }
        if topic.is_some_and(|topic| topic.known == Known::Missing) {
            self.create_topic(server, number).await?;
        }
        Ok(())
    }
}
