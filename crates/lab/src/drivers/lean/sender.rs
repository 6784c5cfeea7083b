//! Sends by the raw producer: batches of several topics, each written once.
//!
//! Nothing is sent again: failed messages are counted, and the connection is given up. With acknowledgements
//! the producer is idempotent, as the clients that people use are by default, so that the broker does the
//! same work.

use async_trait::async_trait;
use stafett_kafka_client::raw::{RawError, RawOutcome, RawPlace, RawProducer, RawSettings};
use stafett_kafka_client::{Acks, Client};
use stafett_model::Codec;

use super::failed;
use crate::drivers::{DriverError, Seat, Sender};
use crate::experiment;
use crate::experiment::Session;
use crate::workload::content::Contents;
use crate::workload::recorder::{Handover, Parcel};
use crate::workload::{Message, Reports};

/// A connection that sends.
pub(super) struct LeanSender {
    producer: RawProducer<Parcel>,
    reports: Reports,
    contents: Contents,
    scratch: Vec<u8>,
    sessions: Option<Session>,
    client: usize,
}

impl LeanSender {
    pub(super) async fn open(client: Client, seat: &Seat, reports: Reports) -> Result<Self, DriverError> {
        let role = &seat.role;
        let settings = RawSettings {
            acks: match role.acks() {
                experiment::Acks::None => Acks::None,
                experiment::Acks::Leader => Acks::Leader,
                experiment::Acks::All => Acks::All,
            },
            codec: codec(role.compression),
            batch_bytes: usize::try_from(role.batch.0).unwrap_or(usize::MAX),
            linger: role.linger.0,
            in_flight_max: usize::try_from(role.in_flight).unwrap_or(1),
            first_partition: usize::try_from(seat.client).unwrap_or(0),
        };
        let told = reports.clone();
        let on_outcome = move |parcel: &Parcel, outcome| match outcome {
            RawOutcome::Stored => told.acknowledged(parcel),
            RawOutcome::Written => told.unanswered(parcel),
            RawOutcome::Failed(reason) => told.failed(parcel, &reason),
            RawOutcome::GivenUp => {
                told.given_up(parcel, "the connection was given up before the answer came");
            }
        };
        let names = seat.destinations.names.clone();
        let producer = RawProducer::open(client, names, settings, on_outcome).await;
        Ok(Self {
            producer: producer.map_err(failed)?,
            reports,
            contents: seat.contents.clone(),
            scratch: Vec::new(),
            sessions: role.session.clone(),
            client: usize::try_from(seat.client).unwrap_or(0),
        })
    }
}

impl From<RawError> for DriverError {
    fn from(error: RawError) -> Self {
        match error {
            RawError::Client(error) => failed(error),
            RawError::Batch(error) => Self::Refused(error.to_string()),
            RawError::NotStored(_) | RawError::NoTopic => Self::Failed(error.to_string()),
        }
    }
}

#[async_trait]
impl Sender for LeanSender {
    /// Takes messages over. Those that it cannot take any more are reported as failed, so that none is
    /// forgotten.
    async fn send(&mut self, messages: &[Message]) -> Result<(), DriverError> {
        let mut handover = Handover::new(&self.reports, messages);
        while let Some(message) = handover.turn() {
            self.contents.write(message, &mut self.scratch);
            let pushed = match &self.sessions {
                None => self.producer.push(message.topic, &self.scratch).await,
                Some(sessions) => {
                    let (key, partition) = place(sessions, message, self.client);
                    let place = RawPlace {
                        key: key.as_bytes(),
                        partition,
                    };
                    let pushed = self.producer.push_to(message.topic, Some(place), &self.scratch);
                    pushed.await
                }
            };
            match pushed {
                Ok(parcel) => parcel.push(message),
                Err(error) => {
                    let error = DriverError::from(error);
                    handover.failed(&error);
                    return Err(error);
                }
            }
            handover.taken(1);
        }
        drop(handover);
        // A sender that always has messages does not wait for a tick.
        self.producer.send_due().await?;
        Ok(self.producer.take_answers().await?)
    }

    async fn flush(&mut self) -> Result<(), DriverError> {
        Ok(self.producer.flush().await?)
    }

    async fn tick(&mut self) -> Result<(), DriverError> {
        Ok(self.producer.tick().await?)
    }

    async fn finish(&mut self) -> Result<(), DriverError> {
        Ok(self.producer.finish().await?)
    }
}

/// Returns the key of a message's session and the partition that it goes to. Producers that begin together do
/// not fill the same partition.
fn place(sessions: &Session, message: &Message, client: usize) -> (String, usize) {
    const STEP: usize = 7;
    let fragment = sessions.fragment(message.sequence);
    let key = format!("{}-{}", message.stream, fragment.session);
    let group = usize::try_from(fragment.group).unwrap_or(usize::MAX);
    (key, group.wrapping_add(client.wrapping_mul(STEP)))
}

fn codec(codec: experiment::Codec) -> Codec {
    match codec {
        experiment::Codec::None => Codec::None,
        experiment::Codec::Gzip => Codec::Gzip,
        experiment::Codec::Snappy => Codec::Snappy,
        experiment::Codec::Lz4 => Codec::Lz4,
        experiment::Codec::Zstd => Codec::Zstd,
    }
}

#[cfg(test)]
mod tests;
