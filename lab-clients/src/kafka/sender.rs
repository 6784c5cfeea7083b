//! Producer: librdkafka builds and sends the batches, and reports each message's outcome.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rdkafka::config::{ClientConfig, FromClientConfigAndContext as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseRecord, Producer as _, PurgeConfig, ThreadedProducer};
use stafett_lab::drivers::{Destinations, DriverError, Seat, Sender};
use stafett_lab::workload::content::Contents;
use stafett_lab::workload::recorder::{Handover, Parcel};
use stafett_lab::workload::{Message, Received, Reports};
use tokio::task::yield_now;
use tokio::time::timeout;

use super::ears::{Answer, Ears};
use super::{CONNECTED_WITHIN, blocking, config, failed};

/// Maximum time until purged messages are reported.
const PURGED_WITHIN: Duration = Duration::from_millis(500);
/// Time for a lost broker to come back before the last answers are given up.
const BACK_WITHIN: Duration = Duration::from_secs(5);

pub(super) type Producer = ThreadedProducer<Ears>;

/// A sending client.
pub(super) struct KafkaSender {
    /// `None` once it is dropped.
    producer: Option<Producer>,
    ears: Arc<Ears>,
    reports: Reports,
    destinations: Arc<Destinations>,
    contents: Contents,
    scratch: Vec<u8>,
    answers: Vec<Answer>,
    /// Number of unanswered messages.
    under_way: u64,
}

/// Starts librdkafka's threads and waits for the metadata of the first topic: librdkafka connects in the
/// background and would not report that no broker answers.
pub(super) async fn start(config: ClientConfig, seat: &Seat) -> Result<(Producer, Arc<Ears>), DriverError> {
    let first = seat.destinations.names.first().cloned();
    let started = blocking(move || {
        let producer = Producer::from_config_and_context(&config, Ears::default());
        let producer = producer.map_err(|error| failed(&error))?;
        let known = producer
            .client()
            .fetch_metadata(first.as_deref(), CONNECTED_WITHIN);
        known.map_err(|error| failed(&error))?;
        Ok(producer)
    });
    let producer = started.await?;
    let ears = Arc::clone(producer.context());
    Ok((producer, ears))
}

/// Passes a message to librdkafka. Returns false if its queue is full.
pub(super) fn hand_over(
    producer: &Producer,
    destinations: &Destinations,
    message: &Message,
    body: &[u8],
) -> Result<bool, DriverError> {
    let place = usize::try_from(message.topic).unwrap_or(usize::MAX);
    let Some(topic) = destinations.names.get(place) else {
        return Err(DriverError::Failed("the topic is not there".to_owned()));
    };
    let record: BaseRecord<'_, (), [u8]> = BaseRecord::to(topic).payload(body);
    match producer.send(record).map_err(|(error, _)| error) {
        Ok(()) => Ok(true),
        Err(KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull)) => Ok(false),
        Err(error) => Err(failed(&error)),
    }
}

/// Ends librdkafka's threads without waiting for them.
pub(super) fn end(producer: Producer) {
    std::thread::spawn(move || drop(producer));
}

impl KafkaSender {
    pub(super) async fn open(server: &str, seat: &Seat, reports: Reports) -> Result<Self, DriverError> {
        let (producer, ears) = start(config::of_sender(server, seat), seat).await?;
        Ok(Self {
            producer: Some(producer),
            ears,
            reports,
            destinations: Arc::clone(&seat.destinations),
            contents: seat.contents.clone(),
            scratch: Vec::new(),
            answers: Vec::new(),
            under_way: 0,
        })
    }

    async fn push(&mut self, message: &Message) -> Result<(), DriverError> {
        self.contents.write(message, &mut self.scratch);
        loop {
            let Some(producer) = &self.producer else {
                return Err(DriverError::Failed("it was closed".to_owned()));
            };
            if hand_over(producer, &self.destinations, message, &self.scratch)? {
                self.under_way += 1;
                return Ok(());
            }
            // Each answer makes room.
            self.wait().await?;
        }
    }

    fn take_answers(&mut self) {
        self.take_answers_with(Reports::failed);
    }

    /// Processes the answers. `failed` reports messages that were not stored.
    fn take_answers_with(&mut self, failed: impl Fn(&Reports, &Parcel, &str)) {
        self.ears.take(&mut self.answers);
        let mut stored = Parcel::default();
        for answer in &self.answers {
            let message = sent(&answer.message);
            match &answer.failure {
                None => stored.push(&message),
                Some(reason) => failed(&self.reports, &Parcel::from_iter([&message]), reason),
            }
        }
        self.under_way = self.under_way.saturating_sub(self.answers.len() as u64);
        if stored.messages > 0 {
            self.reports.acknowledged(&stored);
        }
    }

    /// Waits for answers. Fails if all brokers stay down for [`BACK_WITHIN`].
    async fn wait(&mut self) -> Result<(), DriverError> {
        let heard = self.ears.heard.notified();
        if self.ears.are_brokers_down() {
            let heard = timeout(BACK_WITHIN, heard).await;
            heard.map_err(|_| DriverError::Failed("all brokers are down".to_owned()))?;
        } else {
            heard.await;
        }
        self.take_answers();
        Ok(())
    }
}

/// Rebuilds a sent message without its topic.
fn sent(message: &Received) -> Message {
    Message {
        stream: message.stream,
        reply: message.reply,
        sequence: message.sequence,
        intended: message.intended,
        topic: 0,
        size: message.size,
    }
}

#[async_trait]
impl Sender for KafkaSender {
    /// Sends messages. Those that were not sent before an error are reported as failed.
    async fn send(&mut self, messages: &[Message]) -> Result<(), DriverError> {
        let mut handover = Handover::new(&self.reports, messages);
        while let Some(message) = handover.turn() {
            if let Err(error) = self.push(message).await {
                handover.failed(&error);
                return Err(error);
            }
            handover.taken(1);
        }
        drop(handover);
        self.take_answers();
        // Nothing waits here while there is room, so other tasks get their turn explicitly.
        yield_now().await;
        Ok(())
    }

    /// Does nothing: batches are sent when they are full or have lingered, as for a user.
    async fn tick(&mut self) -> Result<(), DriverError> {
        self.ears.heard.notified().await;
        self.take_answers();
        Ok(())
    }

    async fn finish(&mut self) -> Result<(), DriverError> {
        self.take_answers();
        while self.under_way > 0 {
            self.wait().await?;
        }
        Ok(())
    }
}

impl Drop for KafkaSender {
    /// Reports the unanswered messages: they will get no answer.
    fn drop(&mut self) {
        let Some(producer) = self.producer.take() else {
            return;
        };
        if self.under_way > 0 {
            producer.purge(PurgeConfig::default().queue().inflight());
            // Purged messages are reported as failed. Those without a report by then count as sent only.
            let _ = producer.flush(PURGED_WITHIN);
            self.take_answers_with(Reports::given_up);
        }
        end(producer);
    }
}
