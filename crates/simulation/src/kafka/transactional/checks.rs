//! Checks of transactions: in logs, in the commits of groups, and once all is quiet.

use std::collections::BTreeMap;

use stafett_kafka_wire::messages::OffsetFetchRequest;
use stafett_kafka_wire::messages::offset_fetch::OffsetFetchRequestTopic;
use stafett_model::TransactionEnd;

use super::{IDS, TIMEOUTS_MS, group_name};
use crate::kafka::reading::Reading;
use crate::kafka::{Kafka, Topic};
use crate::ledger::{LogKey, Seen};
use crate::server::Server;
use crate::steps::{PARTITIONS, TOPICS};
use crate::world::{Broken, Finding, World};

/// Milliseconds until transactions that take too long have ended.
const QUIET_MS: u32 = TIMEOUTS_MS[1] + 4_000;

/// A transaction in a log.
#[derive(Debug, Clone, Copy)]
struct Shown {
    first: u64,
    producer: i64,
    end: Option<TransactionEnd>,
}

impl Kafka {
    /// Compares the transactions of a log with the possible ones, and the committed records, which were read
    /// before, with all records. `closed`: the transactions that had ended before.
    pub(in crate::kafka) fn check_ends(
        &mut self,
        log: LogKey,
        committed: &Reading,
        all: &Reading,
        closed: &[bool],
    ) -> Result<(), Finding> {
        let shown = self.ends_in(log, all)?;
        let undecided = shown.values().filter(|shown| shown.end.is_none());
        let first = undecided.map(|shown| shown.first).min();
        // The first records of an open transaction may have expired.
        let is_expired = all.start > 0 && all.stable == all.start && self.ledger.is_undecided(log);
        let stable = if is_expired {
            all.start
        } else {
            first.unwrap_or(all.end)
        };
        if all.stable != stable {
            return Err(Finding(format!(
                "{log:?} is stable to {} and ends at {}; the first open transaction is at {first:?}: {shown:?}",
                all.stable, all.end
            )));
        }
        if stable < committed.stable {
            return Err(Finding(format!(
                "{log:?} was stable to {}, and a transaction is open at {stable}: {shown:?}",
                committed.stable
            )));
        }
        let counts = |seen: &&Seen| {
            let number = self.transaction_of(seen);
            let shown = number.and_then(|number| shown.get(&number));
            seen.offset < committed.stable
                && shown.is_none_or(|shown| shown.end == Some(TransactionEnd::Commit))
        };
        let wanted = all.seen.iter().filter(counts).map(|seen| (seen.offset, seen.id));
        let read = committed.seen.iter().filter(|seen| seen.offset >= all.start);
        let read = read.map(|seen| (seen.offset, seen.id));
        let same = wanted
            .clone()
            .zip(read.clone())
            .take_while(|(one, other)| one == other)
            .count();
        let (mut wanted, mut read) = (wanted.skip(same), read.skip(same));
        if let (Some(_), _) | (_, Some(_)) = (wanted.clone().next(), read.clone().next()) {
            return Err(Finding(format!(
                "readers of committed records of {log:?} get {:?} in the place of {:?}: {shown:?}",
                read.next(),
                wanted.next()
            )));
        }
        for (number, shown) in shown {
            let was_closed = closed.get(number).copied().unwrap_or(false);
            self.ledger
                .transactions
                .observe(number, log, shown.end, was_closed)?;
        }
        Ok(())
    }

    fn transaction_of(&self, seen: &Seen) -> Option<usize> {
        self.ledger.batches.get(seen.id.0)?.transaction
    }

