//! Readers of stored topics as streams: from an offset, the beginning or the end, in order and without gaps,
//! while Kafka producers append.

use std::collections::BTreeMap;

use bytes::Bytes;
use stafett_amqp_wire::methods::{basic, channel};
use stafett_amqp_wire::{Properties, TableBuilder, Value};

use super::client::Client;
use crate::ledger::{Ledger, LogKey, Seen};
use crate::random::Random;
use crate::server::Server;
use crate::steps::{PARTITIONS, TOPICS};
use crate::world::{Broken, Finding, World};

/// Numbers of the clients that read streams, which also decide their prefetch.
pub(super) const READERS: [u8; 2] = [10, 11];
/// Milliseconds after which a reader has everything.
const QUIET_MS: u32 = 10_000;
/// A client with an odd number acknowledges this many messages together.
const TOGETHER: u64 = 10;

/// Step of a reader of streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamStep {
    /// A reader consumes a partition.
    Consume {
        reader: u8,
        topic: u8,
        partition: u8,
        from: From,
    },
    /// A reader's connection ends without a close.
    Cut { reader: u8 },
    /// Waits until readers have everything.
    Look,
}

/// Position at which a reader begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    First,
    /// Behind the last record.
    Next,
    /// Where the reader was last, or at the beginning.
    Place,
}

impl StreamStep {
    pub fn draw(random: &mut Random) -> Self {
        let mut small = |bound: u8| u8::try_from(random.below(bound.into())).unwrap_or(0);
        let reader = small(2);
        match small(8) {
            0 => Self::Cut { reader },
            1 | 2 => Self::Look,
            _ => Self::Consume {
                reader,
                topic: small(TOPICS),
                partition: small(PARTITIONS),
                from: match small(6) {
                    0 => From::First,
                    1 | 2 => From::Next,
                    _ => From::Place,
                },
            },
        }
    }
}

/// A consumer of a stream.
#[derive(Debug, Clone)]
pub(super) struct Stream {
    pub(super) log: LogKey,
    /// Lowest offset of the next message.
    next: u64,
    /// Batches sent from this one on are not before the first message. `None` if that is at `next`.
    begins: Option<Begins>,
    /// Received messages that are not checked yet.
    received: Vec<Seen>,
}

/// Beginning of a reader behind the last record, until its first message.
#[derive(Debug, Clone, Copy)]
enum Begins {
    /// It is not confirmed.
    Asked,
    Confirmed,
    /// It was confirmed when this was the number of the next batch.
    Before(usize),
}

impl Stream {
    /// Handles the confirmation of the consumer.
    pub(super) fn confirm(&mut self) {
        if self.begins.is_some() {
            self.begins = Some(Begins::Confirmed);
        }
    }

    /// Returns the lowest offset of a record that must come.
    fn owed(&self, ledger: &Ledger) -> Option<u64> {
        match self.begins {
            None => ledger.stored_from(self.log, self.next, 0),
            Some(Begins::Before(batch)) => ledger.stored_from(self.log, self.next, batch),
            Some(Begins::Asked | Begins::Confirmed) => None,
        }
    }

    /// Takes a message.
    pub(super) fn take(&mut self, properties: &Properties, body: &Bytes) -> Result<(), Finding> {
        let headers = properties.read().headers;
        let offset = match headers
            .as_ref()
            .and_then(|headers| headers.get("x-stream-offset"))
        {
            Some(Value::I64(offset)) => u64::try_from(offset).ok(),
            _ => None,
        };
        let named = || crate::kafka::id_of(headers.as_ref()?.get(crate::kafka::ID)?.text()?.as_bytes());
        let id = crate::kafka::id_of(body).or_else(named);
        let (offset, id) = offset
            .zip(id)
            .ok_or_else(|| Finding(format!("a message of {:?} has no offset or is foreign", self.log)))?;
        self.received.push(Seen { offset, id });
        Ok(())
    }
}

impl Client {
    /// Consumes a stream in the place of its other streams.
    fn read(&mut self, log: LogKey, from: From, next: u64) {
        let tag = format!("s{}", self.streams.len());
        let offset = match from {
            From::First => Value::from("first"),
            From::Next => Value::from("next"),
            From::Place => Value::I64(i64::try_from(next).unwrap_or(i64::MAX)),
        };
        let arguments = TableBuilder::new()
            .with("x-stream-offset", offset)
            .with("x-stafett-partition", Value::I32(log.partition.into()));
        self.streams.insert(
            tag.clone(),
            Stream {
                log,
                next,
                begins: (from == From::Next).then_some(Begins::Asked),
                received: Vec::new(),
            },
        );
        self.send(basic::Consume {
            queue: format!("t{}", log.topic).into(),
            consumer_tag: tag.into(),
            arguments: arguments.finish(),
            ..basic::Consume::default()
        });
    }

