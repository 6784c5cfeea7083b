//! Model of the messages: the queues that each went to, and its state there.

mod check;

use std::collections::{BTreeMap, BTreeSet};

use super::outcomes::{Outcome, Transaction};
use super::patience::Times;
use super::{DEAD, DYING, QUEUE_COUNT, RANKED};
use crate::world::{Death, Finding};

/// A queue, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place(pub u8);

/// Milliseconds after which a settlement survives a kill.
const WRITTEN_MS: i64 = 100;
/// Milliseconds after which a settlement survives a loss of power.
const SYNCED_MS: i64 = 400;

/// Milliseconds after which the broker has noticed the end of a connection.
const HEARD_MS: i64 = 1_000;

/// A message in a queue: its number, and the queue that it was routed to.
pub type CopyId = (usize, u8);

/// One incarnation of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Made {
    pub queue: u8,
    /// Number of earlier incarnations of the queue.
    times: u32,
}

/// Origin of a message. Messages with equal stream and priority are delivered in order.
#[derive(Debug, Clone, Copy)]
pub struct Origin {
    pub stream: u64,
    pub priority: u8,
    pub times: Times,
}

#[derive(Debug, Clone)]
pub struct Copied {
    pub is_persistent: bool,
    pub(super) origin: Origin,
    /// Queues that it may have been moved to.
    pub(super) moved: BTreeSet<u8>,
    pub(super) times: Times,
    pub stored: Stored,
    pub settled: Settled,
    /// True if its settlement may be queued behind publishes of its client while the disk is full.
    may_wait: bool,
    /// Queue of its first delivery; later deliveries from there must be marked as redelivered.
    pub delivered_from: Option<u8>,
    delivered_ms: i64,
    /// Clients that hold it. More than one only until all clients have read their input.
    pub holders: Vec<u8>,
    /// Transaction that it was published in.
    pub transaction: Option<usize>,
}

/// Storage state, as far as the publisher knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    Unknown,
    Confirmed,
    Never,
}

/// Settlement state, as far as the consumer knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    No,
    /// Settled at that time; an end of the program soon after may undo it.
    At(i64),
    /// The connection or the program ended right after the settlement.
    Perhaps,
    /// A transaction settles it whose outcome is not known.
    Pending(usize),
    /// Settled durably.
    Gone,
}

/// All copies.
#[derive(Debug, Clone, Default)]
pub struct Copies {
    pub all: BTreeMap<CopyId, Copied>,
    messages: usize,
    /// True while the disk is full.
    pub is_full: bool,
    /// Copies that more than one client received.
    contested: Vec<CopyId>,
    /// Number of deletions of each queue.
    made: [u32; QUEUE_COUNT],
    /// Number of ended consumers of each queue, and the time of the last end.
    ends: [(u32, i64); QUEUE_COUNT],
    /// Time at which the disk was last full.
    full_ms: i64,
    /// True if the clock was set in this run.
    was_clock_set: bool,
    /// Time of the run; see [`Times`].
    pub clock_ms: i64,
    pub transactions: Vec<Transaction>,
}

impl Copied {
    /// Returns the queues that it may be in, given the queue `home` that it was routed to.
    pub(super) fn places(&self, home: u8) -> impl Iterator<Item = Place> {
        let dead = DYING.contains(&home).then_some(DEAD);
        let others = self.moved.iter().copied().filter(move |place| *place != home);
        std::iter::once(home).chain(dead).chain(others).map(Place)
    }

    /// True if it may wait at its exchange or may have expired.
    pub(super) fn may_be_elsewhere(&self, clock_ms: i64) -> bool {
        !self.times.is_out(clock_ms) || (self.times.may_expire(clock_ms) && self.holders.is_empty())
    }

    /// True if it is part of a transaction whose commit was not sent.
    fn is_to_come(&self, transactions: &[Transaction]) -> bool {
        let transaction = self.transaction.and_then(|number| transactions.get(number));
        transaction.is_some_and(|it| it.outcome == Outcome::Open)
    }

