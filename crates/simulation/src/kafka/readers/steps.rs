//! Steps of the readers.

use super::READERS;
use crate::random::Random;
use crate::server::Server;
use crate::steps::{PARTITIONS, TOPICS};
use crate::world::{Broken, Finding, World};

/// Milliseconds after which a reader has everything.
const QUIET_MS: u32 = 10_000;

/// Step of a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReaderStep {
    /// A reader begins at an offset: `from` 256ths of the log.
    Begin {
        reader: u8,
        topic: u8,
        partition: u8,
        from: u8,
        bytes_max: i32,
    },
    /// A reader's connection ends, and it goes on with another one.
    Cut { reader: u8 },
    /// Waits until readers have everything that is stored.
    Look,
}

impl ReaderStep {
    pub fn draw(random: &mut Random) -> Self {
        let mut small = |bound: u8| u8::try_from(random.below(bound.into())).unwrap_or(0);
        let reader = small(READERS);
        match small(8) {
            0 => Self::Cut { reader },
            1 => Self::Look,
            _ => Self::Begin {
                reader,
                topic: small(TOPICS),
                partition: small(PARTITIONS),
                from: if small(3) == 0 { 0 } else { small(u8::MAX) },
                bytes_max: random.pick(&[1, 5_000, 1 << 20]),
            },
        }
    }
}

impl World {
    pub async fn reader_step(&mut self, server: &mut Server, step: ReaderStep) -> Result<(), Broken> {
        match step {
            ReaderStep::Look => return self.await_readers(server).await,
            ReaderStep::Cut { reader } => {
                if let Some(reader) = self.kafka.readers.get_mut(usize::from(reader)) {
                    reader.leave();
                    reader.connect(server)?;
                }
            }
            ReaderStep::Begin {
                reader,
                topic,
                partition,
                from,
                bytes_max,
            } => {
                let id = self.kafka.id_of(topic);
                let Some((log, id)) = self.kafka.log(topic, partition).zip(id) else {
                    return Ok(());
                };
                let end = self.kafka.ledger.known_end(log);
                let next = end * u64::from(from) / 256;
                if let Some(reader) = self.kafka.readers.get_mut(usize::from(reader)) {
                    // Its last fetch may be of another log.
                    reader.leave();
                    reader.begin((log, id), next, bytes_max);
                    reader.connect(server)?;
                }
            }
        }
        Ok(())
    }

    /// Waits until readers have everything that was acknowledged.
    async fn await_readers(&mut self, server: &mut Server) -> Result<(), Broken> {
        for _ in 0..QUIET_MS {
            self.tick(server).await?;
            if self.kafka.owed_to_reader().is_none() || self.has_failed() {
                return Ok(());
            }
        }
        let owed = self.kafka.owed_to_reader();
        Err(Finding(format!("a reader does not get {owed:?}")).into())
    }
}

impl super::Kafka {
    /// Returns the reader and the offset of an acknowledged record that it has not got.
    fn owed_to_reader(&self) -> Option<(u8, u64)> {
        let connected = self.readers.iter().filter(|reader| reader.connection.is_some());
        let mut owed = connected.filter_map(|reader| {
            let place = reader.place?;
            self.id_of(place.log.topic).filter(|id| *id == place.id)?;
            let offset = self.ledger.owed(place.log, place.next, reader.is_committed())?;
            Some((reader.number, offset))
        });
        owed.next()
    }
}
