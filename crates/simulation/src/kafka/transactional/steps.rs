//! Steps of transactional clients.

use std::collections::BTreeMap;

use stafett_kafka_wire::messages::add_partitions_to_txn::AddPartitionsToTxnTopic;
use stafett_kafka_wire::messages::txn_offset_commit::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use stafett_kafka_wire::messages::{
    AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest, ProduceRequest,
    TxnOffsetCommitRequest,
};
use stafett_model::TransactionEnd;

use super::{Asked, CLIENTS, IDS, Kept, Transactional, group_name};
use crate::host;
use crate::kafka::producer::{batch_of, request_of};
use crate::ledger::{Batch, Ledger, LogKey, State};
use crate::random::Random;
use crate::server::Server;
use crate::steps::{Age, PARTITIONS, TOPICS};
use crate::trace::Trace;
use crate::world::{Broken, Finding, World};

/// Maximum batches in flight: the broker remembers this many of a producer's last batches.
const IN_FLIGHT_MAX: usize = 5;

/// Step of a transactional client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransactionStep {
    /// A client begins as another instance of its transactional id. `goes_on`: it names the one that it was.
    Init {
        client: u8,
        goes_on: bool,
    },
    Produce {
        client: u8,
        topic: u8,
        partition: u8,
        records: u16,
        bytes: u32,
    },
    /// A client commits an offset of a group with its transaction.
    Commit {
        client: u8,
        topic: u8,
        partition: u8,
    },
    End {
        client: u8,
        commits: bool,
    },
    /// A client's connection ends. It sends unanswered requests again.
    Cut {
        client: u8,
    },
    /// The commits of a group are read.
    Fetch {
        id: u8,
    },
    /// Open transactions take too long, and end.
    Quiet,
}

impl TransactionStep {
    pub fn draw(random: &mut Random, bytes_max: u32) -> Self {
        let mut small = |bound: u8| u8::try_from(random.below(bound.into())).unwrap_or(0);
        // Two of the clients act most: they are disturbed less often.
        let client = match small(6) {
            0 => small(CLIENTS),
            _ => small(IDS) * 2,
        };
        let (topic, partition) = (small(TOPICS), small(PARTITIONS));
        match small(40) {
            0 => Self::Init {
                client,
                goes_on: small(3) == 0,
            },
            1..=17 => Self::Produce {
                client,
                topic,
                partition,
                records: u16::from(1 + small(10)),
                bytes: u32::try_from(random.below(u64::from(bytes_max).min(20_000))).unwrap_or(0),
            },
            18..=24 => Self::Commit {
                client,
                topic,
                partition,
            },
            25..=35 => Self::End {
                client,
                commits: small(4) != 0,
            },
            36 | 37 => Self::Cut { client },
            38 => Self::Fetch { id: client % IDS },
            _ => Self::Quiet,
        }
    }
}

impl Transactional {
    /// Sends the unanswered requests of an earlier connection again.
    fn send_again(&mut self, ledger: &mut Ledger, trace: &mut Trace) {
        let again = std::mem::take(&mut self.again);
        for number in again {
            let Some(kept) = self.kept.get(&number).cloned() else {
                continue;
            };
            if let Some(batch) = ledger.batches.get_mut(number) {
                batch.sent += 1;
                trace.note(|| format!("batch {number} is sent again"));
                let log = batch.log;
                self.add(log);
                self.send_batch(number, log, &kept);
            }
        }
    }

    fn send_batch(&mut self, number: usize, log: LogKey, kept: &Kept) {
        let request = ProduceRequest {
            transactional_id: Some(self.id_name()),
            ..request_of(log, kept.bytes.clone())
        };
        let version = if self.is_new { 12 } else { 11 };
        self.send(version, &request, Asked::Batch(number));
    }

    /// Adds a partition to the transaction, in the first version of the protocol.
    fn add(&mut self, log: LogKey) {
        let Some((producer, epoch)) = self.instance.filter(|_| !self.is_new) else {
            return;
        };
        if !self.added.insert(log) {
            return;
        }
        let request = AddPartitionsToTxnRequest {
            v3_and_below_transactional_id: self.id_name(),
            v3_and_below_producer_id: producer,
            v3_and_below_producer_epoch: epoch,
            v3_and_below_topics: vec![AddPartitionsToTxnTopic {
                name: format!("t{}", log.topic).into(),
                partitions: vec![log.partition.into()],
            }],
            ..AddPartitionsToTxnRequest::default()
        };
        self.send(3, &request, Asked::Add);
    }