    fn doubt(&mut self, now_ms: i64) {
        if let Settled::At(at) = self.settled
            && now_ms - at < WRITTEN_MS
        {
            self.settled = Settled::Perhaps;
        }
    }
}

impl Copies {
    pub fn add(&mut self, homes: &[u8], is_persistent: bool, origin: Origin) -> usize {
        self.messages += 1;
        for home in homes {
            self.all.insert(
                (self.messages, *home),
                Copied {
                    is_persistent,
                    origin,
                    times: origin.times,
                    moved: BTreeSet::new(),
                    stored: Stored::Unknown,
                    settled: Settled::No,
                    may_wait: false,
                    delivered_from: None,
                    delivered_ms: 0,
                    holders: Vec::new(),
                    transaction: None,
                },
            );
        }
        self.messages
    }

    pub(super) fn of_message(&mut self, number: usize) -> impl Iterator<Item = &mut Copied> {
        self.all
            .range_mut((number, 0)..=(number, u8::MAX))
            .map(|(_, copy)| copy)
    }

    pub fn confirm(&mut self, number: usize) -> Result<(), Finding> {
        let clock_ms = self.clock_ms;
        for copy in self.of_message(number) {
            if copy.stored == Stored::Never {
                return Err(Finding(format!("message {number} was refused and is confirmed")));
            }
            copy.stored = Stored::Confirmed;
            copy.times.on_stored(clock_ms);
        }
        Ok(())
    }

    pub fn refuse(&mut self, number: usize) -> Result<(), Finding> {
        for copy in self.of_message(number) {
            if copy.stored == Stored::Confirmed {
                return Err(Finding(format!("message {number} is there and is refused")));
            }
            copy.stored = Stored::Never;
        }
        Ok(())
    }

    /// Returns the copy of a message that may be in a queue.
    pub fn in_queue(&self, number: usize, queue: u8) -> Option<CopyId> {
        let mut copies = self.all.range((number, 0)..=(number, u8::MAX));
        let is_here = |(id, copy): &(&CopyId, &Copied)| copy.places(id.1).any(|place| place.0 == queue);
        copies.find(is_here).map(|(id, _)| *id)
    }

    /// Records a delivery to a consumer and checks that it is allowed.
    pub fn deliver(
        &mut self,
        number: usize,
        queue: u8,
        client: u8,
        redelivered: bool,
        now_ms: i64,
    ) -> Result<CopyId, Finding> {
        let id = self.in_queue(number, queue).ok_or_else(|| {
            Finding(format!(
                "message {number} was delivered from queue {queue}, where nobody sent it"
            ))
        })?;
        self.learn_from_delivery(id, now_ms)?;
        let copy = self
            .all
            .get_mut(&id)
            .ok_or_else(|| Finding("no copy".to_owned()))?;
        if !redelivered {
            copy.times.check_delivery(self.clock_ms)?;
        }
        if copy.stored == Stored::Never {
            return Err(Finding(format!(
                "{id:?} was refused or is gone, and was delivered"
            )));
        }
        match copy.settled {
            Settled::No => {}
            Settled::Perhaps => copy.settled = Settled::No,
            Settled::At(_) | Settled::Pending(_) | Settled::Gone => {
                return Err(Finding(format!("{id:?} was settled, and was delivered")));
            }
        }
        if copy.delivered_from == Some(queue) && !redelivered {
            return Err(Finding(format!(
                "{id:?} was delivered before, and does not say so"
            )));
        }
        copy.stored = Stored::Confirmed;
        copy.holders.push(client);
        if copy.holders.len() > 1 {
            self.contested.push(id);
        }
        // Clients read in any order, so the second holder may read its delivery before the first one does. On
        // a full disk a message may be delivered before the hand-out mark is stored.
        if !redelivered && !self.is_full {
            copy.delivered_from = Some(queue);
            copy.delivered_ms = now_ms;
        }
        Ok(id)
    }

