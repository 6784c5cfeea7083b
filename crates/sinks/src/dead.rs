//! Dead letters: records that are not written go to the topic `NAME.dead`, with the reason in their headers.
//!
//! A letter that is too large for that topic is stored without the record's value, or with the reason and the
//! place alone, and says so: the record itself is where it was.

use std::sync::Arc;

use async_trait::async_trait;
use stafett_kafka_client::{Client, ClientError, Delivery, ErrorCode, Producer, ProducerSettings};
use stafett_model::{Lock, Record, StoredRecord};
use uuid::Uuid;

use crate::flush::{DeadLetters, FlushError, StoredLetters};
use crate::gather::Poison;
use crate::pace::{PoisonCount, Weighed};
use crate::reader::{Unwritten, records_at};
use crate::target::Place;

/// Bytes of a reason, at most.
const REASON_BYTES: usize = 1000;
/// Bytes of a value in a letter, at most.
const VALUE_BYTES_MAX: usize = 32 << 20;

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
        let count = poison.len() as u64;
        let weighed = if self.allowed {
            self.count.lock().weigh(count, (self.now_ms)())
        } else {
            Weighed::Refused
        };
        if weighed == Weighed::Refused {
            return Err(FlushError::TooMuchPoison {
                count: poison.len(),
                offset: last.offset,
                class: last.reason.class,
                text: last.reason.text.clone(),
            });
        }
        self.send(place, &poison).await.map_err(FlushError::DeadLetters)?;
        self.count.lock().add(count, weighed, (self.now_ms)());
        Ok(())
    }
}

/// Parts of a record in its letter. A topic that refuses one for its size gets the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Whole,
    WithoutValue,
    /// The reason and the place alone.
    Place,
}

/// Attempts at letters: those that were too large for one come in the next. In a batch of several, each
/// counts as too large.
const ATTEMPTS: [(Form, usize); 4] = [
    (Form::Whole, 256 << 10),
    (Form::Whole, 0),
    (Form::WithoutValue, 0),
    (Form::Place, 0),
];

/// Outcome of letters, by their marks.
#[derive(Debug, Default)]
struct Sent {
    delivered: Vec<u64>,
    too_large: Vec<u64>,
    failed: Option<String>,
}

impl Sent {
    fn note(&mut self, delivery: &Delivery) {
        let marks = delivery.marks.runs().iter();
        let marks = marks.flat_map(|(first, count)| *first..first + count);
        match &delivery.result {
            Ok(_) => self.delivered.extend(marks),
            Err(why) if is_too_large(why) => self.too_large.extend(marks),
            Err(why) => self.failed = Some(why.to_string()),
        }
    }
}

fn is_too_large(why: &ClientError) -> bool {
    let codes = [ErrorCode::MessageTooLarge, ErrorCode::RecordListTooLarge];
    why.code().is_some_and(|code| codes.contains(&code))
}

impl DeadTopic {
    /// Notes the id of the topic whose records come.
    pub(crate) fn set_topic(&mut self, topic: Option<Uuid>) {
        if self.source.set_topic(topic) {
            self.stored.clear();
        }
    }

    /// Stores letters. Those that are stored by the time of an error are not stored again.
    async fn send(&mut self, place: &Place, poison: &[&Poison]) -> Result<(), String> {
        let offsets: Vec<u64> = poison.iter().map(|found| found.offset).collect();
        let mut records = self.source.records_at(place, &offsets).await?;
        records.sort_by_key(|record| record.offset.0);
        let record_of = |found: &Poison| {
            let at = records.binary_search_by_key(&found.offset, |record| record.offset.0);
            at.ok().and_then(|at| records.get(at))
        };
        let mut left: Vec<(&Poison, Option<&StoredRecord>)> =
            poison.iter().map(|found| (*found, record_of(found))).collect();
        let is_kept = matches!(self.source, Origin::Log(..));
        let attempts = ATTEMPTS
            .iter()
            .filter(|(form, _)| is_kept || *form == Form::Whole);
        for (form, batch_bytes) in attempts.copied() {
            let sent = self.attempt(place, &left, form, batch_bytes).await?;
            let at = |mark: &u64| left.get(usize::try_from(*mark).ok()?).copied();
            let stored: Vec<&Poison> = sent
                .delivered
                .iter()
                .filter_map(at)
                .map(|(found, _)| found)
                .collect();
            self.stored.add(&stored);
            if let Some(why) = sent.failed {
                return Err(why);
            }
            left = sent.too_large.iter().filter_map(at).collect();
            if left.is_empty() {
                return Ok(());
            }
        }
        let topic = &self.topic;
        Err(if is_kept {
            format!("the topic {topic} refuses a letter of any size")
        } else {
            // With its letter, a message leaves its queue.
            format!("the topic {topic} refuses a message as too large: raise its `max.message.bytes`")
        })
    }

