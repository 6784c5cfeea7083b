//! Transactional clients: instances of few transactional ids, which fence each other.

mod checks;
mod steps;

pub use self::steps::TransactionStep;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use stafett_kafka_wire::messages::{
    AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest, ProduceRequest,
    TxnOffsetCommitRequest,
};
use stafett_kafka_wire::{Request, Str};
use stafett_model::TransactionEnd;

use self::steps::Sequences;
use super::connection::Connection;
use crate::ledger::{Ledger, LogKey, State};
use crate::server::Server;
use crate::world::Finding;

/// Number of transactional ids.
const IDS: u8 = 2;
/// Number of clients: two instances of each id, in turn of the first and the second version of the protocol.
const CLIENTS: u8 = 4;
/// Longest times that transactions may take.
const TIMEOUTS_MS: [u32; 2] = [3_000, 8_000];

/// Error codes of Kafka.
mod code {
    pub(super) const TOO_LARGE: i16 = 10;
    /// Also: the end of the transaction is being stored, in the first version of the protocol.
    pub(super) const NOT_ENOUGH_REPLICAS: i16 = 19;
    pub(super) const CONCURRENT_TRANSACTIONS: i16 = 51;
}

/// An instance of a transactional producer.
#[derive(Debug, Clone)]
pub(super) struct Transactional {
    number: u8,
    /// True if it speaks the second version of the protocol (KIP-890).
    is_new: bool,
    timeout_ms: u32,
    connection: Option<Connection>,
    /// Producer id and epoch.
    instance: Option<(i64, i16)>,
    /// Group of batches that keep their order.
    group: u64,
    next: Sequences,
    /// Data of each batch until it is answered.
    kept: BTreeMap<usize, Kept>,
    waiting: VecDeque<Asked>,
    /// Unanswered batches of a lost connection.
    again: VecDeque<usize>,
    /// The open transaction.
    current: Option<usize>,
    /// End that was requested and is not answered.
    ending: Option<TransactionEnd>,
    /// Partitions that were added to the transaction, in the first version of the protocol.
    added: BTreeSet<LogKey>,
    has_added_group: bool,
    /// True if one of its batches was lost or deleted: later ones may be out of sequence.
    is_disturbed: bool,
}

#[derive(Debug, Clone)]
struct Kept {
    bytes: Bytes,
    /// True if a later instance was known when it was first sent.
    is_fenced: bool,
}

#[derive(Debug, Clone)]
enum Asked {
    Init { goes_on: bool },
    Add,
    AddGroup,
    Batch(usize),
    Commit { number: usize, log: LogKey, offset: u64 },
    End(TransactionEnd),
}

fn group_name(id: u8) -> Str {
    format!("x{id}").into()
}

impl Transactional {
    fn new(number: u8) -> Self {
        Self {
            number,
            is_new: number.is_multiple_of(3),
            timeout_ms: if number < 2 {
                TIMEOUTS_MS[0]
            } else {
                TIMEOUTS_MS[1]
            },
            connection: None,
            instance: None,
            group: 0,
            next: Sequences::new(),
            kept: BTreeMap::new(),
            waiting: VecDeque::new(),
            again: VecDeque::new(),
            current: None,
            ending: None,
            added: BTreeSet::new(),
            has_added_group: false,
            is_disturbed: false,
        }
    }

    fn id(&self) -> u8 {
        self.number / (CLIENTS / IDS)
    }

    fn id_name(&self) -> Str {
        format!("id{}", self.id()).into()
    }

    /// True while it waits for an answer before which it sends nothing.
    fn is_held(&self) -> bool {
        let holds = |asked: &Asked| matches!(asked, Asked::Init { .. } | Asked::End(_));
        self.waiting.iter().any(holds)
    }

    fn connect(&mut self, server: &mut Server) -> Result<(), Finding> {
        if self.connection.is_none() {
            let socket = server
                .connect_kafka()
                .map_err(|error| Finding(error.to_string()))?;
            self.connection = Some(Connection::new(socket));
        }
        Ok(())
    }

    fn send<R: Request>(&mut self, version: i16, request: &R, asked: Asked) {
        if let Some(connection) = &mut self.connection {
            connection.send(version, request);
            self.waiting.push_back(asked);
        }
    }

    /// Returns the open transaction, which begins if there is none.
    fn transaction(&mut self, ledger: &mut Ledger, now_ms: i64) -> Option<usize> {
        let instance = self.instance?;
        if self.current.is_none() {
            let overdue_ms = now_ms + i64::from(self.timeout_ms);
            self.current = Some(ledger.transactions.begin(self.id(), instance, overdue_ms));
        }
        self.current
    }