    /// Removes a holder: its channel ended, or it requeued or rejected the message.
    pub fn give_back(&mut self, id: CopyId, client: u8) {
        if let Some(copy) = self.all.get_mut(&id) {
            copy.holders.retain(|holder| *holder != client);
        }
    }

    /// Checks, after all clients but the paused ones have read their input, that no copy has two holders. A
    /// paused client may have lost its connection without having read that: its copies are checked later.
    pub fn check_holders(&mut self, is_stopping: bool, paused: &[u8]) -> Result<(), Finding> {
        for id in std::mem::take(&mut self.contested) {
            let holders = self.all.get(&id).map(|copy| &copy.holders);
            if holders.is_some_and(|holders| holders.iter().any(|holder| paused.contains(holder))) {
                self.contested.push(id);
                continue;
            }
            if let Some(holders) = holders.filter(|holders| holders.len() > 1 && !is_stopping) {
                return Err(Finding(format!("{id:?} is held by clients {holders:?} at once")));
            }
        }
        Ok(())
    }

    /// Returns the current incarnation of a queue.
    pub fn now(&self, queue: u8) -> Made {
        let times = self.made.get(usize::from(queue)).copied().unwrap_or_default();
        Made { queue, times }
    }

    /// True if the queue was not deleted since.
    pub fn is_now(&self, made: Made) -> bool {
        self.now(made.queue) == made
    }

    /// Returns the key within which messages of a queue keep their order. `None` if there is no order.
    pub fn stream(&self, number: usize, queue: u8) -> Option<(u64, u8)> {
        let origin = self.all.get(&(number, queue))?.origin;
        (origin.stream > 0).then_some((origin.stream, if queue == RANKED { origin.priority } else { 0 }))
    }

    /// Records the end of a consumer: its unsettled messages return to the queue.
    pub fn on_consumer_end(&mut self, queue: u8, now_ms: i64) {
        if let Some(ends) = self.ends.get_mut(usize::from(queue)) {
            *ends = (ends.0 + 1, now_ms);
        }
    }

    pub fn ends(&self, queue: u8) -> u32 {
        self.ends.get(usize::from(queue)).map_or(0, |(count, _)| *count)
    }

    /// Returns the number of ended consumers of a queue. `None` if the broker may not have noticed the last
    /// end.
    pub fn ends_before(&self, queue: u8, now_ms: i64) -> Option<u32> {
        let (count, at) = self.ends.get(usize::from(queue)).copied()?;
        (count == 0 || now_ms - at > HEARD_MS).then_some(count)
    }

    pub fn was_full_since(&self, ms: i64) -> bool {
        self.full_ms >= ms
    }

    /// Prepares a purge or deletion: any copy that may be in the queue may be removed. Copies in `held` stay.
    /// Returns those that a deletion removes for certain.
    pub fn endanger(&mut self, queue: u8, held: &BTreeSet<CopyId>) -> Vec<CopyId> {
        let mut certain = Vec::new();
        let transactions = &self.transactions;
        for (id, copy) in self.all.iter_mut().filter(|(id, _)| !held.contains(id)) {
            let is_here = copy.places(id.1).any(|place| place.0 == queue);
            let may_go = matches!(copy.settled, Settled::No | Settled::Pending(_));
            if is_here && may_go && copy.stored != Stored::Never && !copy.is_to_come(transactions) {
                copy.settled = Settled::Perhaps;
                if copy.stored == Stored::Confirmed && copy.places(id.1).eq([Place(queue)]) {
                    certain.push(*id);
                }
            }
        }
        certain
    }

    /// Begins a deletion: copies of the queue have no holders any more, except those in `held`.
    pub fn begin_deletion(&mut self, queue: u8, held: &BTreeSet<CopyId>) {
        if let Some(made) = self.made.get_mut(usize::from(queue)) {
            *made += 1;
        }
        for (id, copy) in &mut self.all {
            if copy.places(id.1).any(|place| place.0 == queue) && !held.contains(id) {
                copy.holders.clear();
            }
        }
    }