    /// Sends letters in one form, in batches up to a size; with 0, each in a batch of its own.
    async fn attempt(
        &self,
        place: &Place,
        letters: &[(&Poison, Option<&StoredRecord>)],
        form: Form,
        batch_bytes: usize,
    ) -> Result<Sent, String> {
        let topic = self.client.topic(&self.topic).await;
        let topic = topic.map_err(|why| why.to_string())?;
        let sent: Arc<Lock<Sent>> = Arc::default();
        let note = Arc::clone(&sent);
        let on_delivery = move |delivery: Delivery| note.lock().note(&delivery);
        let settings = ProducerSettings {
            batch_bytes,
            // A batch that is refused has to leave those behind it as they are.
            idempotent: false,
            ..ProducerSettings::default()
        };
        let mut producer = Producer::open(self.client.clone(), topic, settings, on_delivery)
            .await
            .map_err(|why| why.to_string())?;
        for (mark, (found, record)) in (0..).zip(letters) {
            // A request of that size would end the connection instead of being refused.
            let is_too_large = form == Form::Whole && record.is_some_and(is_huge);
            if is_too_large {
                sent.lock().too_large.push(mark);
                continue;
            }
            self.push(&mut producer, place, (found, *record), form, mark)
                .await?;
        }
        producer.finish().await;
        let mut sent = std::mem::take(&mut *sent.lock());
        sent.too_large.sort_unstable();
        Ok(sent)
    }

    async fn push(
        &self,
        producer: &mut Producer,
        place: &Place,
        (found, record): (&Poison, Option<&StoredRecord>),
        form: Form,
        mark: u64,
    ) -> Result<(), String> {
        let key = format!("{place}/{}", found.offset);
        let (partition, offset) = (place.partition.to_string(), found.offset.to_string());
        let reason = &found.reason;
        let text = cut(&reason.text, REASON_BYTES);
        let left_out = record.and_then(|record| left_out(form, record));
        let mut headers: Vec<(&[u8], Option<&[u8]>)> = vec![
            (b"stafett-sink", Some(self.sink.as_bytes())),
            (b"stafett-class", Some(reason.class.as_bytes())),
            (b"stafett-reason", Some(text.as_bytes())),
            (b"stafett-topic", Some(place.topic.as_bytes())),
            (b"stafett-partition", Some(partition.as_bytes())),
            (b"stafett-offset", Some(offset.as_bytes())),
        ];
        if let Some(left_out) = &left_out {
            headers.push((b"stafett-left-out", Some(left_out.as_bytes())));
        }
        let (mut value, mut timestamp) = (None, -1);
        if let Some(record) = record {
            timestamp = record.timestamp;
            if form != Form::Place {
                if let Some(key) = &record.key {
                    headers.push((b"stafett-key", Some(key)));
                }
                headers.extend(record.headers.iter());
            }
            if form == Form::Whole {
                value = record.value.as_deref();
            }
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

/// Says which parts of a record its letter does not have. `None` if it has them all.
fn left_out(form: Form, record: &StoredRecord) -> Option<String> {
    let bytes = record.value.as_ref().map_or(0, bytes::Bytes::len);
    match form {
        Form::Whole => None,
        Form::WithoutValue => Some(format!("value of {bytes} bytes")),
        Form::Place => Some(format!("value of {bytes} bytes, key and headers")),
    }
}

fn is_huge(record: &StoredRecord) -> bool {
    record
        .value
        .as_ref()
        .is_some_and(|value| value.len() > VALUE_BYTES_MAX)
}

/// Returns the text up to a number of bytes.
fn cut(text: &str, bytes_max: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes_max)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_cut_between_two_characters() {
        assert_eq!(cut("short", 10), "short");
        assert_eq!(cut("aåb", 2), "a");
        assert_eq!(cut("aåb", 3), "aå");
    }
}
