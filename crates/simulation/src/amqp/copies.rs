//! Messages, the queues that each went to, and what became of it there.

use std::collections::{BTreeMap, BTreeSet};

use super::patience::Times;
use super::{DEAD, DYING, QUEUE_COUNT, RANKED};
use crate::world::{Death, Finding};

/// A queue, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place(pub u8);

/// What is stored by one kill, and by one loss of power, of what was settled.
const WRITTEN_MS: i64 = 100;
const SYNCED_MS: i64 = 400;

/// The broker has heard of the end of a connection after this.
const HEARD_MS: i64 = 1_000;

/// A message in a queue: its number, and the queue that it came to first.
pub type CopyId = (usize, u8);

/// A queue that was made once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Made {
    pub queue: u8,
    /// How often a queue of this name had been made before.
    times: u32,
}

/// Messages of one publisher and one priority come in order.
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
    /// Where it may have been moved to.
    pub(super) moved: BTreeSet<u8>,
    pub(super) times: Times,
    pub stored: Stored,
    pub settled: Settled,
    /// Its settlement may wait behind what its client published, for as long as the disk is full.
    may_wait: bool,
    /// The queue from which a client has got it as a first delivery: from there it comes back as redelivered.
    pub delivered_from: Option<u8>,
    delivered_ms: i64,
    /// Who holds it now; more than one only until all have heard what came.
    pub holders: Vec<u8>,
}

/// Whether it is stored, as its publisher knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    Unknown,
    Confirmed,
    Never,
}

/// Whether it is done with, as its consumer knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    No,
    /// At that time; what comes soon after may undo it.
    At(i64),
    /// The connection or the program ended right behind it.
    Perhaps,
    /// For good.
    Gone,
}

/// All copies.
#[derive(Debug, Default)]
pub struct Copies {
    pub all: BTreeMap<CopyId, Copied>,
    messages: usize,
    /// The disk is full.
    pub is_full: bool,
    /// What more than one client got.
    contested: Vec<CopyId>,
    /// How often each queue was deleted.
    made: [u32; QUEUE_COUNT],
    /// Consumers of each queue that ended, and when the last did.
    ends: [(u32, i64); QUEUE_COUNT],
    /// When the disk was last full.
    full_ms: i64,
    /// The clock was set in this run.
    was_clock_set: bool,
    /// The time of the run: see [`Times`].
    pub clock_ms: i64,
}

impl Copied {
    /// Where it can be, which came to `home` first.
    pub(super) fn places(&self, home: u8) -> impl Iterator<Item = Place> {
        let dead = DYING.contains(&home).then_some(DEAD);
        let others = self.moved.iter().copied().filter(move |place| *place != home);
        std::iter::once(home).chain(dead).chain(others).map(Place)
    }

