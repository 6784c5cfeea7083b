//! Messages that wait for their time, and messages whose time is over.

use super::copies::{Copies, Settled, Stored};
use super::{FAN, FAN_QUEUES, LATE};
use crate::server::Server;
use crate::world::{Broken, Finding, World};

/// A delivery is read this long after it was made at the latest, in milliseconds: clients pause, and disks
/// are full.
const READ_MS: i64 = 5_000;
/// What is due is in its queue after this.
const RELEASED_MS: i64 = 2_000;
/// The longest delay that is waited for in the end.
const DELAY_MS_MAX: i64 = 70_000;

/// What a message says about time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Patience {
    /// It expires so many milliseconds after it came, where it may.
    pub ttl_ms: Option<u32>,
    /// It waits so many milliseconds, where it may.
    pub delay_ms: u32,
}

impl Patience {
    pub fn draw(ttl: u8, delay: u8) -> Self {
        Self {
            ttl_ms: (ttl == 0).then_some(u32::from(delay) * 20),
            delay_ms: match delay {
                0..100 => u32::from(delay),
                100..200 => u32::from(delay) * 20,
                _ => u32::from(delay) * 250,
            },
        }
    }

    /// What of it is heeded on the way to a target.
    pub(super) fn at(self, target: u8) -> Self {
        let may_expire = target == FAN || FAN_QUEUES.contains(&target);
        Self {
            ttl_ms: self.ttl_ms.filter(|_| may_expire),
            delay_ms: if target == LATE { self.delay_ms } else { 0 },
        }
    }
}

/// Times of a message, by the time that passed in the run: the clock's at the start, and what has passed
/// since. A clock that is set changes nothing for messages of the run; those of earlier runs follow it within
/// a second, and nothing is expected of them any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "facts that do not exclude each other"
)]
pub struct Times {
    ttl_ms: Option<i64>,
    delay_ms: i64,
    sent_ms: i64,
    /// The broker had it by then.
    stored_ms: Option<i64>,
    /// By the clock of an earlier start it could be out of its exchange, or gone.
    was_due: bool,
    was_over: bool,
    is_of_earlier_run: bool,
    /// The clock was set: it is not known by which time it goes.
    is_vague: bool,
}

impl Times {
    pub fn new(patience: Patience, now_ms: i64) -> Self {
        Self {
            ttl_ms: patience.ttl_ms.map(i64::from),
            delay_ms: patience.delay_ms.into(),
            sent_ms: now_ms,
            stored_ms: None,
            was_due: false,
            was_over: false,
            is_of_earlier_run: false,
            is_vague: false,
        }
    }

    /// The broker has it, or will never have it.
    pub fn on_stored(&mut self, now_ms: i64) {
        self.stored_ms.get_or_insert(now_ms);
    }

    /// The program ended; the clock of the next start may be another.
    pub fn on_end(&mut self, now_ms: i64, was_set: bool) {
        self.on_stored(now_ms);
        self.is_of_earlier_run = true;
        self.is_vague |= was_set;
        self.was_due = self.may_be_out(now_ms);
        self.was_over = self.may_expire(now_ms);
    }

    /// The clock is set.
    pub fn on_clock_set(&mut self) {
        self.is_vague |= self.is_of_earlier_run;
    }

    /// It may be in another queue, where its time begins anew.
    pub fn on_move(&mut self) {
        if self.ttl_ms.take().is_some() {
            self.was_over = true;
        }
    }

    /// It can be out of its exchange.
    pub fn may_be_out(&self, now_ms: i64) -> bool {
        self.delay_ms == 0 || self.is_vague || self.was_due || self.sent_ms + self.delay_ms <= now_ms
    }

    /// It has to be out of its exchange.
    pub fn is_out(&self, now_ms: i64) -> bool {
        self.delay_ms == 0
            || !self.is_vague
                && self
                    .stored_ms
                    .is_some_and(|stored| stored + self.delay_ms + RELEASED_MS <= now_ms)
    }

    /// It can be gone, as its time is over.
    pub fn may_expire(&self, now_ms: i64) -> bool {
        self.was_over
            || self
                .ttl_ms
                .is_some_and(|ttl| self.is_vague || self.sent_ms + ttl <= now_ms)
    }

    /// Whether it may be delivered the first time.
    pub fn check_delivery(&self, now_ms: i64) -> Result<(), Finding> {
        if !self.may_be_out(now_ms) {
            return Err(Finding(format!(
                "at {now_ms} it was delivered before its time: {self:?}"
            )));
        }
        match self.ttl_ms.zip(self.stored_ms) {
            Some((ttl, stored)) if !self.is_vague && stored + ttl + READ_MS < now_ms => Err(Finding(
                format!("at {now_ms} it was delivered after its time: {self:?}"),
            )),
            _ => Ok(()),
        }
    }
}

impl Copies {
    /// For how long messages are known to wait at most.
    fn waits_ms(&self) -> i64 {
        let waiting = self
            .all
            .values()
            .filter(|copy| copy.stored != Stored::Never && copy.settled == Settled::No);
        let until = waiting
            .filter(|copy| copy.times.delay_ms > 0)
            .filter_map(|copy| Some(copy.times.stored_ms? + copy.times.delay_ms + RELEASED_MS));
        until.max().unwrap_or(0) - self.clock_ms
    }
}

impl World {
    /// Waits until everything that is delayed has to be out.
    pub async fn await_delayed(&mut self, server: &mut Server) -> Result<(), Broken> {
        let ms = self.amqp.copies.waits_ms().clamp(0, DELAY_MS_MAX);
        self.rest(server, u64::try_from(ms).unwrap_or(0)).await
    }
}