    /// Returns the transactions in a log.
    fn ends_in(&self, log: LogKey, all: &Reading) -> Result<BTreeMap<usize, Shown>, Finding> {
        let mut shown: BTreeMap<usize, Shown> = BTreeMap::new();
        let mut ends = all.ends.iter().peekable();
        let end_before = |offset: u64,
                          ends: &mut std::iter::Peekable<std::slice::Iter<'_, _>>,
                          shown: &mut BTreeMap<usize, Shown>| {
            while let Some((_, producer, end)) =
                ends.next_if(|(at, _, _): &&(u64, i64, TransactionEnd)| *at < offset)
            {
                let open = shown
                    .values_mut()
                    .filter(|it| it.producer == *producer && it.end.is_none());
                open.for_each(|it| it.end = Some(*end));
            }
        };
        for seen in &all.seen {
            end_before(seen.offset, &mut ends, &mut shown);
            let Some(number) = self.transaction_of(seen) else {
                continue;
            };
            let producer = self
                .ledger
                .transactions
                .all
                .get(number)
                .map_or(-1, |it| it.producer);
            let transaction = shown.entry(number).or_insert(Shown {
                first: seen.offset,
                producer,
                end: None,
            });
            if transaction.end.is_some() {
                return Err(Finding(format!(
                    "{seen:?} of {log:?} is behind the end of transaction {number}: {transaction:?}"
                )));
            }
        }
        end_before(u64::MAX, &mut ends, &mut shown);
        Ok(shown)
    }
}

impl World {
    /// Checks, after a start, that each transaction counts in all of its parts or in none.
    pub async fn check_transactions(&mut self, server: &mut Server) -> Result<(), Broken> {
        for id in 0..IDS {
            self.check_commits_of(server, id, true, false).await?;
        }
        Ok(self.kafka.ledger.transactions.settle_after_start()?)
    }

    /// Checks the commits of the group of a transactional id. `is_start`: nothing is on its way; `is_quiet`:
    /// no transaction is open.
    pub(super) async fn check_commits_of(
        &mut self,
        server: &mut Server,
        id: u8,
        is_start: bool,
        is_quiet: bool,
    ) -> Result<(), Broken> {
        let topics = (0..TOPICS).filter(|topic| self.kafka.topic(*topic).is_some_and(Topic::is_there));
        let logs: Vec<LogKey> = topics
            .flat_map(|topic| (0..PARTITIONS).map(move |partition| (topic, partition)))
            .filter_map(|(topic, partition)| self.kafka.log(topic, partition))
            .collect();
        let known = &self.kafka.ledger.transactions;
        let floors: Vec<usize> = logs.iter().map(|log| known.floor((id, *log))).collect();
        let asked = |log: &LogKey| OffsetFetchRequestTopic {
            name: format!("t{}", log.topic).into(),
            partition_indexes: vec![log.partition.into()],
        };
        let request = OffsetFetchRequest {
            group_id: group_name(id),
            topics: Some(logs.iter().map(asked).collect()),
            require_stable: is_quiet,
            ..OffsetFetchRequest::default()
        };
        let answer = self.ask(server, 7, &request).await?;
        for (index, (log, floor)) in logs.into_iter().zip(floors).enumerate() {
            let topic = answer.topics.get(index);
            let partition = topic
                .and_then(|topic| topic.partitions.first())
                .filter(|partition| partition.error_code == 0 && answer.error_code == 0)
                .ok_or_else(|| Finding(format!("commits of transactions cannot be read: {answer:?}")))?;
            let read = u64::try_from(partition.committed_offset).unwrap_or(0);
            let transactions = &mut self.kafka.ledger.transactions;
            transactions.check_commit((id, log), floor, read, is_start)?;
        }
        Ok(())
    }

    /// Waits until transactions that were left have taken too long, and checks that none is open.
    pub(super) async fn check_all_ended(&mut self, server: &mut Server) -> Result<(), Broken> {
        while self.may_refuse && !self.has_failed() {
            self.rest(server, 200).await?;
        }
        self.rest(server, QUIET_MS.into()).await?;
        if self.may_refuse || self.has_failed() {
            return Ok(());
        }
        for id in 0..IDS {
            self.check_commits_of(server, id, false, true).await?;
        }
        self.kafka.ledger.close_stored_transactions();
        let open = server.broker.transactions().list();
        let mut open = open.iter().filter(|it| it.began_at.is_some());
        if let Some(open) = open.next() {
            return Err(Finding(format!("a transaction is open that should have ended: {open:?}")).into());
        }
        self.check_logs(server, None).await
    }
}
