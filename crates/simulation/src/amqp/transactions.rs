//! Transactional clients (`tx`): messages to queues, records in topics and settlements, committed, rolled
//! back or left open. After an answered commit all of it is there, once; after a rollback, or the end of the
//! channel, nothing; without an answer all or nothing.

use stafett_amqp_wire::methods::basic;
use stafett_model::partition_of;

use super::client::{Client, TRANSACTIONAL};
use super::copies::Origin;
use super::outcomes::Outcome;
use super::patience::{Patience, Times};
use super::{BOTH, FAN, FAN_QUEUES, LATE, OVER};
use crate::host;
use crate::ledger::{Batch, State};
use crate::random::Random;
use crate::server::Server;
use crate::steps::{Closing, End, Message, PARTITIONS, Settling};
use crate::world::{Broken, Finding, World};

/// Milliseconds to wait for the answer to a commit before an end.
const ANSWERED_MS: u32 = 60;
/// Topics without keys, which records go to.
const TOPICS: u8 = 4;
/// Keys of records, which decide their partitions.
const KEYS: [&str; 4] = ["k0", "k1", "k2", "k3"];

/// Step of a transactional client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TxStep {
    Publish {
        client: u8,
        target: u8,
        message: Message,
    },
    /// Records are published to a topic, in the partition of a key.
    Record {
        client: u8,
        topic: u8,
        key: u8,
        count: u8,
        bytes: u32,
    },
    Consume {
        client: u8,
        queue: u8,
    },
    Get {
        client: u8,
        queue: u8,
    },
    Settle {
        client: u8,
        count: u8,
        how: Settling,
    },
    /// A commit, and an end of the channel or connection right behind it.
    Commit {
        client: u8,
        then: Option<Closing>,
    },
    /// The program ends right behind the answer to a commit that settles everything its client holds.
    CommitAndEnd {
        client: u8,
        end: End,
    },
    Rollback {
        client: u8,
    },
    Close {
        client: u8,
        how: Closing,
    },
}

impl TxStep {
    pub fn draw(random: &mut Random, bytes_max: u32) -> Self {
        let mut small = |bound: u8| u8::try_from(random.below(bound.into())).unwrap_or(0);
        let client = TRANSACTIONAL.start + small(2);
        let kind = small(42);
        let (queue, target, count, topic, key) = (small(8), small(10), small(6), small(TOPICS), small(4));
        let (settled, delay) = (1 + small(20), small(u8::MAX));
        let how = random.pick(&[
            Settling::Ack,
            Settling::AckAll,
            Settling::Requeue,
            Settling::Reject,
        ]);
        let closing = random.pick(&[Closing::Channel, Closing::Connection, Closing::Cut]);
        // Several messages are one append.
        let bytes = u32::try_from(random.below(bytes_max.min(20_000).into())).unwrap_or(0);
        match kind {
            0..8 => Self::Publish {
                client,
                target,
                message: Message {
                    count: 1 + count,
                    bytes,
                    priority: count % 4,
                    is_persistent: true,
                    patience: Patience::draw(1, delay),
                },
            },
            8..14 => Self::Record {
                client,
                topic,
                key,
                count: 1 + count,
                bytes,
            },
            14..17 => Self::Consume { client, queue },
            17 => Self::Get { client, queue },
            18..26 => Self::Settle {
                client,
                count: settled,
                how,
            },
            26..33 => Self::Commit { client, then: None },
            33..36 => Self::Commit {
                client,
                then: Some(closing),
            },
            36 | 37 => Self::Rollback { client },
            38 | 39 => Self::CommitAndEnd {
                client,
                end: End::draw(random),
            },
            _ => Self::Close { client, how: closing },
        }
    }
}

impl World {
    pub async fn tx_step(&mut self, server: &mut Server, step: TxStep) -> Result<(), Broken> {
        match step {
            TxStep::Publish {
                client,
                target,
                message,
            } => self.publish_in_tx(server, client, target, message)?,
            TxStep::Record {
                client,
                topic,
                key,
                count,
                bytes,
            } => self.record_in_tx(server, client, (topic, key), count, bytes)?,
            TxStep::Consume { client, queue } => self.consume(server, client, queue)?,
            TxStep::Get { client, queue } => self.get(server, client, queue)?,
            TxStep::Settle { client, count, how } => self.settle(client, count, how),
            TxStep::Commit { client, then } => {
                self.commit_in_tx(server, client)?;
                if let Some(how) = then {
                    self.close(client, how, None);
                }
            }
            TxStep::CommitAndEnd { client, end } => {
                self.settle(client, u8::MAX, Settling::Ack);
                self.commit_in_tx(server, client)?;
                for _ in 0..ANSWERED_MS {
                    self.tick(server).await?;
                    let client = self.amqp.clients.get(usize::from(client));
                    if !client.is_some_and(Client::is_waiting) {
                        break;
                    }
                }
                return Err(self.end(server, end).await);
            }
            TxStep::Rollback { client } => {
                let amqp = &mut self.amqp;
                if let Some(it) = amqp.clients.get_mut(usize::from(client)) {
                    it.connect(server)?;
                    it.roll_back(&mut amqp.copies)?;
                }
            }
            TxStep::Close { client, how } => self.close(client, how, None),
        }
        Ok(())
    }

