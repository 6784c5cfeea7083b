//! A topic of this or another broker: records and position in one transaction of Kafka's protocol.
//!
//! ```text
//! open    InitProducerId                       earlier writers of the place are fenced
//!         committed offset of the place's group     the position
//! write   AddPartitionsToTxn, Produce …        rows, seen once they are committed
//!         AddOffsetsToTxn, TxnOffsetCommit     the position
//!         EndTxn                               both count, or neither
//! ```
//!
//! Transactional id and group of a place have one name, `stafett-sink.SINK/TOPIC/PARTITION`. The position is
//! its offset for partition 0 of the target, with the id of the topic as its text. An unfinished transaction
//! ends when the place is opened anew.

mod errors;
pub(crate) mod records;

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use stafett_kafka_client::admin::NewTopic;
use stafett_kafka_client::groups::Offsets;
use stafett_kafka_client::{Client, ClientError, ErrorCode, Topic, Transactional};
use uuid::Uuid;

use super::{Opened, Part, Place, Promise, Start, Steps, Surroundings, Target, TargetError};
use crate::broker;
use crate::columns::Column;
use crate::definition::TopicSpec;
pub(crate) use errors::failed;
use records::Batches;

/// Time after which a transaction that was left is aborted.
const TRANSACTION: Duration = Duration::from_mins(1);
/// Partition of the target under which a position is committed.
const POSITION: i32 = 0;
/// Text in front of the id of the source's topic, in the metadata of a position.
const TOPIC: &str = "topic_id=";

/// A topic.
pub struct TopicTarget {
    sink: String,
    spec: TopicSpec,
    columns: Vec<Column>,
    servers: broker::Servers,
    steps: Steps,
    client: Option<Client>,
    topic: Option<Topic>,
    places: HashMap<Place, Held>,
}

/// A place that this writer has taken over.
struct Held {
    producer: Transactional,
    next: u64,
    /// Id of the source's topic.
    topic: Option<Uuid>,
}

impl Held {
    fn epoch(&self) -> u64 {
        u64::try_from(self.producer.epoch()).unwrap_or(0)
    }
}

impl std::fmt::Debug for TopicTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TopicTarget")
            .field("topic", &self.spec.topic)
            .finish_non_exhaustive()
    }
}

impl TopicTarget {
    pub fn new(sink: &str, spec: &TopicSpec, columns: &[Column], surroundings: &Surroundings) -> Self {
        let servers = spec
            .broker
            .as_ref()
            .map_or_else(|| surroundings.servers.clone(), broker::Servers::of);
        Self {
            sink: sink.to_owned(),
            spec: spec.clone(),
            columns: columns.to_vec(),
            servers,
            steps: surroundings.steps.clone(),
            client: None,
            topic: None,
            places: HashMap::new(),
        }
    }

    fn prefix(&self) -> String {
        format!("stafett-sink.{}/", self.sink)
    }

    /// Returns the transactional id and group of a place.
    fn id(&self, place: &Place) -> String {
        format!("{}{place}", self.prefix())
    }

    async fn client(&mut self) -> Result<Client, TargetError> {
        if let Some(client) = &self.client {
            return Ok(client.clone());
        }
        let client = self.servers.connect().await?;
        self.client = Some(client.clone());
        Ok(client)
    }

    async fn topic(&mut self) -> Result<Topic, TargetError> {
        if let Some(topic) = &self.topic {
            return Ok(topic.clone());
        }
        let name = self.spec.topic.clone();
        let client = self.client().await?;
        let topic = client.topic(&name).await.map_err(|why| failed(&why, None))?;
        self.topic = Some(topic.clone());
        Ok(topic)
    }

    /// Returns the position of a place among the offsets of its group, and the id of its topic.
    fn position_in(&self, committed: &Offsets) -> Option<(u64, Option<Uuid>)> {
        let (_, committed) = committed
            .iter()
            .find(|((topic, partition), _)| *topic == *self.spec.topic && *partition == POSITION)?;
        let text = committed.metadata.as_ref();
        let topic = text.and_then(|text| text.strip_prefix(TOPIC)?.parse().ok());
        Some((u64::try_from(committed.offset).ok()?, topic))
    }

    /// Commits a position without rows.
    async fn put_position(&mut self, place: &Place, held: &mut Held) -> Result<(), TargetError> {
        let (id, topic) = (self.id(place), self.topic().await?);
        let error = |why: &_| failed(why, Some(place));
        let position = (held.next, held.topic);
        commit_position(&mut held.producer, &id, &topic, position)
            .await
            .map_err(|why| error(&why))?;
        held.producer.end(true).await.map_err(|why| error(&why))
    }

    async fn take_over(&mut self, place: &Place) -> Result<Transactional, TargetError> {
        let (id, client) = (self.id(place), self.client().await?);
        let producer = Transactional::open(&client, &id, TRANSACTION).await;
        producer.map_err(|why| failed(&why, Some(place)))
    }

