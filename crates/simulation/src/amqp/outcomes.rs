//! Transactions of AMQP clients in the model: their parts, and outcomes that are possible.
//!
//! ```text
//!          tx.commit            answered, or a part is seen
//!   Open ─────────────▶ Sent ──────────────────────────────────▶ Committed
//!    │                   │                                          │
//!    │ rollback, end     │ refused, or a part is missing            │ a failure that it does not survive
//!    └───────▶ RolledBack ◀─┘                                       └──▶ Sent
//! ```

use std::collections::BTreeMap;

use stafett_model::Durability;

use super::copies::{Copied, Copies, CopyId, Place, Settled, Stored};
use crate::ledger::survives;
use crate::world::{Death, Finding};

/// Milliseconds after which settlements without messages survive a loss of power.
const SYNCED_MS: i64 = 400;

/// A transaction: messages, records and settlements that take effect together.
#[derive(Debug, Clone)]
pub struct Transaction {
    client: u8,
    pub outcome: Outcome,
    /// Messages to queues.
    messages: Vec<usize>,
    /// Records in topics: batches of the ledger.
    pub records: Vec<usize>,
    /// Copies that it removes from their queues.
    completed: Vec<CopyId>,
    pub bytes: usize,
    /// Durability of the append.
    pub level: Durability,
    /// Time at which its outcome was answered, or follows from a delivery.
    told_ms: Option<i64>,
    /// True once the ledger knows its outcome.
    pub is_applied: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Open,
    /// The commit is not answered.
    Sent,
    Committed,
    RolledBack,
    /// Nothing that is left of it tells its outcome.
    Unknowable,
}

impl Transaction {
    /// True if it may still be committed.
    pub fn may_commit(&self) -> bool {
        matches!(self.outcome, Outcome::Open | Outcome::Sent)
    }

    fn is_alone(&self) -> bool {
        self.messages.is_empty() && self.records.is_empty()
    }
}

impl Copies {
    fn transaction(&mut self, number: usize) -> Result<&mut Transaction, Finding> {
        let transaction = self.transactions.get_mut(number);
        transaction.ok_or_else(|| Finding(format!("there is no transaction {number}")))
    }

    pub fn begin(&mut self, client: u8) -> usize {
        self.transactions.push(Transaction {
            client,
            outcome: Outcome::Open,
            messages: Vec::new(),
            records: Vec::new(),
            completed: Vec::new(),
            bytes: 0,
            level: Durability::Os,
            told_ms: None,
            is_applied: false,
        });
        self.transactions.len() - 1
    }

    /// Adds a message to a transaction.
    pub fn join(&mut self, number: usize, message: usize, bytes: usize) -> Result<(), Finding> {
        for copy in self.of_message(message) {
            copy.transaction = Some(number);
        }
        let transaction = self.transaction(number)?;
        transaction.messages.push(message);
        transaction.bytes += bytes;
        transaction.level = Durability::Sync;
        Ok(())
    }

    /// Adds a record in a topic of durability `level` to a transaction.
    pub fn join_record(
        &mut self,
        number: usize,
        batch: usize,
        bytes: usize,
        level: Durability,
    ) -> Result<(), Finding> {
        let transaction = self.transaction(number)?;
        let is_first = transaction.is_alone();
        transaction.records.push(batch);
        transaction.bytes += bytes;
        if is_first || rank(level) > rank(transaction.level) {
            transaction.level = level;
        }
        Ok(())
    }

    /// Records a commit, which removes `completed` from their queues.
    pub fn on_commit_sent(&mut self, number: usize, completed: Vec<CopyId>) -> Result<(), Finding> {
        for id in &completed {
            if let Some(copy) = self.all.get_mut(id).filter(|copy| copy.settled == Settled::No) {
                copy.settled = Settled::Pending(number);
            }
        }
        let transaction = self.transaction(number)?;
        if !completed.is_empty() && transaction.level == Durability::Memory {
            transaction.level = Durability::Os;
        }
        transaction.completed = completed;
        transaction.outcome = Outcome::Sent;
        Ok(())
    }

