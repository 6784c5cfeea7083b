//! Reads partitions from start to end, and sends administrative requests.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use bytes::Bytes;
use stafett_journal::Journal;
use stafett_kafka_wire::Request;
use stafett_kafka_wire::messages::FetchRequest;
use stafett_kafka_wire::messages::fetch::{FetchPartition, FetchTopic};
use stafett_model::{BatchHeader, StoredRecord, TransactionEnd, transaction_end};

use super::connection::Connection;
use crate::ledger::{LogKey, Seen};
use crate::server::Server;
use crate::steps::{PARTITIONS, TOPICS};
use crate::world::{Broken, Death, Finding, World};

/// Maximum simulated milliseconds until an answer.
const PATIENCE_MS: u32 = 60_000;

impl World {
    /// Sends a request and waits for its answer.
    pub async fn ask<R: Request>(
        &mut self,
        server: &mut Server,
        version: i16,
        request: &R,
    ) -> Result<R::Response, Broken> {
        if self
            .kafka
            .admin
            .as_ref()
            .is_none_or(|admin| !admin.socket.is_open)
        {
            let socket = server
                .connect_kafka()
                .map_err(|error| Finding(error.to_string()))?;
            self.kafka.admin = Some(Connection::new(socket));
        }
        if let Some(admin) = &mut self.kafka.admin {
            admin.send(version, request);
        }
        for _ in 0..PATIENCE_MS {
            self.tick(server).await?;
            let Some(admin) = &mut self.kafka.admin else {
                break;
            };
            if let Some(answer) = admin.answer() {
                return Ok(admin.read::<R>(version, answer)?);
            }
            if !admin.socket.is_open && self.has_failed() && server.journal.failure().is_some() {
                // Without knowing the outcome, the broker does not answer.
                return Err(Broken::Died(Death::Failed));
            }
            let Some(admin) = &self.kafka.admin else { break };
            if !admin.socket.is_open {
                return Err(
                    Finding(format!("{} was answered by the connection's end", R::KEY.name())).into(),
                );
            }
        }
        Err(Finding(format!("{} is not answered", R::KEY.name())).into())
    }

    /// Reads every partition and compares it with the ledger.
    pub async fn check_logs(&mut self, server: &mut Server, died: Option<Death>) -> Result<(), Broken> {
        for topic in 0..TOPICS {
            for partition in 0..PARTITIONS {
                self.check_log(server, topic, partition, died).await?;
            }
        }
        Ok(())
    }

    pub async fn check_log(
        &mut self,
        server: &mut Server,
        topic: u8,
        partition: u8,
        died: Option<Death>,
    ) -> Result<(), Broken> {
        let is_there = self.kafka.topic(topic).is_some_and(super::Topic::is_there);
        let Some(log) = self.kafka.log(topic, partition).filter(|_| is_there) else {
            return Ok(());
        };
        let before: Vec<_> = self
            .kafka
            .ledger
            .batches
            .iter()
            .map(|batch| batch.state)
            .collect();
        let transactions = self.kafka.ledger.transactions.all.iter();
        let closed: Vec<_> = transactions.map(|transaction| transaction.is_closed).collect();
        let committed = self.read_log(server, log, true).await?;
        let all = self.read_log(server, log, false).await?;
        self.trace
            .note(|| format!("{log:?} holds {} records", all.seen.len()));
        let was: Vec<_> = self
            .kafka
            .ledger
            .batches
            .iter()
            .map(|batch| batch.state)
            .collect();
        self.kafka.ledger.check(log, &all.seen, died, &before)?;
        self.kafka.check_ends(log, &committed, &all, &closed)?;
        self.kafka.ledger.saw_contents(log, &committed.sums)?;
        self.kafka.ledger.saw_contents(log, &all.sums)?;
        self.kafka.check_readers(log, &all)?;
        self.kafka.ledger.check_compacted(log, &all.seen, died, &before)?;
        // After a loss, the affected producer may be out of sequence.
        let batches = self.kafka.ledger.batches.iter();
        if batches.zip(was).any(|(batch, was)| batch.state != was) {
            self.kafka.producers.iter_mut().for_each(super::Producer::on_lost);
            self.kafka
                .transactional
                .iter_mut()
                .for_each(super::Transactional::on_lost);
        }
        Ok(())
    }

    async fn read_log(
        &mut self,
        server: &mut Server,
        log: LogKey,
        is_committed: bool,
    ) -> Result<Reading, Broken> {
        let (mut read, mut at) = (Reading::new(is_committed), 0);
        let topic = server.broker.topics().named(&format!("t{}", log.topic));
        let id = topic.and_then(|topic| topic.log(log.partition.into()));
        // Deleted records are skipped.
        if let Some(bounds) = id.and_then(|id| server.journal.bounds(id)) {
            at = bounds.start.0;
        }
        read.start = at;
        match self.read_part(server, log, &mut at, &mut read).await? {
            0 => Ok(read),
            code => Err(Finding(format!("{log:?} cannot be read at {at}: {code}")).into()),
        }
    }

