//! Dead letters: records that are not written go to the topic `NAME.dead`, with the reason in their headers.

use std::sync::Arc;

use async_trait::async_trait;
use stafett_kafka_client::{Client, Producer, ProducerSettings};
use stafett_model::{Lock, Record, StoredRecord};
use uuid::Uuid;

use crate::flush::{DeadLetters, FlushError, StoredLetters};
use crate::gather::Poison;
use crate::pace::PoisonCount;
use crate::reader::{Unwritten, records_at};
use crate::target::Place;

/// Bytes of a reason, at most.
const REASON_BYTES: usize = 1000;

/// Place where a record is found again.
#[derive(Debug, Clone)]
pub(crate) enum Origin {
    /// The broker that has the records, and the id of their topic.
    Log(Client, Option<Uuid>),
    Queue(Unwritten),
}

impl Origin {
    /// Notes the id of the topic. Returns true if it is another one.
    fn set_topic(&mut self, topic: Option<Uuid>) -> bool {
        match self {
            Self::Log(_, id) => std::mem::replace(id, topic) != topic,
            Self::Queue(_) => false,
        }
    }

    /// Returns the records at ascending offsets, as far as they are still there.
    async fn records_at(&self, place: &Place, offsets: &[u64]) -> Result<Vec<StoredRecord>, String> {
        match self {
            Self::Log(client, id) => records_at(client, place, *id, offsets)
                .await
                .map_err(|why| why.to_string()),
            Self::Queue(unwritten) => {
                let unwritten = unwritten.lock();
                let wanted = |record: &&StoredRecord| offsets.binary_search(&record.offset.0).is_ok();
                Ok(unwritten.iter().filter(wanted).cloned().collect())
            }
        }
    }
}

/// Writer of a sink's dead letters.
#[derive(Debug)]
pub(crate) struct DeadTopic {
    pub(crate) client: Client,
    pub(crate) source: Origin,
    pub(crate) sink: String,
    pub(crate) topic: String,
    /// False: poison stops the sink.
    pub(crate) allowed: bool,
    pub(crate) count: Arc<Lock<PoisonCount>>,
    pub(crate) now_ms: fn() -> u64,
    pub(crate) stored: StoredLetters,
}

#[async_trait]
impl DeadLetters for DeadTopic {
    async fn store(&mut self, place: &Place, poison: &[Poison]) -> Result<(), FlushError> {
        let poison = self.stored.missing(poison);
        let Some(last) = poison.last() else {
            return Ok(());
        };
        let is_over = self.count.lock().add(poison.len() as u64, (self.now_ms)());
        if is_over || !self.allowed {
            return Err(FlushError::TooMuchPoison {
                count: poison.len(),
                offset: last.offset,
                class: last.reason.class,
                text: last.reason.text.clone(),
            });
        }
        self.send(place, &poison).await.map_err(FlushError::DeadLetters)?;
        self.stored.add(&poison);
        Ok(())
    }
}

impl DeadTopic {
    /// Notes the id of the topic whose records come.
    pub(crate) fn set_topic(&mut self, topic: Option<Uuid>) {
        if self.source.set_topic(topic) {
            self.stored.clear();
        }
    }

    async fn send(&self, place: &Place, poison: &[&Poison]) -> Result<(), String> {
        let topic = self.client.topic(&self.topic).await;
        let topic = topic.map_err(|why| why.to_string())?;
        let failed: Arc<Lock<Option<String>>> = Arc::default();
        let note = Arc::clone(&failed);
        let on_delivery = move |delivery: stafett_kafka_client::Delivery| {
            if let Err(why) = delivery.result {
                *note.lock() = Some(why.to_string());
            }
        };
        let settings = ProducerSettings::default();
        let mut producer = Producer::open(self.client.clone(), topic, settings, on_delivery)
            .await
            .map_err(|why| why.to_string())?;
        let offsets: Vec<u64> = poison.iter().map(|found| found.offset).collect();
        let mut records = self.source.records_at(place, &offsets).await?;
        records.sort_by_key(|record| record.offset.0);
        for (mark, found) in (0..).zip(poison) {
            let at = records.binary_search_by_key(&found.offset, |record| record.offset.0);
            let record = at.ok().and_then(|at| records.get(at));
            self.push(&mut producer, place, (found, record), mark).await?;
        }
        producer.finish().await;
        let failed = failed.lock().take();
        failed.map_or(Ok(()), Err)
    }

    async fn push(
        &self,
        producer: &mut Producer,
        place: &Place,
        (found, record): (&Poison, Option<&StoredRecord>),
        mark: u64,
    ) -> Result<(), String> {
        let key = format!("{place}/{}", found.offset);
        let (partition, offset) = (place.partition.to_string(), found.offset.to_string());
        let reason = &found.reason;
        let text = reason.text.get(..REASON_BYTES.min(reason.text.len()));
        let text = text.unwrap_or(&reason.text);
        let mut headers: Vec<(&[u8], Option<&[u8]>)> = vec![
            (b"stafett-sink", Some(self.sink.as_bytes())),
            (b"stafett-class", Some(reason.class.as_bytes())),
            (b"stafett-reason", Some(text.as_bytes())),
            (b"stafett-topic", Some(place.topic.as_bytes())),
            (b"stafett-partition", Some(partition.as_bytes())),
            (b"stafett-offset", Some(offset.as_bytes())),
        ];
        let (mut value, mut timestamp) = (None, -1);
        if let Some(record) = record {
            if let Some(key) = &record.key {
                headers.push((b"stafett-key", Some(key)));
            }
            headers.extend(record.headers.iter());
            value = record.value.as_deref();
            timestamp = record.timestamp;
        }
        let letter = Record {
            key: Some(key.as_bytes()),
            value,
            headers: &headers,
            timestamp,
        };
        // Letters of one place stay in order: they go to one partition.
        let partition = place.partition as usize % producer.partitions().max(1);
        producer
            .push(partition, &letter, mark)
            .await
            .map_err(|why| why.to_string())
    }
}
