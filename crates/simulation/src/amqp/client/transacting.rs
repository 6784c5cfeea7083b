//! A client whose channel is transactional: messages and settlements wait for its commit.

use std::collections::{BTreeMap, VecDeque};

use stafett_amqp_wire::methods::{channel, tx};

use super::super::copies::{Copies, CopyId};
use super::{Client, Held};
use crate::steps::Settling;
use crate::world::Finding;

/// Numbers of the transactional clients.
pub(in crate::amqp) const TRANSACTIONAL: std::ops::Range<u8> = 5..7;
/// Bytes from which a transaction may be too large for an append.
const LARGE_BYTES: usize = 15_000;

/// Transactions of a channel.
#[derive(Debug, Clone, Default)]
pub(super) struct Transacting {
    open: Option<usize>,
    /// Commits that are not answered, in order.
    sent: VecDeque<usize>,
    /// Deliveries that the open transaction settles, by tag.
    settled: BTreeMap<u64, (Held, Settling)>,
    /// Deliveries of each sent commit, which are in flight until it is answered.
    completing: VecDeque<Vec<Held>>,
}

impl Client {
    pub(in crate::amqp) fn is_transactional(&self) -> bool {
        TRANSACTIONAL.contains(&self.number)
    }

    /// Returns the open transaction, which begins if there is none.
    pub(in crate::amqp) fn transaction(&mut self, copies: &mut Copies) -> usize {
        let number = self.number;
        *self.transacting.open.get_or_insert_with(|| copies.begin(number))
    }

    pub(super) fn is_committing(&self) -> bool {
        !self.transacting.sent.is_empty()
    }

    /// Returns the messages in flight of transactions.
    pub(super) fn held_by_transactions(&self) -> impl Iterator<Item = &Held> {
        let open = self.transacting.settled.values().map(|(held, _)| held);
        open.chain(self.transacting.completing.iter().flatten())
    }

    pub(super) fn settle_in_transaction(&mut self, copies: &mut Copies, tag: u64, held: Held, how: Settling) {
        self.transaction(copies);
        self.transacting.settled.insert(tag, (held, how));
    }

    /// Commits. Without an open transaction, an empty one.
    pub(in crate::amqp) fn commit(&mut self, copies: &mut Copies) -> Result<(), Finding> {
        if self.is_closing || !self.is_connected() {
            return Ok(());
        }
        let number = self.transaction(copies);
        self.transacting.open = None;
        let mut completing = Vec::new();
        for (held, how) in std::mem::take(&mut self.transacting.settled).into_values() {
            if !copies.is_now(held.from) {
                continue;
            }
            let dies = super::super::DYING.contains(&held.from.queue);
            match how {
                Settling::Requeue => copies.give_back(held.id, self.number),
                Settling::Reject if dies => copies.give_back(held.id, self.number),
                Settling::Ack | Settling::AckAll | Settling::Reject => completing.push(held),
            }
        }
        let completed: Vec<CopyId> = completing.iter().map(|held| held.id).collect();
        self.transacting.completing.push_back(completing);
        self.transacting.sent.push_back(number);
        self.send(tx::Commit {});
        copies.on_commit_sent(number, completed)
    }

    /// Rolls back: it holds the settled messages again.
    pub(in crate::amqp) fn roll_back(&mut self, copies: &mut Copies) -> Result<(), Finding> {
        if self.is_closing || !self.is_connected() {
            return Ok(());
        }
        self.send(tx::Rollback {});
        for (tag, (held, _)) in std::mem::take(&mut self.transacting.settled) {
            self.held.insert(tag, held);
        }
        match self.transacting.open.take() {
            Some(number) => copies.on_rolled_back(number),
            None => Ok(()),
        }
    }

    /// Handles `tx.commit-ok`.
    pub(super) fn on_committed(
        &mut self,
        copies: &mut Copies,
        now_ms: i64,
        notes: &mut Vec<String>,
    ) -> Result<(), Finding> {
        let number = self.transacting.sent.pop_front();
        let number = number.ok_or_else(|| Finding("a commit that nobody sent is answered".to_owned()))?;
        self.transacting.completing.pop_front();
        notes.push(format!(
            "transaction {number} of client {} is committed",
            self.number
        ));
        copies.on_committed(number, Some(now_ms))
    }

    /// Handles the end of a channel whose commit was refused: nothing of it takes effect, nor of later ones.
    pub(super) fn on_commit_refused(
        &mut self,
        close: &channel::Close,
        copies: &mut Copies,
        may_refuse: bool,
    ) -> Result<(), Finding> {
        let bytes = |number: &usize| copies.transactions.get(*number).map_or(0, |it| it.bytes);
        let is_large = self.transacting.sent.front().map_or(0, bytes) > LARGE_BYTES;
        let is_refusal = close.reply_code == 406 && close.reply_text.contains("is rolled back");
        if !self.is_committing() || !is_refusal || !(may_refuse || is_large) {
            return Err(Finding(format!("the channel was closed: {close:?}")));
        }
        for number in std::mem::take(&mut self.transacting.sent) {
            copies.on_rolled_back(number)?;
            copies.on_commit_lost(number);
        }
        Ok(())
    }

    /// Ends the open transaction, and gives up commits on their way.
    pub(super) fn end_transactions(&mut self, copies: &mut Copies) {
        for (held, _) in std::mem::take(&mut self.transacting.settled).into_values() {
            if copies.is_now(held.from) {
                copies.give_back(held.id, self.number);
            }
        }
        self.transacting.completing.clear();
        for number in &self.transacting.sent {
            copies.on_commit_lost(*number);
        }
        if let Some(number) = self.transacting.open.take() {
            // It is open, so nothing of it was seen.
            drop(copies.on_rolled_back(number));
        }
    }
}
