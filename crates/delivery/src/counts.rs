//! Counters of one dispatcher, and their sampling.

use std::sync::Arc;

use stafett_counters::{Measured, STEP_MS, Sampler, Series, Timeline, Tracked};
use stafett_model::DeathReason;
use stafett_queue::DeliveryInfo;

use super::context::DeliveryContext;
use super::dispatcher::Dispatcher;

/// Number of counters of a dispatcher.
pub(super) const COUNTERS: usize = 16;

const PUBLISHED: usize = 0;
const PUBLISHED_BYTES: usize = 1;
const DELIVERED: usize = 2;
const DELIVERED_UNSETTLED: usize = 3;
const GOT: usize = 4;
const GOT_UNSETTLED: usize = 5;
const REDELIVERED: usize = 6;
const COMPLETED: usize = 7;
const REQUEUED: usize = 8;
const DISCARDED: usize = 9;
const EXPIRED: usize = 10;
const OVERFLOWED: usize = 11;
const DEAD_LETTERED: usize = 12;
const REFUSED: usize = 13;
const MOVED_IN: usize = 14;
const MOVED_OUT: usize = 15;

/// Messages of a queue since the start, by outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MessageCounts {
    /// Messages that were added, however they came.
    pub published: u64,
    pub published_bytes: u64,
    /// Deliveries to consumers that settle.
    pub delivered: u64,
    /// Deliveries to consumers that do not settle.
    pub delivered_unsettled: u64,
    /// Messages given to requests that settle later.
    pub got: u64,
    /// Messages given to requests, and settled by that.
    pub got_unsettled: u64,
    /// Messages of these that had been handed out before.
    pub redelivered: u64,
    pub completed: u64,
    pub requeued: u64,
    /// Messages that consumers refused.
    pub discarded: u64,
    pub expired: u64,
    pub overflowed: u64,
    /// Messages stored where dead letters go.
    pub dead_lettered: u64,
    /// Messages refused, as the queue was full.
    pub refused: u64,
    pub moved_in: u64,
    pub moved_out: u64,
}

/// Series of a dispatcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueSeries {
    Ready,
    InFlight,
    Published,
    Delivered,
    DeliveredUnsettled,
    Got,
    Completed,
    Redelivered,
}

impl QueueSeries {
    /// Returns the place of the series.
    pub const fn at(self) -> usize {
        self as usize
    }
}

impl Measured for Dispatcher {
    const SERIES: &'static [Series] = &[
        Series::level("ready", 0),
        Series::level("in_flight", 1),
        Series::counts("published", &[PUBLISHED]),
        Series::counts("delivered", &[DELIVERED]),
        Series::counts("delivered_unsettled", &[DELIVERED_UNSETTLED]),
        Series::counts("got", &[GOT, GOT_UNSETTLED]),
        Series::counts("completed", &[COMPLETED]),
        Series::counts("redelivered", &[REDELIVERED]).latest_alone(),
    ];

    fn tracked(&self) -> Option<&Tracked> {
        self.counters.tracked()
    }

    fn word(&self, at: usize) -> u64 {
        self.counters.get(at)
    }

    fn level(&self, at: usize) -> u64 {
        let counts = self.counts();
        match at {
            0 => counts.ready,
            _ => counts.in_flight as u64,
        }
    }

    fn is_gone(&self) -> bool {
        self.is_ended()
    }
}

/// Messages of one turn, by outcome.
#[derive(Debug, Default)]
pub(super) struct Tally {
    delivered: u64,
    delivered_unsettled: u64,
    got: u64,
    got_unsettled: u64,
    redelivered: u64,
    expired: u64,
    overflowed: u64,
}

impl Tally {
    #[inline]
    pub(super) fn on_delivery(&mut self, settles: bool, is_redelivered: bool) {
        if settles {
            self.delivered += 1;
        } else {
            self.delivered_unsettled += 1;
        }
        self.redelivered += u64::from(is_redelivered);
    }

    pub(super) fn on_get(&mut self, settles: bool, is_redelivered: bool) {
        if settles {
            self.got += 1;
        } else {
            self.got_unsettled += 1;
        }
        self.redelivered += u64::from(is_redelivered);
    }

    pub(super) fn on_death(&mut self, reason: DeathReason) {
        match reason {
            DeathReason::Expired => self.expired += 1,
            DeathReason::Length => self.overflowed += 1,
            DeathReason::Rejected | DeathReason::DeliveryLimit => {}
        }
    }
}

impl Dispatcher {
    #[inline]
    fn count<const M: usize>(self: &Arc<Self>, context: &DeliveryContext, adds: [(usize, u64); M]) {
        // Places of share groups belong to groups, which count by themselves.
        if !self.is_pulled {
            let tracked = self.counters.add(adds);
            context.sampler.note(tracked, || Arc::clone(self));
        }
    }

    /// Returns true if something was counted.
    pub(super) fn is_counting(&self) -> bool {
        self.counters.tracked().is_some()
    }

    /// Notes that the levels may have changed.
    pub(super) fn touch(self: &Arc<Self>, context: &DeliveryContext) {
        self.count(context, []);
    }

    /// Counts a turn; `waits` says whether messages wait.
    pub(super) fn count_turn(self: &Arc<Self>, context: &DeliveryContext, tally: &Tally, waits: bool) {
        let Tally {
            delivered,
            delivered_unsettled,
            got,
            got_unsettled,
            redelivered,
            expired,
            overflowed,
        } = *tally;
        let sum = delivered + delivered_unsettled + got + got_unsettled + expired + overflowed;
        if sum > 0 || waits || self.is_counting() {
            self.count(
                context,
                [
                    (DELIVERED, delivered),
                    (DELIVERED_UNSETTLED, delivered_unsettled),
                    (GOT, got),
                    (GOT_UNSETTLED, got_unsettled),
                    (REDELIVERED, redelivered),
                    (EXPIRED, expired),
                    (OVERFLOWED, overflowed),
                ],
            );
        }
    }