    /// It waits at its exchange, or its time is over.
    fn may_be_elsewhere(&self, clock_ms: i64) -> bool {
        !self.times.is_out(clock_ms) || (self.times.may_expire(clock_ms) && self.holders.is_empty())
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
                },
            );
        }
        self.messages
    }

    fn of_message(&mut self, number: usize) -> impl Iterator<Item = &mut Copied> {
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

    /// The copy that lies in a queue.
    pub fn in_queue(&self, number: usize, queue: u8) -> Option<CopyId> {
        let mut copies = self.all.range((number, 0)..=(number, u8::MAX));
        let is_here = |(id, copy): &(&CopyId, &Copied)| copy.places(id.1).any(|place| place.0 == queue);
        copies.find(is_here).map(|(id, _)| *id)
    }

    /// A consumer got it.
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
            Settled::At(_) | Settled::Gone => {
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
        // Clients read in any order: one that gets it again may read that before the one that had it first.
        // On a full disk it may go out before that is stored.
        if !redelivered && !self.is_full {
            copy.delivered_from = Some(queue);
            copy.delivered_ms = now_ms;
        }
        Ok(id)
    }

    /// Its holder's channel is gone, or gave it back.
    pub fn give_back(&mut self, id: CopyId, client: u8) {
        if let Some(copy) = self.all.get_mut(&id) {
            copy.holders.retain(|holder| *holder != client);
        }
    }

    /// All clients have heard what came: nothing is held by two.
    pub fn check_holders(&mut self, is_stopping: bool) -> Result<(), Finding> {
        for id in std::mem::take(&mut self.contested) {
            let holders = self.all.get(&id).map(|copy| &copy.holders);
            if let Some(holders) = holders.filter(|holders| holders.len() > 1 && !is_stopping) {
                return Err(Finding(format!("{id:?} is held by clients {holders:?} at once")));
            }
        }
        Ok(())
    }

    /// The queue as it is now.
    pub fn now(&self, queue: u8) -> Made {
        let times = self.made.get(usize::from(queue)).copied().unwrap_or_default();
        Made { queue, times }
    }

    /// Whether the queue was not deleted since.
    pub fn is_now(&self, made: Made) -> bool {
        self.now(made.queue) == made
    }

    /// What keeps its order in a queue to which it was published.
    pub fn stream(&self, number: usize, queue: u8) -> Option<(u64, u8)> {
        let origin = self.all.get(&(number, queue))?.origin;
        (origin.stream > 0).then_some((origin.stream, if queue == RANKED { origin.priority } else { 0 }))
    }

    /// A consumer ended: what waited for it comes back to its queue.
    pub fn on_consumer_end(&mut self, queue: u8, now_ms: i64) {
        if let Some(ends) = self.ends.get_mut(usize::from(queue)) {
            *ends = (ends.0 + 1, now_ms);
        }
    }

    pub fn ends(&self, queue: u8) -> u32 {
        self.ends.get(usize::from(queue)).map_or(0, |(count, _)| *count)
    }

    /// How many consumers of a queue have ended, if the broker knows of all of them.
    pub fn ends_before(&self, queue: u8, now_ms: i64) -> Option<u32> {
        let (count, at) = self.ends.get(usize::from(queue)).copied()?;
        (count == 0 || now_ms - at > HEARD_MS).then_some(count)
    }

    pub fn was_full_since(&self, ms: i64) -> bool {
        self.full_ms >= ms
    }

    /// A queue is to be purged or deleted: what may be in it may go. `held` is held by consumers of other
    /// queues, or is not to go.
    pub fn endanger(&mut self, queue: u8, held: &BTreeSet<CopyId>) -> Vec<CopyId> {
        let mut certain = Vec::new();
        for (id, copy) in self.all.iter_mut().filter(|(id, _)| !held.contains(id)) {
            let is_here = copy.places(id.1).any(|place| place.0 == queue);
            if is_here && copy.settled == Settled::No && copy.stored != Stored::Never {
                copy.settled = Settled::Perhaps;
                if copy.stored == Stored::Confirmed && copy.places(id.1).eq([Place(queue)]) {
                    certain.push(*id);
                }
            }
        }
        certain
    }

    /// A queue is being deleted: nobody holds what was in it.
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

    /// What was in a queue that is deleted is gone for good.
    pub fn end_deletion(&mut self, certain: &[CopyId]) {
        for id in certain {
            if let Some(copy) = self.all.get_mut(id) {
                copy.settled = Settled::Gone;
            }
        }
    }

    /// At least, and at most, as many copies there are.
    pub fn bounds(&self) -> (u64, u64) {
        let (mut least, mut most) = (0, 0);
        for copy in self.all.values() {
            match (copy.stored, copy.settled) {
                (Stored::Never, _) | (_, Settled::At(_) | Settled::Gone) => {}
                _ if copy.may_be_elsewhere(self.clock_ms) => most += 1,
                (Stored::Confirmed, Settled::No) => {
                    least += 1;
                    most += 1;
                }
                (Stored::Unknown, _) | (_, Settled::Perhaps) => most += 1,
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

    /// The end of a connection: what was settled right before may not have been heard.
    pub fn doubt(&mut self, client_settled: &[CopyId], now_ms: i64) {
        for id in client_settled {
            if let Some(copy) = self.all.get_mut(id) {
                copy.doubt(now_ms);
            }
        }
    }

    /// While space is short, nothing that blocked connections send is heard: what was settled since then may
    /// wait there. Where there is no space for settlements either, all of them wait.
    pub fn wait_since(&mut self, from_ms: i64, now_ms: i64, all: bool) {
        self.full_ms = now_ms;
        for copy in self.all.values_mut() {
            if (all || copy.may_wait) && matches!(copy.settled, Settled::At(at) if at + WRITTEN_MS >= from_ms)
            {
                copy.settled = Settled::At(now_ms);
            }
        }
    }

    /// The program is asked to stop, and hears nothing more.
    pub fn doubt_all(&mut self, now_ms: i64) {
        self.all.values_mut().for_each(|copy| copy.doubt(now_ms));
    }

    /// The clock is set.
    pub fn on_clock_set(&mut self) {
        self.was_clock_set = true;
        self.all.values_mut().for_each(|copy| copy.times.on_clock_set());
    }

    /// The program ended, by the clock that it had.
    pub fn on_end(&mut self) {
        for copy in self.all.values_mut() {
            copy.times.on_end(self.clock_ms, self.was_clock_set);
        }
        self.was_clock_set = false;
    }

    /// All copies are gone, and none of them comes again.
    pub fn forget_all(&mut self) {
        *self = Self {
            messages: self.messages,
            ..Self::default()
        };
    }

    /// All queues are new: nothing of before may be in them.
    pub fn replace_all(&mut self) {
        for copy in self.all.values_mut() {
            (copy.stored, copy.settled) = (Stored::Never, Settled::Gone);
            copy.holders.clear();
        }
    }

    /// How the program ended, and when.
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
            // A mark is written before, and synced with what comes next.
            if matches!(death, Death::Power(_) | Death::Failed) && now_ms - copy.delivered_ms <= SYNCED_MS {
                copy.delivered_from = None;
            }
            if !copy.is_persistent {
                copy.stored = Stored::Never;
            }
        }
    }

    /// Compares all copies with where they were found, when nothing is going on.
    pub fn check(&mut self, found: &BTreeMap<(usize, Place), u32>) -> Result<(), Finding> {
        for (number, place) in found.keys() {
            let known = self.in_queue(*number, place.0);
            if known.is_none() {
                return Err(Finding(format!(
                    "message {number} is in queue {}, where nobody sent it",
                    place.0
                )));
            }
        }
        let clock_ms = self.clock_ms;
        for (id, copy) in &mut self.all {
            let times: u32 = copy
                .places(id.1)
                .filter_map(|place| found.get(&(id.0, place)))
                .sum();
            let is_good = match (copy.stored, copy.settled, times) {
                (_, _, 2..) => false,
                (_, _, 1) if !copy.times.may_be_out(clock_ms) => false,
                (Stored::Confirmed, Settled::No, 0) if copy.may_be_elsewhere(clock_ms) => true,
                (Stored::Never, _, times) | (_, Settled::Gone | Settled::At(_), times) => times == 0,
                (Stored::Confirmed, Settled::No, times) => times == 1,
                (Stored::Unknown, _, _) | (_, Settled::Perhaps, _) => true,
            };
            if !is_good {
                return Err(Finding(format!("{id:?} is there {times} times: {copy:?}")));
            }
        }
        Ok(())
    }

    /// After a start, what was not known is.
    pub fn resolve(&mut self, found: &BTreeMap<(usize, Place), u32>) {
        let clock_ms = self.clock_ms;
        for (id, copy) in &mut self.all {
            let is_there = copy.places(id.1).any(|place| found.contains_key(&(id.0, place)));
            let may_expire = copy.times.may_expire(clock_ms);
            match (copy.stored, is_there) {
                // It may wait at its exchange.
                (Stored::Unknown, false) if !copy.times.is_out(clock_ms) => {}
                (Stored::Unknown, true) => copy.stored = Stored::Confirmed,
                (Stored::Unknown, false) => copy.stored = Stored::Never,
                (Stored::Confirmed | Stored::Never, _) => {}
            }
            match (copy.settled, is_there) {
                (Settled::No, false) if may_expire => copy.settled = Settled::Gone,
                (Settled::Perhaps, true) => copy.settled = Settled::No,
                (Settled::Perhaps, false) => copy.settled = Settled::Gone,
                (Settled::No | Settled::At(_) | Settled::Gone, _) => {}
            }
        }
    }
}