    /// Records that a transaction is committed. `told_ms`: the time at which that is certain to last.
    pub fn on_committed(&mut self, number: usize, told_ms: Option<i64>) -> Result<(), Finding> {
        let transaction = self.transaction(number)?;
        if matches!(transaction.outcome, Outcome::Open | Outcome::RolledBack) {
            return Err(Finding(format!(
                "transaction {number} of AMQP takes effect: {transaction:?}"
            )));
        }
        transaction.outcome = Outcome::Committed;
        transaction.told_ms = transaction.told_ms.or(told_ms);
        let (messages, completed) = (transaction.messages.clone(), transaction.completed.clone());
        for message in messages {
            self.confirm(message)?;
        }
        for id in completed {
            if let Some(copy) = self.all.get_mut(&id)
                && copy.settled == Settled::Pending(number)
            {
                copy.settled = Settled::Gone;
                copy.holders.clear();
            }
        }
        Ok(())
    }

    /// Records that nothing of a transaction takes effect.
    pub fn on_rolled_back(&mut self, number: usize) -> Result<(), Finding> {
        let transaction = self.transaction(number)?;
        if transaction.outcome == Outcome::Committed {
            return Err(Finding(format!(
                "transaction {number} of AMQP was committed, and a part is undone: {transaction:?}"
            )));
        }
        transaction.outcome = Outcome::RolledBack;
        let client = transaction.client;
        let (messages, completed) = (transaction.messages.clone(), transaction.completed.clone());
        for message in messages {
            self.refuse(message)?;
        }
        for id in completed {
            if let Some(copy) = self.all.get_mut(&id)
                && copy.settled == Settled::Pending(number)
            {
                copy.settled = Settled::No;
                copy.holders.retain(|holder| *holder != client);
            }
        }
        Ok(())
    }

    /// Records that the client of a transaction with a commit on its way is gone.
    pub fn on_commit_lost(&mut self, number: usize) {
        let Ok(transaction) = self.transaction(number) else {
            return;
        };
        let (client, completed) = (transaction.client, transaction.completed.clone());
        for id in completed {
            self.give_back(id, client);
        }
    }

    /// Concludes the outcomes of the transactions of a copy from its delivery.
    pub(super) fn learn_from_delivery(&mut self, id: CopyId, now_ms: i64) -> Result<(), Finding> {
        let Some(copy) = self.all.get(&id) else {
            return Ok(());
        };
        let (of, settled) = (copy.transaction, copy.settled);
        if let Settled::Pending(number) = settled {
            self.on_rolled_back(number)?;
        }
        let is_news = |number: &usize| {
            let transaction = self.transactions.get(*number);
            transaction.is_some_and(|it| it.outcome != Outcome::Committed || it.told_ms.is_none())
        };
        match of.filter(is_news) {
            Some(number) => self.on_committed(number, Some(now_ms)),
            None => Ok(()),
        }
    }

    /// True if a topic may get records of a transaction. `topic_of` returns the topic of a batch.
    pub fn may_get_records(&self, topic: u8, topic_of: impl Fn(usize) -> Option<u8>) -> bool {
        let mut open = self.transactions.iter().filter(|it| it.may_commit());
        open.any(|it| it.records.iter().any(|batch| topic_of(*batch) == Some(topic)))
    }