    pub(super) fn count_chosen(self: &Arc<Self>, context: &DeliveryContext, handed: DeliveryInfo) {
        let redelivered = u64::from(handed.redelivered);
        self.count(context, [(GOT, 1), (REDELIVERED, redelivered)]);
    }

    /// Counts a message that was chosen for a consumer.
    pub(super) fn count_given(
        self: &Arc<Self>,
        context: &DeliveryContext,
        settles: bool,
        is_redelivered: bool,
    ) {
        let kind = if settles { DELIVERED } else { DELIVERED_UNSETTLED };
        self.count(context, [(kind, 1), (REDELIVERED, u64::from(is_redelivered))]);
    }

    pub(super) fn count_settled(
        self: &Arc<Self>,
        context: &DeliveryContext,
        (completed, requeued, discarded): (u64, u64, u64),
    ) {
        self.count(
            context,
            [
                (COMPLETED, completed),
                (REQUEUED, requeued),
                (DISCARDED, discarded),
            ],
        );
    }

    /// Counts messages that were completed by an append that stored their completion.
    pub fn count_completed(self: &Arc<Self>, context: &DeliveryContext, completed: u64) {
        self.count(context, [(COMPLETED, completed)]);
    }

    pub fn count_published(self: &Arc<Self>, context: &DeliveryContext, messages: u64, bytes: u64) {
        self.count(context, [(PUBLISHED, messages), (PUBLISHED_BYTES, bytes)]);
    }

    pub fn count_dead_lettered(self: &Arc<Self>, context: &DeliveryContext, messages: u64) {
        self.count(context, [(DEAD_LETTERED, messages)]);
    }

    pub fn count_refused(self: &Arc<Self>, context: &DeliveryContext) {
        self.count(context, [(REFUSED, 1)]);
    }

    /// Counts messages that moved from here to elsewhere.
    pub fn count_moved_out(self: &Arc<Self>, context: &DeliveryContext, messages: usize) {
        self.count(context, [(MOVED_OUT, messages as u64)]);
    }

    /// Counts messages that moved here from another dispatcher.
    pub fn count_moved_in(self: &Arc<Self>, context: &DeliveryContext, messages: usize) {
        self.count(context, [(MOVED_IN, messages as u64)]);
    }

    /// Returns the counts since the start.
    pub fn message_counts(&self) -> MessageCounts {
        let words = self.counters.all();
        let word = |at: usize| words.get(at).copied().unwrap_or_default();
        MessageCounts {
            published: word(PUBLISHED),
            published_bytes: word(PUBLISHED_BYTES),
            delivered: word(DELIVERED),
            delivered_unsettled: word(DELIVERED_UNSETTLED),
            got: word(GOT),
            got_unsettled: word(GOT_UNSETTLED),
            redelivered: word(REDELIVERED),
            completed: word(COMPLETED),
            requeued: word(REQUEUED),
            discarded: word(DISCARDED),
            expired: word(EXPIRED),
            overflowed: word(OVERFLOWED),
            dead_lettered: word(DEAD_LETTERED),
            refused: word(REFUSED),
            moved_in: word(MOVED_IN),
            moved_out: word(MOVED_OUT),
        }
    }

    /// Returns the increase of series within the latest 5 s.
    pub fn increase(&self, series: &[QueueSeries]) -> u64 {
        let sum = |context: Arc<DeliveryContext>| {
            let increase = |of: &QueueSeries| context.sampler.increase(self, of.at());
            series.iter().map(increase).sum()
        };
        self.context.upgrade().map_or(0, sum)
    }

    /// Returns the increase of series per second, within the latest 5 s.
    pub fn rate(&self, series: &[QueueSeries]) -> f64 {
        self.increase(series) as f64 * 1000.0 / STEP_MS as f64
    }

    /// Returns the steps of 5 s since the latest change that a sweep saw; `None` if there was none.
    pub fn idle_steps(&self) -> Option<u32> {
        self.context.upgrade()?.sampler.idle_steps(self)
    }

    /// Returns the samples of the last hour.
    pub fn timeline(&self) -> Timeline {
        let sampler = self.context.upgrade();
        sampler.map_or_else(
            || Sampler::default().timeline(self),
            |context| context.sampler.timeline(self),
        )
    }

    /// Returns the bytes of waiting messages. Without a limit of bytes they are not kept: then an estimate
    /// from the messages that came since the start.
    pub fn bytes_ready(&self) -> u64 {
        let inner = self.lock();
        if inner.settings.bytes_max.is_some() {
            return inner.state.bytes_ready();
        }
        let published = u128::from(self.counters.get(PUBLISHED));
        let bytes = u128::from(self.counters.get(PUBLISHED_BYTES)) * u128::from(inner.state.ready());
        u64::try_from(bytes.checked_div(published).unwrap_or_default()).unwrap_or(u64::MAX)
    }
}

impl std::ops::AddAssign for MessageCounts {
    fn add_assign(&mut self, other: Self) {
        self.published += other.published;
        self.published_bytes += other.published_bytes;
        self.delivered += other.delivered;
        self.delivered_unsettled += other.delivered_unsettled;
        self.got += other.got;
        self.got_unsettled += other.got_unsettled;
        self.redelivered += other.redelivered;
        self.completed += other.completed;
        self.requeued += other.requeued;
        self.discarded += other.discarded;
        self.expired += other.expired;
        self.overflowed += other.overflowed;
        self.dead_lettered += other.dead_lettered;
        self.refused += other.refused;
        self.moved_in += other.moved_in;
        self.moved_out += other.moved_out;
    }
}