    /// Handles the end of its connection.
    pub(super) fn leave(&mut self, ledger: &Ledger) {
        self.connection = None;
        self.added.clear();
        self.has_added_group = false;
        for asked in std::mem::take(&mut self.waiting) {
            if let Asked::Batch(number) = asked
                && self.kept.contains_key(&number)
                && ledger
                    .batches
                    .get(number)
                    .is_some_and(|batch| batch.state == State::Unknown)
            {
                self.again.push_back(number);
            }
        }
    }

    pub(super) fn is_waiting_for(&self, topic: u8, ledger: &Ledger) -> bool {
        let is_of = |number: &usize| {
            ledger
                .batches
                .get(*number)
                .is_some_and(|it| it.log.topic == topic)
        };
        let waits = |asked: &Asked| match asked {
            Asked::Batch(number) => is_of(number),
            Asked::Commit { log, .. } => log.topic == topic,
            Asked::Init { .. } | Asked::Add | Asked::AddGroup | Asked::End(_) => false,
        };
        self.waiting.iter().any(waits) || self.again.iter().any(is_of)
    }

    pub(super) fn forget_topic(&mut self, topic: u8) {
        self.next.retain(|log, _| log.topic != topic);
        self.added.retain(|log| log.topic != topic);
        // Nothing else may be left of its transaction.
        self.is_disturbed |= self.current.is_some();
    }

    pub(super) fn is_resending(&self, batch: usize) -> bool {
        self.again.contains(&batch)
    }

    pub(super) fn on_lost(&mut self) {
        self.is_disturbed = true;
    }

    /// Gives its instance up: its requests are not sent again.
    fn drop_instance(&mut self) {
        self.instance = None;
        self.next.clear();
        self.kept.clear();
        self.again.clear();
        self.end_transaction();
        self.is_disturbed = false;
    }

    fn end_transaction(&mut self) {
        (self.current, self.ending) = (None, None);
        self.added.clear();
        self.has_added_group = false;
    }

    pub(super) fn turn(
        &mut self,
        ledger: &mut Ledger,
        may_refuse: bool,
        notes: &mut Vec<String>,
    ) -> Result<(), Finding> {
        let Some(connection) = &mut self.connection else {
            return Ok(());
        };
        connection.turn();
        while let Some(answer) = self.connection.as_mut().and_then(Connection::answer) {
            self.on_answer(answer, ledger, may_refuse, notes)?;
        }
        if Connection::is_cut(self.connection.as_ref()) {
            notes.push(format!("transactional client {} was cut off", self.number));
            self.leave(ledger);
        }
        Ok(())
    }

    fn on_answer(
        &mut self,
        answer: Bytes,
        ledger: &mut Ledger,
        may_refuse: bool,
        notes: &mut Vec<String>,
    ) -> Result<(), Finding> {
        let Some(asked) = self.waiting.pop_front() else {
            return Err(Finding("an answer that nothing was asked for".to_owned()));
        };
        let (code, instance, base) = self.read_answer(&asked, answer)?;
        let number = self.number;
        notes.push(format!(
            "transactional client {number} is answered {code}, {instance:?}, {base} to {asked:?}"
        ));
        let is_expected = may_refuse || self.may_refuse(&asked, code, ledger);
        self.apply(asked, (code, instance, base), ledger)?;
        if code == 0 {
            return Ok(());
        }
        if !is_expected {
            return Err(Finding(format!(
                "transactional client {number} is refused with code {code}: {:?}",
                self.current
                    .and_then(|number| ledger.transactions.all.get(number))
            )));
        }
        let is_busy =
            code == code::CONCURRENT_TRANSACTIONS && self.waiting.is_empty() && self.ending.is_some();
        if !is_busy {
            self.drop_instance();
        }
        Ok(())
    }

    /// Reads an answer: code, instance, base offset.
    fn read_answer(&mut self, asked: &Asked, answer: Bytes) -> Result<(i16, (i64, i16), i64), Finding> {
        let Some(connection) = &mut self.connection else {
            return Err(Finding("an answer without a connection".to_owned()));
        };
        Ok(match asked {
            Asked::Init { .. } => {
                let answer = connection.read::<InitProducerIdRequest>(4, answer)?;
                (answer.error_code, (answer.producer_id, answer.producer_epoch), 0)
            }
            Asked::Add => {
                let answer = connection.read::<AddPartitionsToTxnRequest>(3, answer)?;
                let topic = answer.results_by_topic_v3_and_below.first();
                let partition = topic.and_then(|topic| topic.results_by_partition.first());
                (
                    partition.map_or(-1, |partition| partition.partition_error_code),
                    (0, 0),
                    0,
                )
            }
            Asked::AddGroup => {
                let answer = connection.read::<AddOffsetsToTxnRequest>(3, answer)?;
                (answer.error_code, (0, 0), 0)
            }
            Asked::Batch(_) => {
                let version = if self.is_new { 12 } else { 11 };
                let answer = connection.read::<ProduceRequest>(version, answer)?;
                let topic = answer.responses.first();
                let partition = topic.and_then(|topic| topic.partition_responses.first());
                partition.map_or((-1, (0, 0), 0), |it| (it.error_code, (0, 0), it.base_offset))
            }
            Asked::Commit { .. } => {
                let version = if self.is_new { 5 } else { 3 };
                let answer = connection.read::<TxnOffsetCommitRequest>(version, answer)?;
                let topic = answer.topics.first();
                let partition = topic.and_then(|topic| topic.partitions.first());
                (partition.map_or(-1, |partition| partition.error_code), (0, 0), 0)
            }
            Asked::End(_) => {
                let version = if self.is_new { 5 } else { 4 };
                let answer = connection.read::<EndTxnRequest>(version, answer)?;
                (answer.error_code, (answer.producer_id, answer.producer_epoch), 0)
            }
        })
    }