    /// Applies the way in which the program ended: an outcome that it does not survive is unknown again.
    /// Returns the records of such transactions.
    pub fn doubt_outcomes(&mut self, death: Death, now_ms: i64) -> Vec<usize> {
        let mut records = Vec::new();
        for number in 0..self.transactions.len() {
            let Some(transaction) = self.transactions.get_mut(number) else {
                continue;
            };
            let is_synced =
                transaction.is_alone() && transaction.told_ms.is_some_and(|told| now_ms - told > SYNCED_MS);
            let lasts = is_synced
                || (transaction.told_ms.is_some() && survives(transaction.level, death))
                || !matches!(death, Death::Power(_) | Death::Failed | Death::Killed);
            let is_seen_only = transaction.told_ms.is_none() && !matches!(death, Death::Power(_));
            if transaction.outcome != Outcome::Committed || lasts || is_seen_only {
                continue;
            }
            (transaction.outcome, transaction.is_applied) = (Outcome::Sent, false);
            transaction.told_ms = None;
            records.extend(&transaction.records);
            let (messages, completed) = (transaction.messages.clone(), transaction.completed.clone());
            for message in messages {
                for copy in self.of_message(message) {
                    copy.stored = Stored::Unknown;
                }
            }
            for id in completed {
                if let Some(copy) = self.all.get_mut(&id)
                    && copy.settled == Settled::Gone
                {
                    copy.settled = Settled::Pending(number);
                }
            }
        }
        records
    }

    /// Decides after a start the outcomes of transactions by the parts that are there: one part decides all.
    /// `is_recorded` tells whether a record is there, `None` if it may have been deleted since.
    pub fn decide(
        &mut self,
        found: &BTreeMap<(usize, Place), u32>,
        is_recorded: impl Fn(usize) -> Option<bool>,
    ) -> Result<(), Finding> {
        for number in 0..self.transactions.len() {
            let Some(transaction) = self.transactions.get(number) else {
                continue;
            };
            if transaction.outcome != Outcome::Sent {
                continue;
            }
            let ids = transaction.messages.iter();
            let messages = ids.flat_map(|message| self.all.range((*message, 0)..=(*message, u8::MAX)));
            let stored = messages.map(|(id, copy)| self.is_stored(*id, copy, found));
            let recorded = transaction.records.iter().map(|batch| is_recorded(*batch));
            let completed = transaction.completed.iter().map(|id| {
                let copy = self.all.get(id)?;
                let is_certain = copy.stored == Stored::Confirmed
                    && copy.settled == Settled::Pending(number)
                    && !copy.may_be_elsewhere(self.clock_ms);
                let is_there = is_found(*id, copy, found);
                (is_there || is_certain).then_some(!is_there)
            });
            let parts: Vec<Option<bool>> = stored.chain(recorded).chain(completed).collect();
            if parts.contains(&Some(true)) {
                self.on_committed(number, None)?;
            } else if parts.contains(&Some(false)) {
                self.on_rolled_back(number)?;
            } else {
                self.forget_outcome(number);
            }
        }
        Ok(())
    }

    /// True if a message of a transaction is there, `None` if nothing tells.
    fn is_stored(&self, id: CopyId, copy: &Copied, found: &BTreeMap<(usize, Place), u32>) -> Option<bool> {
        if is_found(id, copy, found) {
            return Some(true);
        }
        let is_certain = copy.settled == Settled::No && !copy.may_be_elsewhere(self.clock_ms);
        is_certain.then_some(false)
    }

    /// Takes the parts of a transaction apart.
    fn forget_outcome(&mut self, number: usize) {
        for copy in self.all.values_mut() {
            if copy.transaction == Some(number) {
                copy.transaction = None;
            }
            if copy.settled == Settled::Pending(number) {
                copy.settled = Settled::Perhaps;
            }
        }
        if let Some(transaction) = self.transactions.get_mut(number) {
            transaction.outcome = Outcome::Unknowable;
        }
    }
}

fn is_found(id: CopyId, copy: &Copied, found: &BTreeMap<(usize, Place), u32>) -> bool {
    copy.places(id.1).any(|place| found.contains_key(&(id.0, place)))
}

fn rank(level: Durability) -> u8 {
    match level {
        Durability::Memory => 0,
        Durability::Os => 1,
        Durability::Interval { .. } => 2,
        Durability::Sync => 3,
    }
}