    /// Sends the rows of a part, and commits them with the position.
    async fn store(&mut self, part: &Part<'_>, topic: &Topic) -> Result<(), TargetError> {
        let id = self.id(part.place);
        let fenced = || TargetError::Fenced(part.place.clone());
        let held = self
            .places
            .get_mut(part.place)
            .filter(|held| held.next == part.from);
        let held = held.ok_or_else(fenced)?;
        let error = |why: &_| failed(why, Some(part.place));
        let mut batches = Batches::new(&self.spec, &self.columns, part, topic)?;
        loop {
            let round = batches.round(&held.producer, topic)?;
            if round.is_empty() {
                break;
            }
            let sent = held.producer.send(topic, round).await;
            sent.map_err(|why| error(&why))?;
            self.steps.reach("sent")?;
        }
        let position = (part.next, held.topic);
        let added = commit_position(&mut held.producer, &id, topic, position).await;
        added.map_err(|why| error(&why))?;
        self.steps.reach("position")?;
        held.producer.end(true).await.map_err(|why| error(&why))?;
        self.steps.reach("committed")?;
        held.next = part.next;
        Ok(())
    }
}

async fn commit_position(
    producer: &mut Transactional,
    id: &str,
    target: &Topic,
    (next, topic): (u64, Option<Uuid>),
) -> Result<(), ClientError> {
    let next = i64::try_from(next).unwrap_or(i64::MAX);
    let text = topic.map_or_else(String::new, |topic| format!("{TOPIC}{topic}"));
    producer
        .commit_offset(id, (&target.name, POSITION), next, &text)
        .await
}

#[async_trait]
impl Target for TopicTarget {
    async fn open(&mut self, place: &Place, start: Start) -> Result<Opened, TargetError> {
        // A request that hangs in an earlier connection must not hold this one up.
        (self.client, self.topic) = (None, None);
        self.places.remove(place);
        self.topic().await?;
        let producer = self.take_over(place).await?;
        self.steps.reach("fenced")?;
        let id = self.id(place);
        // The one before may have ended its transaction, and the group may not know of that yet.
        let client = self.client().await?;
        let committed = client.committed_for_good(&id).await;
        let position = self.position_in(&committed.map_err(|why| failed(&why, Some(place)))?);
        let (next, known) = position.unwrap_or((start.next, start.topic));
        if !start.is_of(known) {
            return Err(TargetError::MadeAgain(place.clone()));
        }
        let topic = known.or(start.topic);
        let mut held = Held {
            producer,
            next,
            topic,
        };
        if position != Some((next, topic)) {
            // A place without records yet has a position as well: another one may begin elsewhere.
            self.put_position(place, &mut held).await?;
        }
        self.steps.reach("opened")?;
        let epoch = held.epoch();
        self.places.insert(place.clone(), held);
        Ok(Opened {
            next,
            epoch,
            begun: None,
            topic,
        })
    }

    async fn write(&mut self, part: &Part<'_>) -> Result<(), TargetError> {
        let topic = self.topic().await?;
        let stored = self.store(part, &topic).await;
        if let Err(TargetError::Poison { .. }) = &stored {
            // Ends the transaction, and the numbers of its batches.
            let producer = self.take_over(part.place).await?;
            if let Some(held) = self.places.get_mut(part.place) {
                (held.producer, held.next) = (producer, part.from);
            }
        }
        stored
    }

    async fn positions(&mut self) -> Result<Vec<(Place, u64)>, TargetError> {
        let (prefix, client) = (self.prefix(), self.client().await?);
        let groups = client.groups().await.map_err(|why| failed(&why, None))?;
        let mut positions = Vec::new();
        for group in groups {
            let place = group
                .name
                .strip_prefix(&*prefix)
                .and_then(|place| place.rsplit_once('/'));
            let Some((topic, Ok(partition))) = place.map(|(topic, number)| (topic, number.parse())) else {
                continue;
            };
            let committed = client.committed(&group.name).await;
            if let Some((next, _)) = self.position_in(&committed.map_err(|why| failed(&why, None))?) {
                let topic = topic.to_owned();
                positions.push((Place { topic, partition }, next));
            }
        }
        positions.sort();
        Ok(positions)
    }

    async fn set_position(&mut self, place: &Place, start: Start) -> Result<(), TargetError> {
        (self.client, self.topic) = (None, None);
        let mut held = Held {
            producer: self.take_over(place).await?,
            next: start.next,
            topic: start.topic,
        };
        self.put_position(place, &mut held).await?;
        self.places.insert(place.clone(), held);
        Ok(())
    }

    async fn set_position_since(
        &mut self,
        place: &Place,
        epoch: u64,
        start: Start,
    ) -> Result<(), TargetError> {
        let held = self.places.remove(place).filter(|held| held.epoch() == epoch);
        // Another writer has fenced this producer.
        let mut held = held.ok_or_else(|| TargetError::Fenced(place.clone()))?;
        (held.next, held.topic) = (start.next, start.topic);
        self.put_position(place, &mut held).await?;
        self.places.insert(place.clone(), held);
        Ok(())
    }

    async fn prepare(&mut self, make: bool) -> Result<Vec<String>, TargetError> {
        let name = self.spec.topic.clone();
        let client = self.client().await?;
        match client.topic(&name).await {
            Ok(_) => return Ok(Vec::new()),
            Err(why) if why.code() == Some(ErrorCode::UnknownTopicOrPartition) => {}
            Err(why) => return Err(failed(&why, None)),
        }
        if make {
            let topic = NewTopic {
                name: name.clone(),
                partitions: None,
                replication: None,
                settings: Vec::new(),
                dry_run: false,
            };
            client
                .create_topic(&topic)
                .await
                .map_err(|why| failed(&why, None))?;
        }
        Ok(vec![format!("the topic {name}")])
    }

    fn promise(&self) -> Promise {
        Promise::ExactlyOnce
    }
}