    /// Applies an answer to the model.
    fn apply(
        &mut self,
        asked: Asked,
        (code, instance, base): (i16, (i64, i16), i64),
        ledger: &mut Ledger,
    ) -> Result<(), Finding> {
        match (asked, code) {
            (Asked::Init { .. }, code) => {
                let begun = (code == 0).then_some(instance);
                ledger
                    .transactions
                    .on_init_answer(self.id(), begun.map(|it| it.1))?;
                self.instance = begun;
            }
            (Asked::Batch(number), 0) => {
                let kept = self.kept.remove(&number);
                if kept.is_some_and(|kept| kept.is_fenced) {
                    return Err(Finding(format!("batch {number} of a fenced instance was taken")));
                }
                ledger.acknowledge(number, u64::try_from(base).unwrap_or(u64::MAX))?;
            }
            (Asked::Batch(number), _) => {
                self.kept.remove(&number);
                if let Some(batch) = ledger.batches.get_mut(number)
                    && batch.state == State::Unknown
                    && batch.sent == 1
                {
                    batch.state = State::Never;
                }
            }
            (Asked::Commit { number, log, offset }, code) => {
                ledger
                    .transactions
                    .on_commit_answer(number, log, offset, code == 0);
            }
            (Asked::End(end), 0) => self.on_ended(end, instance, ledger)?,
            (Asked::End(TransactionEnd::Commit), _) => {
                let current = self
                    .current
                    .and_then(|number| ledger.transactions.all.get_mut(number));
                if let Some(transaction) = current {
                    transaction.commits_sent -= 1;
                }
            }
            (Asked::Add | Asked::AddGroup | Asked::End(TransactionEnd::Abort), _) => {}
        }
        Ok(())
    }

    fn on_ended(
        &mut self,
        end: TransactionEnd,
        instance: (i64, i16),
        ledger: &mut Ledger,
    ) -> Result<(), Finding> {
        if let Some(transaction) = self
            .current
            .and_then(|number| ledger.transactions.all.get_mut(number))
        {
            transaction.settle(end)?;
        }
        self.end_transaction();
        if self.is_new {
            ledger.transactions.on_epoch(self.id(), instance.1)?;
            self.instance = Some(instance);
            self.next.clear();
            self.kept.clear();
            self.again.clear();
            self.is_disturbed = false;
        }
        Ok(())
    }

    /// True if a refusal may be right although nothing is wrong with the disk.
    fn may_refuse(&self, asked: &Asked, code: i16, ledger: &Ledger) -> bool {
        let transactions = &ledger.transactions;
        let current = self.current.and_then(|number| transactions.all.get(number));
        let is_replaced = current.is_none_or(|it| it.may_abort || it.is_closed)
            || self
                .instance
                .is_none_or(|it| transactions.is_fenced(self.id(), it.1));
        if is_replaced || matches!(code, code::CONCURRENT_TRANSACTIONS | code::NOT_ENOUGH_REPLICAS) {
            return true;
        }
        match asked {
            Asked::Init { goes_on } => *goes_on,
            Asked::Batch(number) => {
                self.is_disturbed
                    || code == code::TOO_LARGE
                    || self.kept.get(number).is_none_or(|kept| kept.is_fenced)
            }
            // Nothing of it may be stored.
            Asked::End(_) => {
                let has_batch = ledger.batches.iter().any(|batch| {
                    batch.transaction == self.current && matches!(batch.state, State::Acknowledged { .. })
                });
                self.is_disturbed || !has_batch && current.is_none_or(|it| !it.has_offsets)
            }
            Asked::Add | Asked::AddGroup | Asked::Commit { .. } => false,
        }
    }
}

/// Returns the clients.
pub(super) fn clients() -> Vec<Transactional> {
    (0..CLIENTS).map(Transactional::new).collect()
}