    fn init(&mut self, ledger: &mut Ledger, goes_on: bool) {
        let (producer_id, producer_epoch) = self.instance.filter(|_| goes_on).unwrap_or((-1, -1));
        let request = InitProducerIdRequest {
            transactional_id: Some(self.id_name()),
            transaction_timeout_ms: i32::try_from(self.timeout_ms).unwrap_or(i32::MAX),
            producer_id,
            producer_epoch,
        };
        ledger.transactions.on_init_sent(self.id());
        let goes_on = producer_id >= 0;
        self.drop_instance();
        self.send(4, &request, Asked::Init { goes_on });
    }

    fn commit(&mut self, ledger: &mut Ledger, log: LogKey, now_ms: i64) -> Option<u64> {
        let number = self.transaction(ledger, now_ms)?;
        let (producer_id, producer_epoch) = self.instance?;
        if !self.is_new && !std::mem::replace(&mut self.has_added_group, true) {
            let request = AddOffsetsToTxnRequest {
                transactional_id: self.id_name(),
                producer_id,
                producer_epoch,
                group_id: group_name(self.id()),
            };
            self.send(3, &request, Asked::AddGroup);
        }
        let offset = ledger.transactions.send_commit(number, log);
        let request = TxnOffsetCommitRequest {
            transactional_id: self.id_name(),
            group_id: group_name(self.id()),
            producer_id,
            producer_epoch,
            generation_id: -1,
            topics: vec![TxnOffsetCommitRequestTopic {
                name: format!("t{}", log.topic).into(),
                partitions: vec![TxnOffsetCommitRequestPartition {
                    partition_index: log.partition.into(),
                    committed_offset: i64::try_from(offset).unwrap_or(i64::MAX),
                    ..TxnOffsetCommitRequestPartition::default()
                }],
            }],
            ..TxnOffsetCommitRequest::default()
        };
        let version = if self.is_new { 5 } else { 3 };
        self.send(version, &request, Asked::Commit { number, log, offset });
        Some(offset)
    }

    /// Ends the transaction as `end`, or as it was to end before. False if it cannot be ended now.
    fn end(&mut self, ledger: &mut Ledger, end: TransactionEnd) -> bool {
        let Some((producer_id, producer_epoch)) = self.instance else {
            return false;
        };
        let end = *self.ending.get_or_insert(end);
        let transaction = self
            .current
            .and_then(|number| ledger.transactions.all.get_mut(number));
        match (transaction, end) {
            (Some(transaction), TransactionEnd::Commit) => transaction.commits_sent += 1,
            (Some(transaction), TransactionEnd::Abort) => transaction.may_abort = true,
            (None, TransactionEnd::Abort) if self.is_new => {}
            (None, _) => {
                self.ending = None;
                return false;
            }
        }
        let request = EndTxnRequest {
            transactional_id: self.id_name(),
            producer_id,
            producer_epoch,
            committed: end == TransactionEnd::Commit,
        };
        let version = if self.is_new { 5 } else { 4 };
        self.send(version, &request, Asked::End(end));
        true
    }
}

impl World {
    pub async fn transaction_step(
        &mut self,
        server: &mut Server,
        step: TransactionStep,
    ) -> Result<(), Broken> {
        let number = match step {
            TransactionStep::Fetch { id } => {
                return self.check_commits_of(server, id, false, false).await;
            }
            TransactionStep::Quiet => return self.check_all_ended(server).await,
            TransactionStep::Init { client, .. }
            | TransactionStep::Produce { client, .. }
            | TransactionStep::Commit { client, .. }
            | TransactionStep::End { client, .. }
            | TransactionStep::Cut { client } => client,
        };
        self.act_in(server, number, step)
    }