    /// Records that the copies in a deleted queue are gone.
    pub fn end_deletion(&mut self, certain: &[CopyId]) {
        for id in certain {
            if let Some(copy) = self.all.get_mut(id) {
                copy.settled = Settled::Gone;
            }
        }
    }

    /// Returns the minimum and maximum number of existing copies.
    pub fn bounds(&self) -> (u64, u64) {
        let (mut least, mut most) = (0, 0);
        for copy in self.all.values() {
            match (copy.stored, copy.settled) {
                (Stored::Never, _) | (_, Settled::At(_) | Settled::Gone) => {}
                _ if copy.is_to_come(&self.transactions) => {}
                _ if copy.may_be_elsewhere(self.clock_ms) => most += 1,
                (Stored::Confirmed, Settled::No) => {
                    least += 1;
                    most += 1;
                }
                (Stored::Unknown, _) | (_, Settled::Perhaps | Settled::Pending(_)) => most += 1,
            }
        }
        (least, most)
    }

    pub fn settle(&mut self, id: CopyId, now_ms: i64, may_wait: bool) {
        if let Some(copy) = self.all.get_mut(&id) {
            copy.holders.clear();
            copy.settled = Settled::At(now_ms);
            copy.may_wait = may_wait;
        }
    }

    /// Records the end of a connection: settlements sent right before it may be lost.
    pub fn doubt(&mut self, client_settled: &[CopyId], now_ms: i64) {
        for id in client_settled {
            if let Some(copy) = self.all.get_mut(id) {
                copy.doubt(now_ms);
            }
        }
    }

    /// Delays settlements while space is short. The broker does not read from blocked connections, so their
    /// settlements since `from_ms` may wait; `all` of them do if there is no space for settlements either.
    pub fn wait_since(&mut self, from_ms: i64, now_ms: i64, all: bool) {
        self.full_ms = now_ms;
        for copy in self.all.values_mut() {
            if (all || copy.may_wait) && matches!(copy.settled, Settled::At(at) if at + WRITTEN_MS >= from_ms)
            {
                copy.settled = Settled::At(now_ms);
            }
        }
    }

    /// Records the start of a shutdown: recent settlements may be lost.
    pub fn doubt_all(&mut self, now_ms: i64) {
        self.all.values_mut().for_each(|copy| copy.doubt(now_ms));
    }

    /// Records that the clock was set.
    pub fn on_clock_set(&mut self) {
        self.was_clock_set = true;
        self.all.values_mut().for_each(|copy| copy.times.on_clock_set());
    }

    /// Records the end of the program.
    pub fn on_end(&mut self) {
        for copy in self.all.values_mut() {
            copy.times.on_end(self.clock_ms, self.was_clock_set);
        }
        self.was_clock_set = false;
    }

    /// Forgets all copies. Their numbers are not reused.
    pub fn forget_all(&mut self) {
        *self = Self {
            messages: self.messages,
            ..Self::default()
        };
    }

    /// Records that all queues are new: no earlier message may be in them.
    pub fn replace_all(&mut self) {
        for copy in self.all.values_mut() {
            (copy.stored, copy.settled) = (Stored::Never, Settled::Gone);
            copy.holders.clear();
            copy.transaction = None;
        }
        self.transactions.clear();
    }

    /// Applies the way in which the program ended to the state of each copy.
    pub fn on_death(&mut self, death: Death, now_ms: i64) {
        let safe_ms = match death {
            Death::Power(_) | Death::Failed => SYNCED_MS,
            Death::Killed | Death::Stopped => WRITTEN_MS,
        };
        for copy in self.all.values_mut() {
            if let Settled::At(at) = copy.settled {
                copy.settled = if now_ms - at > safe_ms {
                    Settled::Gone
                } else {
                    Settled::Perhaps
                };
            }
            // The hand-out mark is written before the delivery, and synced with later writes.
            if matches!(death, Death::Power(_) | Death::Failed) && now_ms - copy.delivered_ms <= SYNCED_MS {
                copy.delivered_from = None;
            }
            if !copy.is_persistent {
                copy.stored = Stored::Never;
            }
        }
    }
}
