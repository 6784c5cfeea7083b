//! Transactions of Kafka clients: their requests and answers, and the outcomes that are possible.

use std::collections::{BTreeMap, BTreeSet};

use stafett_model::TransactionEnd;

use crate::ledger::LogKey;
use crate::world::{Death, Finding};

/// Offsets that transactions commit in one partition, for the group of one transactional id.
pub type CommitKey = (u8, LogKey);

/// A transaction.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is known or not by itself")]
pub struct Transaction {
    /// Transactional id.
    pub id: u8,
    pub producer: i64,
    pub epoch: i16,
    /// Requests to commit it that were sent and not refused.
    pub commits_sent: u32,
    /// Known outcome.
    pub end: Option<TransactionEnd>,
    /// True if the outcome was acknowledged, or follows from acknowledged ones.
    pub is_told: bool,
    /// True once it cannot be open any more.
    pub is_closed: bool,
    /// True if an abort was requested, or another instance may have begun, or it may have taken too long.
    pub may_abort: bool,
    /// Time from which it takes too long, in milliseconds since the simulation began.
    overdue_ms: i64,
    /// True if a commit of a group was acknowledged.
    pub has_offsets: bool,
    /// Logs with its records after a start, and the outcome that each log shows.
    shown: BTreeMap<LogKey, Option<TransactionEnd>>,
}

/// A committed offset: it is used once, so it identifies the commit.
#[derive(Debug, Clone, Copy)]
pub struct Commit {
    pub offset: u64,
    pub transaction: usize,
    pub is_acknowledged: bool,
    pub is_refused: bool,
}

/// All transactions.
#[derive(Debug, Clone, Default)]
pub struct Transactions {
    pub all: Vec<Transaction>,
    /// Commits by place, in the order in which they were sent.
    pub commits: BTreeMap<CommitKey, Vec<Commit>>,
    last_offset: u64,
    /// Requests for another instance that may still be executed, by transactional id.
    pub inits: BTreeMap<u8, u32>,
    /// Latest acknowledged epochs, by transactional id.
    epochs: BTreeMap<u8, i16>,
    /// Epochs up to which instances may have been replaced, by transactional id.
    suspects: BTreeMap<u8, i16>,
}

impl Transactions {
    pub fn begin(&mut self, id: u8, (producer, epoch): (i64, i16), overdue_ms: i64) -> usize {
        let is_closed = self.is_fenced(id, epoch);
        self.all.push(Transaction {
            id,
            producer,
            epoch,
            commits_sent: 0,
            end: None,
            is_told: false,
            is_closed,
            may_abort: is_closed || self.suspects.get(&id).is_some_and(|suspect| epoch <= *suspect),
            overdue_ms,
            has_offsets: false,
            shown: BTreeMap::new(),
        });
        self.all.len() - 1
    }

    /// Lets time pass: a transaction that takes too long may be aborted.
    pub fn turn(&mut self, now_ms: i64) {
        for transaction in &mut self.all {
            transaction.may_abort |= transaction.overdue_ms <= now_ms;
        }
    }

    /// True if a later instance was acknowledged.
    pub fn is_fenced(&self, id: u8, epoch: i16) -> bool {
        self.epochs.get(&id).is_some_and(|known| epoch < *known)
    }

    /// Registers a new commit of a transaction and returns its offset.
    pub fn send_commit(&mut self, number: usize, log: LogKey) -> u64 {
        self.last_offset += 1;
        let id = self.all.get(number).map_or(0, |it| it.id);
        self.commits.entry((id, log)).or_default().push(Commit {
            offset: self.last_offset,
            transaction: number,
            is_acknowledged: false,
            is_refused: false,
        });
        self.last_offset
    }

    pub fn on_commit_answer(&mut self, number: usize, log: LogKey, offset: u64, is_stored: bool) {
        let Some(transaction) = self.all.get_mut(number) else {
            return;
        };
        transaction.has_offsets |= is_stored;
        let place = self.commits.get_mut(&(transaction.id, log));
        if let Some(commit) = place.and_then(|place| place.iter_mut().find(|it| it.offset == offset)) {
            (commit.is_acknowledged, commit.is_refused) = (is_stored, !is_stored);
        }
    }

    /// Handles a request for another instance: it aborts the open transaction.
    pub fn on_init_sent(&mut self, id: u8) {
        *self.inits.entry(id).or_default() += 1;
        let known = self.epochs.get(&id).copied().unwrap_or(-1);
        self.suspects.insert(id, known);
        for transaction in self.all.iter_mut().filter(|it| it.id == id) {
            transaction.may_abort = true;
        }
    }

    /// Handles the answer to a request for another instance.
    pub fn on_init_answer(&mut self, id: u8, begun: Option<i16>) -> Result<(), Finding> {
        if let Some(count) = self.inits.get_mut(&id) {
            *count = count.saturating_sub(1);
        }
        let Some(epoch) = begun else { return Ok(()) };
        self.on_epoch(id, epoch)?;
        let earlier = |it: &&mut Transaction| it.id == id && it.epoch < epoch;
        for transaction in self.all.iter_mut().filter(earlier) {
            transaction.is_closed = true;
            if transaction.commits_sent == 0 {
                transaction.settle(TransactionEnd::Abort)?;
            }
        }
        Ok(())
    }

