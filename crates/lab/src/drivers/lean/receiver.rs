//! Receives by long polls; positions are kept in a group, without being a member of it.
//!
//! A group's clients share the partitions out by number, without a coordinator. A client that comes back goes
//! on at its last stored position, or else at the start.

use async_trait::async_trait;
use bytes::Bytes;
use stafett_kafka_client::batches::Batches;
use stafett_kafka_client::values::Values;
use stafett_kafka_client::{Client, FetchSettings, Fetched, Fetcher};
use stafett_model::batch::HEADER_BYTES;
use stafett_model::{BatchError, Codec, records};

use super::failed;
use crate::drivers::{DriverError, Reads, Receiver, Seat};
use crate::workload::Received;

/// Largest content of one compressed batch.
const DECOMPRESSED_MAX: usize = 256 << 20;

/// A connection that receives.
pub(super) struct LeanReceiver {
    client: Client,
    fetcher: Fetcher,
    group: String,
}

impl LeanReceiver {
    pub(super) async fn open(client: Client, seat: &Seat) -> Result<Self, DriverError> {
        let role = &seat.role;
        let bytes = |bytes: u64| i32::try_from(bytes).unwrap_or(i32::MAX);
        let mut fetcher = Fetcher::new(
            client.clone(),
            FetchSettings {
                wait: role.fetch_wait.0,
                bytes_min: 1,
                bytes_max: bytes(role.fetch_bytes.0.saturating_mul(4)),
                partition_bytes_max: bytes(role.fetch_bytes.0),
                ..FetchSettings::default()
            },
        );
        let stored = if role.commit.is_some() {
            client.committed(&seat.group).await.map_err(failed)?
        } else {
            stafett_kafka_client::groups::Offsets::default()
        };
        let is_wanted = |place| !matches!(seat.reads, Reads::One(one) if one % topics(seat) != place);
        let mut number = 0;
        let topics = client.look_up(&seat.destinations.names, is_wanted).await;
        for (_, topic) in topics.map_err(failed)? {
            for partition in &topic.partitions {
                let is_ours = seat.reads != Reads::Share || number % seat.clients.max(1) == seat.client;
                number += 1;
                if is_ours {
                    // Topics are new, so they begin at 0.
                    let known = stored.get(&(topic.name.clone(), partition.index));
                    fetcher.add(&topic, partition.index, known.map_or(0, |known| known.offset));
                }
            }
        }
        Ok(Self {
            client,
            fetcher,
            group: seat.group.clone(),
        })
    }
}

fn damaged(error: BatchError) -> DriverError {
    DriverError::Failed(format!("a batch came damaged: {error}"))
}

fn topics(seat: &Seat) -> u32 {
    u32::try_from(seat.destinations.names.len())
        .unwrap_or(u32::MAX)
        .max(1)
}

fn read(fetched: Fetched, into: &mut Vec<Received>) -> Result<(), DriverError> {
    // TCP has checked the bytes; damage by the broker shows in missing messages.
    for batch in Batches::unverified(fetched.bytes) {
        let (header, bytes) = batch.map_err(damaged)?;
        if header.codec().map_err(damaged)? == Codec::None {
            let block = bytes.get(HEADER_BYTES..).unwrap_or_default();
            into.extend(Values::new(block).filter_map(Received::read));
        } else {
            unpack(&bytes, into)?;
        }
    }
    Ok(())
}

fn unpack(batch: &Bytes, into: &mut Vec<Received>) -> Result<(), DriverError> {
    for record in records(batch, DECOMPRESSED_MAX).map_err(damaged)? {
        let value = record.map_err(damaged)?.value.unwrap_or_default();
        into.extend(Received::read(&value));
    }
    Ok(())
}

#[async_trait]
impl Receiver for LeanReceiver {
    async fn receive(&mut self, into: &mut Vec<Received>) -> Result<(), DriverError> {
        if self.fetcher.sources().is_empty() {
            // More clients than partitions: this one has nothing to do.
            return std::future::pending().await;
        }
        for fetched in self.fetcher.next().await.map_err(failed)? {
            read(fetched, into)?;
        }
        Ok(())
    }

    async fn settle(&mut self) -> Result<(), DriverError> {
        let sources = self.fetcher.sources();
        let positions: Vec<_> = sources
            .iter()
            .map(|source| ((source.topic.clone(), source.partition), source.offset))
            .collect();
        self.client.commit(&self.group, &positions).await.map_err(failed)
    }
}