    /// Lets a client act, or take the steps that have to come first.
    fn act_in(&mut self, server: &mut Server, number: u8, step: TransactionStep) -> Result<(), Broken> {
        let (topic, partition) = match step {
            TransactionStep::Produce { topic, partition, .. }
            | TransactionStep::Commit { topic, partition, .. } => (topic, partition),
            TransactionStep::Init { .. }
            | TransactionStep::End { .. }
            | TransactionStep::Cut { .. }
            | TransactionStep::Fetch { .. }
            | TransactionStep::Quiet => (0, 0),
        };
        let there = self.kafka.topic(topic).filter(|topic| topic.is_there());
        let place = self
            .kafka
            .log(topic, partition)
            .zip(there.map(|topic| topic.level));
        let group = self.kafka.new_group();
        let kafka = &mut self.kafka;
        let Some(client) = kafka.transactional.get_mut(usize::from(number)) else {
            return Ok(());
        };
        if let TransactionStep::Cut { .. } = step {
            client.leave(&kafka.ledger);
            return Ok(());
        }
        client.connect(server)?;
        if client.is_held() {
            return Ok(());
        }
        if let (TransactionStep::Init { .. }, _) | (_, None) = (step, client.instance) {
            let goes_on = matches!(step, TransactionStep::Init { goes_on: true, .. });
            client.group = group;
            client.init(&mut kafka.ledger, goes_on);
            self.trace
                .note(|| format!("transactional client {number} begins, on: {goes_on}"));
            return Ok(());
        }
        if let (Some(end), false) = (client.ending, matches!(step, TransactionStep::End { .. })) {
            // Nothing comes behind the end until it is answered.
            client.end(&mut kafka.ledger, end);
            return Ok(());
        }
        if client.ending.is_none() {
            client.send_again(&mut kafka.ledger, &mut self.trace);
        }
        Ok(self.act(number, step, place)?)
    }

    fn act(
        &mut self,
        number: u8,
        step: TransactionStep,
        place: Option<(LogKey, stafett_model::Durability)>,
    ) -> Result<(), Finding> {
        let now_ms = self.now_ms();
        let kafka = &mut self.kafka;
        let Some(client) = kafka.transactional.get_mut(usize::from(number)) else {
            return Ok(());
        };
        match step {
            TransactionStep::Commit { .. } => {
                if let Some((log, _)) = place {
                    let offset = client.commit(&mut kafka.ledger, log, now_ms);
                    self.trace
                        .note(|| format!("transactional client {number} commits {offset:?} for {log:?}"));
                }
            }
            TransactionStep::End { commits, .. } => {
                let end = if commits {
                    TransactionEnd::Commit
                } else {
                    TransactionEnd::Abort
                };
                // Sequences go on: a batch that is lost would be missing.
                if client.is_new || client.ending.is_some() || client.waiting.is_empty() {
                    let is_sent = client.end(&mut kafka.ledger, end);
                    let what = (client.current, client.ending, client.instance);
                    self.trace
                        .note(|| format!("transactional client {number} ends {what:?}: {is_sent}"));
                }
            }
            TransactionStep::Produce { records, bytes, .. } => {
                if let Some(place) = place {
                    self.produce_in(number, place, records, bytes)?;
                }
            }
            TransactionStep::Init { .. }
            | TransactionStep::Cut { .. }
            | TransactionStep::Fetch { .. }
            | TransactionStep::Quiet => {}
        }
        Ok(())
    }

    fn produce_in(
        &mut self,
        number: u8,
        (log, level): (LogKey, stafett_model::Durability),
        records: u16,
        bytes: u32,
    ) -> Result<(), Finding> {
        let now_ms = self.now_ms();
        let Some(client) = self.kafka.transactional.get_mut(usize::from(number)) else {
            return Ok(());
        };
        let ledger = &mut self.kafka.ledger;
        if client.waiting.len() >= IN_FLIGHT_MAX {
            return Ok(());
        }
        let (Some(transaction), Some((producer, epoch))) =
            (client.transaction(ledger, now_ms), client.instance)
        else {
            return Ok(());
        };
        let sequence = *client.next.entry(log).or_insert(0);
        let batch = ledger.add(Batch {
            log,
            date_ms: host::wall_ms() - 86_400_000,
            group: client.group,
            records: records.into(),
            level,
            state: State::Unknown,
            sent: 1,
            transaction: Some(transaction),
            is_message: false,
        });
        let numbering = Some((producer, epoch, sequence));
        let body = batch_of((batch, log), records, bytes, Age::Now, numbering, true)
            .map_err(|error| Finding(format!("a batch cannot be built: {error}")))?;
        client.add(log);
        let kept = Kept {
            bytes: body,
            is_fenced: ledger.transactions.is_fenced(client.id(), epoch),
        };
        client.send_batch(batch, log, &kept);
        client.kept.insert(batch, kept);
        if let Some(next) = client.next.get_mut(&log) {
            *next += i32::from(records);
        }
        self.trace.note(|| {
            format!("transactional client {number} sends batch {batch} of {records} to {log:?}, {numbering:?}, in {transaction}")
        });
        Ok(())
    }
}

/// Sequences by log.
pub(super) type Sequences = BTreeMap<LogKey, i32>;