    /// Handles an epoch that a client was given.
    pub fn on_epoch(&mut self, id: u8, epoch: i16) -> Result<(), Finding> {
        let known = self.epochs.entry(id).or_insert(-1);
        if epoch <= *known {
            return Err(Finding(format!(
                "transactional id {id} was in epoch {known}, and an instance begins in {epoch}"
            )));
        }
        *known = epoch;
        if self.inits.get(&id).is_some_and(|count| *count > 0) {
            self.suspects.insert(id, epoch);
        }
        Ok(())
    }

    /// Drops, at the end of the program, transactions that its failure may lose.
    pub fn on_death(&mut self, death: Option<Death>) {
        self.inits.clear();
        for transaction in &mut self.all {
            transaction.shown.clear();
            if matches!(death, Some(Death::Power(_))) && !transaction.is_told {
                transaction.end = None;
            }
        }
    }

    /// Compares an outcome that a log shows with the possible ones. `was_closed`: it had ended before the
    /// read began.
    pub fn observe(
        &mut self,
        number: usize,
        log: LogKey,
        shown: Option<TransactionEnd>,
        was_closed: bool,
    ) -> Result<(), Finding> {
        let Some(transaction) = self.all.get_mut(number) else {
            return Ok(());
        };
        transaction.shown.insert(log, shown);
        match shown {
            Some(end) => transaction.learn(end).map_err(|why| {
                Finding(format!(
                    "transaction {number} in {log:?}: {}: {transaction:?}",
                    why.0
                ))
            }),
            None if was_closed => Err(Finding(format!(
                "transaction {number} has ended and is open in {log:?}: {transaction:?}"
            ))),
            None => Ok(()),
        }
    }

    /// Compares a committed offset with the possible ones. `floor` is the number of commits in the place when
    /// it was asked for that had to be there or be replaced; `is_quiet`: nothing is on its way.
    pub fn check_commit(
        &mut self,
        key: CommitKey,
        floor: usize,
        read: u64,
        is_quiet: bool,
    ) -> Result<(), Finding> {
        let place = self.commits.get(&key).cloned().unwrap_or_default();
        let at = place.iter().position(|commit| commit.offset == read);
        let seen = at.and_then(|at| place.get(at));
        let wrong = |why: &str| Finding(format!("the group of {key:?} is at {read}: {why}: {place:?}"));
        if read > 0 && seen.is_none_or(|commit| commit.is_refused) {
            return Err(wrong("not committed"));
        }
        let behind = at.map_or(0, |at| at + 1);
        if behind < floor {
            return Err(wrong(&format!(
                "{floor} commits were acknowledged with their transactions"
            )));
        }
        if let Some(commit) = seen
            && let Some(transaction) = self.all.get_mut(commit.transaction)
        {
            transaction
                .learn(TransactionEnd::Commit)
                .map_err(|why| wrong(&why.0))?;
        }
        for commit in place
            .iter()
            .skip(behind)
            .filter(|commit| is_quiet && commit.is_acknowledged)
        {
            let Some(transaction) = self.all.get_mut(commit.transaction) else {
                continue;
            };
            if transaction.end == Some(TransactionEnd::Commit) {
                return Err(wrong(&format!("{commit:?} counts with {transaction:?}")));
            }
            // A commit that was on its way has not arrived.
            transaction.commits_sent = 0;
        }
        Ok(())
    }

    /// Returns the number of commits in a place up to the last that must be there.
    pub fn floor(&self, key: CommitKey) -> usize {
        let place = self.commits.get(&key);
        let must_be = |commit: &Commit| {
            let transaction = self.all.get(commit.transaction);
            commit.is_acknowledged
                && transaction.is_some_and(|it| it.end == Some(TransactionEnd::Commit) && it.is_told)
        };
        let last = place.and_then(|place| place.iter().rposition(must_be));
        last.map_or(0, |last| last + 1)
    }

    /// Checks after a start that each transaction has the same outcome in all of its logs, and drops
    /// requests on their way.
    pub fn settle_after_start(&mut self) -> Result<(), Finding> {
        for (number, transaction) in self.all.iter_mut().enumerate() {
            let shown: BTreeSet<_> = transaction.shown.values().map(|end| end.map(name)).collect();
            let is_committed = transaction.end == Some(TransactionEnd::Commit);
            let is_open = transaction.shown.values().any(Option::is_none);
            if shown.len() > 1 || is_committed && is_open {
                return Err(Finding(format!(
                    "transaction {number} has ended in a part only: {transaction:?}"
                )));
            }
            if is_open && transaction.end.is_none() {
                transaction.commits_sent = 0;
            }
            transaction.shown.clear();
        }
        Ok(())
    }
}

impl Transaction {
    /// Records an outcome that was acknowledged.
    pub fn settle(&mut self, end: TransactionEnd) -> Result<(), Finding> {
        if self.end.is_some_and(|known| known != end) {
            return Err(Finding(format!("it is acknowledged as {}: {self:?}", name(end))));
        }
        (self.end, self.is_told, self.is_closed) = (Some(end), true, true);
        Ok(())
    }

    /// Records an outcome that was seen.
    pub fn learn(&mut self, end: TransactionEnd) -> Result<(), Finding> {
        let is_possible = match end {
            TransactionEnd::Commit => self.commits_sent > 0,
            TransactionEnd::Abort => self.may_abort,
        };
        match self.end {
            Some(known) if known == end => Ok(()),
            None if is_possible => {
                self.end = Some(end);
                Ok(())
            }
            Some(_) | None => Err(Finding(format!("it is seen as {}", name(end)))),
        }
    }
}

fn name(end: TransactionEnd) -> &'static str {
    match end {
        TransactionEnd::Commit => "committed",
        TransactionEnd::Abort => "aborted",
    }
}