    fn commit_in_tx(&mut self, server: &mut Server, client: u8) -> Result<(), Finding> {
        let amqp = &mut self.amqp;
        if let Some(it) = amqp.clients.get_mut(usize::from(client)) {
            it.connect(server)?;
            it.commit(&mut amqp.copies)?;
        }
        self.apply_outcomes()
    }

    /// Returns a client that can publish, and begins a stream of messages with its connection.
    fn transacting(&mut self, server: &mut Server, client: u8) -> Result<Option<&mut Client>, Finding> {
        let Some(it) = self.amqp.clients.get_mut(usize::from(client)) else {
            return Ok(None);
        };
        if it.connect(server)? {
            self.amqp.streams += 1;
            it.stream = self.amqp.streams;
            it.group = self.kafka.new_group();
        }
        Ok((!it.is_closing()).then_some(it))
    }

    fn publish_in_tx(
        &mut self,
        server: &mut Server,
        client: u8,
        target: u8,
        message: Message,
    ) -> Result<(), Broken> {
        let homes: &[u8] = match target {
            FAN => &FAN_QUEUES,
            BOTH => &[0, OVER],
            _ => &[target],
        };
        let message = Message {
            patience: message.patience.at(target),
            ..message
        };
        let Some(stream) = self.transacting(server, client)?.map(|it| it.stream) else {
            return Ok(());
        };
        let amqp = &mut self.amqp;
        let Some(it) = amqp.clients.get_mut(usize::from(client)) else {
            return Ok(());
        };
        let transaction = it.transaction(&mut amqp.copies);
        for _ in 0..message.count {
            let origin = Origin {
                stream: if target == LATE { 0 } else { stream },
                priority: message.priority,
                times: Times::new(message.patience, amqp.copies.clock_ms),
            };
            let number = amqp.copies.add(homes, true, origin);
            let bytes = message.bytes as usize;
            amqp.copies.join(transaction, number, bytes * homes.len())?;
            it.publish(number, target, message);
            self.trace
                .note(|| format!("client {client} publishes message {number} to {target} in {transaction}"));
        }
        Ok(())
    }

    fn record_in_tx(
        &mut self,
        server: &mut Server,
        client: u8,
        (topic, key): (u8, u8),
        count: u8,
        bytes: u32,
    ) -> Result<(), Broken> {
        let name = KEYS.get(usize::from(key)).copied().unwrap_or_default();
        let partition = partition_of(name.as_bytes(), PARTITIONS.into());
        let partition = u8::try_from(partition).unwrap_or(0);
        let known = self.kafka.topic(topic).filter(|topic| topic.is_there());
        let Some((log, level)) = self.kafka.log(topic, partition).zip(known.map(|it| it.level)) else {
            return Ok(());
        };
        let Some(group) = self.transacting(server, client)?.map(|it| it.group) else {
            return Ok(());
        };
        let amqp = &mut self.amqp;
        let Some(it) = amqp.clients.get_mut(usize::from(client)) else {
            return Ok(());
        };
        let transaction = it.transaction(&mut amqp.copies);
        for _ in 0..count {
            let batch = self.kafka.ledger.add(Batch {
                log,
                date_ms: host::wall_ms() - 86_400_000,
                group,
                records: 1,
                level,
                state: State::Unknown,
                sent: 1,
                transaction: None,
                is_message: true,
            });
            amqp.copies
                .join_record(transaction, batch, bytes as usize, level)?;
            it.publish_record(batch, topic, name, bytes);
            self.trace
                .note(|| format!("client {client} publishes record {batch} to {log:?} in {transaction}"));
        }
        Ok(())
    }

    /// Passes the outcomes of transactions on to the ledger, and learns outcomes from it.
    pub fn apply_outcomes(&mut self) -> Result<(), Finding> {
        let (copies, ledger) = (&mut self.amqp.copies, &mut self.kafka.ledger);
        for number in 0..copies.transactions.len() {
            let Some(transaction) = copies.transactions.get(number).filter(|it| !it.is_applied) else {
                continue;
            };
            let (records, level) = (transaction.records.clone(), transaction.level);
            let is_seen = records.iter().any(|batch| ledger.was_seen(*batch));
            if is_seen && transaction.may_commit() {
                copies.on_committed(number, None)?;
            }
            let Some(transaction) = copies.transactions.get_mut(number) else {
                continue;
            };
            transaction.is_applied = !transaction.may_commit();
            for batch in records {
                match transaction.outcome {
                    // The durability of the append is known once it is sent.
                    Outcome::Sent => ledger.set_level(batch, level),
                    Outcome::Committed => ledger.on_message_stored(batch)?,
                    Outcome::RolledBack => ledger.on_message_dropped(batch)?,
                    Outcome::Open | Outcome::Unknowable => {}
                }
            }
        }
        Ok(())
    }
}

impl Client {
    fn publish_record(&mut self, batch: usize, topic: u8, key: &'static str, bytes: u32) {
        let method = basic::Publish {
            routing_key: format!("t{topic}").into(),
            ..basic::Publish::default()
        };
        let padding = "x".repeat(bytes as usize);
        self.publish_with_key(&method.into(), key, &format!("{batch}:0:{padding}"));
    }
}
