//! Produces: librdkafka makes the batches and sends them, and tells message by message what became of them.

use std::sync::Arc;
use std::time::Duration;

use rdkafka::config::{ClientConfig, FromClientConfigAndContext as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseRecord, Producer as _, PurgeConfig, ThreadedProducer};
use stafett_lab::drivers::{Destinations, DriverError, Seat, Sender, Task};
use stafett_lab::workload::content::Contents;
use stafett_lab::workload::recorder::{Handover, Parcel};
use stafett_lab::workload::{Message, Received, Reports};
use tokio::task::yield_now;
use tokio::time::timeout;

use super::ears::{Answer, Ears};
use super::{CONNECTED_WITHIN, blocking, config, failed};

/// What is purged is told within this.
const PURGED_WITHIN: Duration = Duration::from_millis(500);
/// How long a broker that went away may take to come back for the last answers.
const BACK_WITHIN: Duration = Duration::from_secs(5);

pub(super) type Producer = ThreadedProducer<Ears>;

/// A client that sends.
pub(super) struct KafkaSender {
    /// Until it is dropped.
    producer: Option<Producer>,
    ears: Arc<Ears>,
    reports: Reports,
    destinations: Arc<Destinations>,
    contents: Contents,
    scratch: Vec<u8>,
    answers: Vec<Answer>,
    /// Messages without an answer.
    under_way: u64,
}

/// Starts librdkafka's threads, and waits until it knows the first topic: it connects by itself, and would
/// not say that nobody answers.
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

/// Hands a message over; false if there is no room for it.
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

/// Ends librdkafka's threads without waiting for them here.
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

    /// Takes messages over. Those that it cannot take any more are reported as failed, so that none is
    /// forgotten.
    async fn push_all(&mut self, messages: &[Message]) -> Result<(), DriverError> {
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
        // While there is room nothing here waits, and others have their turn all the same.
        yield_now().await;
        Ok(())
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
            // Whatever is answered makes room.
            self.wait().await?;
        }
    }

    fn take_answers(&mut self) {
        self.take_answers_with(Reports::failed);
    }

    /// `failed` takes those that were not stored.
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

    /// Until something was answered; an error if there is nobody left to answer.
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

    async fn end(&mut self) -> Result<(), DriverError> {
        self.take_answers();
        while self.under_way > 0 {
            self.wait().await?;
        }
        Ok(())
    }
}

/// A message as it was sent, but for where to.
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

impl Sender for KafkaSender {
    fn send<'a>(&'a mut self, messages: &'a [Message]) -> Task<'a, ()> {
        Box::pin(self.push_all(messages))
    }

    /// Batches leave when they are full or have lingered, as a user's do.
    fn flush(&mut self) -> Task<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn tick(&mut self) -> Task<'_, ()> {
        Box::pin(async {
            self.ears.heard.notified().await;
            self.take_answers();
            Ok(())
        })
    }

    fn finish(&mut self) -> Task<'_, ()> {
        Box::pin(self.end())
    }
}

impl Drop for KafkaSender {
    /// Whatever has no answer by now will have none.
    fn drop(&mut self) {
        let Some(producer) = self.producer.take() else {
            return;
        };
        if self.under_way > 0 {
            producer.purge(PurgeConfig::default().queue().inflight());
            // What was purged is told as failed; what is not even told by then is counted as sent alone.
            let _ = producer.flush(PURGED_WITHIN);
            self.take_answers_with(Reports::given_up);
        }
        end(producer);
    }
}
