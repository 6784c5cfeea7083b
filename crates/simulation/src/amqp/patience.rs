//! Delayed messages and messages that expire.

use super::copies::{Copies, Settled, Stored};
use super::{FAN, FAN_QUEUES, LATE};
use crate::server::Server;
use crate::world::{Broken, Finding, World};

/// Maximum milliseconds between a delivery and its reading: clients pause, and disks are full.
const READ_MS: i64 = 5_000;
/// Milliseconds after which a due message is in its queue.
const RELEASED_MS: i64 = 2_000;
/// Longest delay that the end of a run waits for, in milliseconds.
const DELAY_MS_MAX: i64 = 70_000;

/// Time properties of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Patience {
    /// Time to live in milliseconds, for targets where messages may expire.
    pub ttl_ms: Option<u32>,
    /// Delay in milliseconds, for the target that delays.
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

    /// Returns the properties that apply at a target.
    pub(super) fn at(self, target: u8) -> Self {
        let may_expire = target == FAN || FAN_QUEUES.contains(&target);
        Self {
            ttl_ms: self.ttl_ms.filter(|_| may_expire),
            delay_ms: if target == LATE { self.delay_ms } else { 0 },
        }
    }
}

/// Times of a message in the time of the run: the clock at the start, and the time that has passed since.
/// Setting the clock does not affect messages of this run. Messages of earlier runs follow the clock within a
/// second, so their times are not checked any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "facts that do not exclude each other"
)]
pub struct Times {
    ttl_ms: Option<i64>,
    delay_ms: i64,
    sent_ms: i64,
    /// Time by which the broker had it.
    stored_ms: Option<i64>,
    /// True if it may have left its exchange by the clock of an earlier start.
    was_due: bool,
    /// True if it may have expired, by the clock of an earlier start or after a move.
    was_over: bool,
    is_of_earlier_run: bool,
    /// True if the clock was set, so that the clock that applies is unknown.
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

    /// Records that the broker has it, or will never have it.
    pub fn on_stored(&mut self, now_ms: i64) {
        self.stored_ms.get_or_insert(now_ms);
    }

    /// Records the end of the program; the clock of the next start may differ.
    pub fn on_end(&mut self, now_ms: i64, was_set: bool) {
        self.on_stored(now_ms);
        self.is_of_earlier_run = true;
        self.is_vague |= was_set;
        self.was_due = self.may_be_out(now_ms);
        self.was_over = self.may_expire(now_ms);
    }

    /// Records that the clock was set.
    pub fn on_clock_set(&mut self) {
        self.is_vague |= self.is_of_earlier_run;
    }

    /// Records a move: it may be in another queue, where its time to live starts again.
    pub fn on_move(&mut self) {
        if self.ttl_ms.take().is_some() {
            self.was_over = true;
        }
    }

    /// True if it may have left its exchange.
    pub fn may_be_out(&self, now_ms: i64) -> bool {
        self.delay_ms == 0 || self.is_vague || self.was_due || self.sent_ms + self.delay_ms <= now_ms
    }

    /// True if it must have left its exchange.
    pub fn is_out(&self, now_ms: i64) -> bool {
        self.delay_ms == 0
            || !self.is_vague
                && self
                    .stored_ms
                    .is_some_and(|stored| stored + self.delay_ms + RELEASED_MS <= now_ms)
    }

    /// True if it may have expired.
    pub fn may_expire(&self, now_ms: i64) -> bool {
        self.was_over
            || self
                .ttl_ms
                .is_some_and(|ttl| self.is_vague || self.sent_ms + ttl <= now_ms)
    }

    /// Checks that a first delivery is neither too early nor too late.
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
    /// Returns the longest remaining delay of a known message.
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
    /// Waits until all delayed messages must have left their exchange.
    pub async fn await_delayed(&mut self, server: &mut Server) -> Result<(), Broken> {
        let ms = self.amqp.copies.waits_ms().clamp(0, DELAY_MS_MAX);
        self.rest(server, u64::try_from(ms).unwrap_or(0)).await
    }
}