    /// Reads a log from an offset to its end or an error. Returns the error code, 0 at the end.
    pub(crate) async fn read_part(
        &mut self,
        server: &mut Server,
        log: LogKey,
        at: &mut u64,
        read: &mut Reading,
    ) -> Result<i16, Broken> {
        loop {
            let request = fetch(log, *at, read.is_committed);
            let answer = self.ask(server, 12, &request).await?;
            let partition = answer
                .responses
                .first()
                .and_then(|topic| topic.partitions.first())
                .ok_or_else(|| Finding("a fetch without partitions".to_owned()))?;
            if partition.error_code != 0 {
                return Ok(partition.error_code);
            }
            read.stable = u64::try_from(partition.last_stable_offset).unwrap_or(u64::MAX);
            read.end = u64::try_from(partition.high_watermark).unwrap_or(u64::MAX);
            let bytes = partition.records.clone().unwrap_or_default().into_bytes();
            if bytes.is_empty() {
                return Ok(0);
            }
            let aborted = partition.aborted_transactions.iter().flatten();
            let aborted: Vec<_> = aborted.map(|it| (it.first_offset, it.producer_id)).collect();
            read.add(log, at, bytes, &aborted)?;
        }
    }
}

/// Content of a log.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    /// True if only committed records were read.
    pub(crate) is_committed: bool,
    pub(crate) start: u64,
    pub(crate) seen: Vec<Seen>,
    /// Checksums of the records, by offset.
    pub(crate) sums: Vec<(u64, u64)>,
    /// Ends of transactions: offset, producer.
    pub(crate) ends: Vec<(u64, i64, TransactionEnd)>,
    /// Last stable offset, and end, of the last answer.
    pub(crate) stable: u64,
    pub(crate) end: u64,
}

impl Reading {
    pub(super) fn new(is_committed: bool) -> Self {
        Self {
            is_committed,
            ..Self::default()
        }
    }

    /// Adds fetched batches. Like a client, it leaves out control batches, and the records of `aborted`
    /// transactions, which are first offsets and producers.
    pub(super) fn add(
        &mut self,
        log: LogKey,
        at: &mut u64,
        mut bytes: Bytes,
        aborted: &[(i64, i64)],
    ) -> Result<(), Finding> {
        let unreadable = |error| Finding(format!("{log:?} has an unreadable batch: {error}"));
        let mut ended = BTreeSet::new();
        let mut behind = 0;
        while !bytes.is_empty() {
            let header = BatchHeader::verify(&bytes).map_err(unreadable)?;
            let batch = bytes.split_to(header.bytes);
            let (base, producer) = (header.base_offset, header.producer_id);
            let next = u64::try_from(base + i64::from(header.last_offset_delta) + 1).unwrap_or(0);
            if u64::try_from(base).unwrap_or(0) < behind {
                return Err(Finding(format!("{log:?} goes back from {behind} to {base}")));
            }
            behind = next;
            if header.is_control() {
                let end = transaction_end(&header, &batch)
                    .ok_or_else(|| Finding(format!("{log:?} has an unknown control batch at {base}")))?;
                if next > *at {
                    self.ends.push((next - 1, producer, end));
                }
                ended.insert((producer, base));
                *at = next.max(*at);
                continue;
            }
            let is_aborted = header.is_transactional()
                && aborted.iter().any(|(first, of)| {
                    *of == producer
                        && *first <= base
                        && ended
                            .range((producer, *first)..=(producer, base))
                            .next()
                            .is_none()
                });
            for record in stafett_model::records(&batch, 16 << 20).map_err(unreadable)? {
                let record = record.map_err(unreadable)?;
                let id = id_of_record(&record)
                    .ok_or_else(|| Finding(format!("{log:?} holds a foreign record")))?;
                let offset = record.offset.0;
                if offset >= *at && !is_aborted {
                    self.sums.push((offset, sum_of(&record)));
                    self.seen.push(Seen { offset, id });
                }
            }
            *at = next.max(*at);
        }
        Ok(())
    }
}

/// Returns a checksum of all that a record holds.
fn sum_of(record: &StoredRecord) -> u64 {
    let mut hasher = DefaultHasher::new();
    (record.timestamp, &record.key, &record.value).hash(&mut hasher);
    hasher.finish()
}

/// Header of records without a value that holds their id.
pub(crate) const ID: &str = "id";

/// Returns the id of a record from its value, or from a header if it has none.
pub(super) fn id_of_record(record: &StoredRecord) -> Option<(usize, u32)> {
    match &record.value {
        Some(value) => id_of(value),
        None => id_of(record.headers.last(ID.as_bytes())??),
    }
}

/// Parses the id of a record from its value.
pub(crate) fn id_of(value: &[u8]) -> Option<(usize, u32)> {
    let mut parts = value.splitn(3, |byte| *byte == b':');
    let mut part = || std::str::from_utf8(parts.next()?).ok();
    Some((part()?.parse().ok()?, part()?.parse().ok()?))
}

fn fetch(log: LogKey, at: u64, is_committed: bool) -> FetchRequest {
    let partition = FetchPartition {
        partition: log.partition.into(),
        fetch_offset: i64::try_from(at).unwrap_or(i64::MAX),
        partition_max_bytes: 1 << 20,
        ..FetchPartition::default()
    };
    FetchRequest {
        max_bytes: 8 << 20,
        isolation_level: is_committed.into(),
        topics: vec![FetchTopic {
            topic: format!("t{}", log.topic).into(),
            partitions: vec![partition],
            ..FetchTopic::default()
        }],
        ..FetchRequest::default()
    }
}