    /// Acknowledges a message of a stream: at once, or several together.
    pub(super) fn ack_stream(&mut self, delivery_tag: u64) {
        let multiple = !self.number.is_multiple_of(2);
        if !multiple || delivery_tag.is_multiple_of(TOGETHER) {
            self.send(basic::Ack {
                delivery_tag,
                multiple,
            });
        }
    }
}

impl World {
    pub async fn stream_step(&mut self, server: &mut Server, step: StreamStep) -> Result<(), Broken> {
        let now_ms = self.now_ms();
        match step {
            StreamStep::Look => return self.check_streams(server).await,
            StreamStep::Cut { reader } => {
                let amqp = &mut self.amqp;
                if let Some(client) = amqp.readers.get_mut(usize::from(reader)) {
                    client.lose(&mut amqp.copies, now_ms);
                }
            }
            StreamStep::Consume {
                reader,
                topic,
                partition,
                from,
            } => {
                let is_there = self.kafka.topic(topic).is_some_and(crate::kafka::Topic::is_there);
                let log = self.kafka.log(topic, partition).filter(|_| is_there);
                let amqp = &mut self.amqp;
                if let Some((client, log)) = amqp.readers.get_mut(usize::from(reader)).zip(log) {
                    client.connect(server)?;
                    let place = amqp.places.get(&(reader, log)).copied();
                    let (from, next) = match (from, place) {
                        (From::Next, _) => (from, self.kafka.ledger.stored_to(log)),
                        (From::Place, Some(place)) => (from, place),
                        (From::First, _) | (From::Place, None) => (From::First, 0),
                    };
                    client.read(log, from, next);
                }
            }
        }
        Ok(())
    }

    /// Compares the received records with the ledger.
    pub fn check_received(&mut self) -> Result<(), Finding> {
        let amqp = &mut self.amqp;
        for (reader, client) in (0..).zip(&mut amqp.readers) {
            for stream in client.streams.values_mut() {
                if let Some(Begins::Confirmed) = stream.begins {
                    stream.begins = Some(Begins::Before(self.kafka.ledger.batches.len()));
                }
                for seen in std::mem::take(&mut stream.received) {
                    let (log, next) = (stream.log, stream.next);
                    self.trace
                        .note(|| format!("reader {reader} gets {seen:?} of {log:?}"));
                    let missed = stream.owed(&self.kafka.ledger);
                    if seen.offset < next || missed.is_some_and(|missed| missed < seen.offset) {
                        return Err(Finding(format!(
                            "reader {reader} of {log:?} gets {seen:?} in the place of {next}, and {missed:?} is there"
                        )));
                    }
                    self.kafka.ledger.saw_committed(log, seen)?;
                    (stream.next, stream.begins) = (seen.offset + 1, None);
                    amqp.places.insert((reader, log), stream.next);
                }
            }
        }
        Ok(())
    }

    /// Waits until readers have all that was acknowledged.
    async fn check_streams(&mut self, server: &mut Server) -> Result<(), Broken> {
        for _ in 0..QUIET_MS {
            self.tick(server).await?;
            if self.owed().is_none() || self.has_failed() {
                return Ok(());
            }
        }
        let owed = self.owed();
        Err(Finding(format!("a reader does not get {owed:?}")).into())
    }

    /// Returns an acknowledged record that a reader has not received.
    fn owed(&self) -> Option<(LogKey, u64)> {
        let streams = self
            .amqp
            .readers
            .iter()
            .flat_map(|client| client.streams.values());
        // A deleted topic ends its readers.
        let streams = streams
            .filter(|stream| self.kafka.log(stream.log.topic, stream.log.partition) == Some(stream.log));
        let mut owed = streams.filter_map(|stream| {
            let offset = stream.owed(&self.kafka.ledger)?;
            Some((stream.log, offset))
        });
        owed.next()
    }
}

/// Returns the clients that read streams.
pub(super) fn readers() -> Vec<Client> {
    READERS.map(Client::new).into()
}

/// Place of each reader in each log.
pub(super) type Places = BTreeMap<(u8, LogKey), u64>;

/// True if a channel is closed for a stream that was deleted meanwhile.
pub(super) fn is_gone(close: &channel::Close) -> bool {
    close.reply_code == 404
}
