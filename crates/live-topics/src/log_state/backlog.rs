//! Clients that are behind in a partition, and the topics concerned. Pure state, under the lock that delivery
//! holds, so that nothing is delivered between a check and a change.
//!
//! ```text
//! ask ──▶ asked ──▶ the subscription is stored ──▶ next ──▶ pass ──▶ at its end: live, under the same lock
//!           │                                        ▲         │
//!           └──▶ refused: only messages held back ───┘         └ one at a time; later requests wait
//! ```
//!
//! A pass reads the partition once for all waiting topics, so that many lists of topics do not cause a
//! reading each. A topic wanted without an end is held back from live delivery until its pass is over. One
//! with an end is live already, and lacks only earlier messages.

use std::collections::HashMap;
use std::sync::Arc;

use stafett_model::Offset;

use crate::outbox::Outbox;

/// Part of a topic that a client wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CatchUpRange {
    pub(crate) from: Offset,
    /// Offset at which live delivery began. `None` if the topic is held back until it is live.
    pub(crate) until: Option<Offset>,
}

impl CatchUpRange {
    pub(crate) fn contains(&self, offset: Offset) -> bool {
        self.from <= offset && self.until.is_none_or(|until| offset < until)
    }
}

pub(crate) type CatchUpRanges = HashMap<Arc<str>, CatchUpRange>;

/// Delivery state of a partition, and the clients behind it.
#[derive(Debug)]
pub(crate) struct PartitionProgress {
    pub(crate) next: Offset,
    /// Clients that are behind, by number.
    backlog: HashMap<u32, Backlog>,
    last_id: u64,
}

/// Progress of a listening client that catches up.
#[derive(Debug)]
pub(crate) struct Backlog {
    outbox: Arc<Outbox>,
    /// Id of the task that works on this.
    run: u64,
    is_running: bool,
    asked: Vec<PendingCatchUp>,
    next: CatchUpRanges,
    pass: Option<Arc<CatchUpPass>>,
    /// Offset that the pass has reached.
    at: Offset,
}

/// Request of a subscription that is not stored yet.
#[derive(Debug)]
struct PendingCatchUp {
    id: u64,
    wants: CatchUpRanges,
    /// Offset from which messages are held back.
    now: Offset,
}

/// One reading of the partition for a set of topics.
#[derive(Debug)]
pub(crate) struct CatchUpPass {
    pub(crate) wants: CatchUpRanges,
    /// End of the pass, if all its topics have one.
    until: Option<Offset>,
}

/// Next range to read.
#[derive(Debug)]
pub(crate) struct NextRead {
    pub(crate) at: Offset,
    pub(crate) limit: Offset,
    pub(crate) pass: Arc<CatchUpPass>,
}

impl PartitionProgress {
    pub(crate) fn new(next: Offset) -> Self {
        Self {
            next,
            backlog: HashMap::new(),
            last_id: 0,
        }
    }

    /// Returns the offset up to which the partition has been delivered.
    pub(crate) fn next(&self) -> Offset {
        self.next
    }

    /// Returns true if a message to `topic` is held back for a client that listens with `outbox`.
    pub(crate) fn is_held(&self, client: u32, outbox: &Arc<Outbox>, topic: &str) -> bool {
        if self.backlog.is_empty() {
            return false;
        }
        let backlog = self.backlog.get(&client);
        backlog.is_some_and(|backlog| Arc::ptr_eq(&backlog.outbox, outbox) && backlog.holds(topic))
    }

    /// Holds back the topics that a client is about to subscribe to. Returns the id for
    /// [`PartitionProgress::answer`].
    pub(crate) fn ask(&mut self, client: u32, outbox: &Arc<Outbox>, wants: CatchUpRanges) -> u64 {
        self.last_id += 1;
        let id = self.last_id;
        let new = || Backlog {
            outbox: Arc::clone(outbox),
            run: id,
            is_running: false,
            asked: Vec::new(),
            next: CatchUpRanges::new(),
            pass: None,
            at: self.next,
        };
        let backlog = self.backlog.entry(client).or_insert_with(new);
        backlog.asked.push(PendingCatchUp {
            id,
            wants,
            now: self.next,
        });
        id
    }

    /// Handles the outcome of a subscription. If it was refused, only messages held back meanwhile are
    /// delivered, to clients that have the topics anyway. Returns the run for which a task has to be started,
    /// if none is running.
    pub(crate) fn answer(&mut self, client: u32, id: u64, is_stored: bool) -> Option<u64> {
        let backlog = self.backlog.get_mut(&client)?;
        let place = backlog.asked.iter().position(|asked| asked.id == id)?;
        let PendingCatchUp { wants, now, .. } = backlog.asked.swap_remove(place);
        let mut begins_again = false;
        for (topic, want) in wants {
            let want = match (is_stored, want.until) {
                (true, _) => want,
                (false, None) => CatchUpRange {
                    from: now,
                    until: None,
                },
                (false, Some(_)) => continue,
            };
            let pass = backlog.pass.as_ref();
            begins_again |= is_stored && pass.is_some_and(|pass| pass.wants.contains_key(&topic));
            backlog.add_next(topic, want);
        }
        if begins_again {
            backlog.end_pass();
        }
        (!std::mem::replace(&mut backlog.is_running, true)).then_some(backlog.run)
    }

    /// Returns the ranges of the client's next pass.
    pub(crate) fn next_pass(&self, client: u32) -> impl Iterator<Item = (&Arc<str>, &CatchUpRange)> {
        let backlog = self.backlog.get(&client);
        backlog.into_iter().flat_map(|backlog| &backlog.next)
    }

    /// Returns the next range for a task to read. `None` ends the task: the client has caught up or has left.
    pub(crate) fn step(&mut self, client: u32, run: u64) -> Option<NextRead> {
        let next = self.next;
        let backlog = self
            .backlog
            .get_mut(&client)
            .filter(|backlog| backlog.run == run)?;
        loop {
            if let Some(pass) = &backlog.pass {
                let limit = pass.until.unwrap_or(next).min(next);
                if backlog.at < limit {
                    return Some(NextRead {
                        at: backlog.at,
                        limit,
                        pass: Arc::clone(pass),
                    });
                }
                backlog.pass = None;
            }
            if backlog.next.is_empty() {
                backlog.is_running = false;
                if backlog.asked.is_empty() {
                    self.backlog.remove(&client);
                }
                return None;
            }
            let pass = CatchUpPass::of(std::mem::take(&mut backlog.next));
            backlog.at = pass.from();
            backlog.pass = Some(Arc::new(pass));
        }
    }

    /// Returns true if a task still has something to do.
    pub(crate) fn is_running(&self, client: u32, run: u64) -> bool {
        self.backlog
            .get(&client)
            .is_some_and(|backlog| backlog.run == run)
    }

    /// Returns true if a task is still in a pass.
    pub(crate) fn is_in_pass(&self, client: u32, run: u64, pass: &Arc<CatchUpPass>) -> bool {
        let backlog = self.backlog.get(&client).filter(|backlog| backlog.run == run);
        let current = backlog.and_then(|backlog| backlog.pass.as_ref());
        current.is_some_and(|current| Arc::ptr_eq(current, pass))
    }

    /// Records that a task has reached `at`.
    pub(crate) fn advance(&mut self, client: u32, run: u64, at: Offset) {
        if let Some(backlog) = self.backlog.get_mut(&client).filter(|backlog| backlog.run == run) {
            backlog.at = at;
        }
    }

    /// Returns the first offset that the client may not have got.
    pub(crate) fn position(&self, client: u32) -> Offset {
        let Some(backlog) = self.backlog.get(&client) else {
            return self.next;
        };
        let pass = backlog.pass.iter().map(|_| backlog.at);
        let next = backlog.next.values().map(|want| want.from);
        let asked = backlog.asked.iter().map(|asked| asked.now);
        pass.chain(next).chain(asked).fold(self.next, Offset::min)
    }

    /// Removes a client that no longer listens here. Its state may be large and should be dropped without the
    /// lock.
    pub(crate) fn forget(&mut self, client: u32) -> Option<Backlog> {
        self.backlog.remove(&client)
    }
}

impl Backlog {
    fn add_next(&mut self, topic: Arc<str>, want: CatchUpRange) {
        let both = |known: &mut CatchUpRange| {
            known.from = known.from.min(want.from);
            // No end is later than any end.
            known.until = known.until.zip(want.until).map(|(one, other)| one.max(other));
        };
        self.next.entry(topic).and_modify(both).or_insert(want);
    }

    /// Leaves the rest of the pass to the next one.
    fn end_pass(&mut self) {
        let Some(pass) = self.pass.take() else { return };
        let at = self.at;
        for (topic, want) in &pass.wants {
            let from = want.from.max(at);
            if want.until.is_none_or(|until| from < until) {
                self.add_next(Arc::clone(topic), CatchUpRange { from, ..*want });
            }
        }
    }

    fn holds(&self, topic: &str) -> bool {
        let in_wants = |wants: &CatchUpRanges| wants.get(topic).is_some_and(|want| want.until.is_none());
        self.pass.as_ref().is_some_and(|pass| in_wants(&pass.wants))
            || in_wants(&self.next)
            || self.asked.iter().any(|asked| in_wants(&asked.wants))
    }
}

impl CatchUpPass {
    fn of(wants: CatchUpRanges) -> Self {
        let mut until = Some(Offset::ZERO);
        for want in wants.values() {
            until = until.zip(want.until).map(|(one, other)| one.max(other));
        }
        Self { wants, until }
    }

    fn from(&self) -> Offset {
        let from = self.wants.values().map(|want| want.from);
        from.min().unwrap_or(Offset::ZERO)
    }

    /// Returns true if the message is wanted.
    pub(crate) fn is_wanted(&self, topic: &str, offset: Offset) -> bool {
        self.wants.get(topic).is_some_and(|want| want.contains(offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Format, Message};
    use crate::outbox::{OutboxBound, Overflow};

    #[derive(Debug)]
    struct NoFormat;

    impl Format for NoFormat {
        fn number(&self) -> usize {
            0
        }

        fn encode(&self, _: &Message<'_>) -> bytes::Bytes {
            bytes::Bytes::new()
        }
    }

    fn outbox() -> Arc<Outbox> {
        let overflow = Overflow::DropOldest;
        Outbox::new(&NoFormat, OutboxBound { bytes: 1, overflow }, Arc::default())
    }

    fn wants(topics: &[&str], from: u64, until: Option<u64>) -> CatchUpRanges {
        let want = CatchUpRange {
            from: Offset(from),
            until: until.map(Offset),
        };
        topics.iter().map(|topic| (Arc::from(*topic), want)).collect()
    }

    #[test]
    fn what_is_asked_for_during_a_pass_waits_for_the_next_and_all_is_live_behind_the_last() {
        let (mut progress, outbox) = (PartitionProgress::new(Offset(10)), outbox());
        let first = progress.ask(7, &outbox, wants(&["a"], 2, None));
        assert!(progress.is_held(7, &outbox, "a"), "before it is stored");
        let run = progress.answer(7, first, true).unwrap();
        let step = progress.step(7, run).unwrap();
        assert_eq!((step.at, step.limit), (Offset(2), Offset(10)));
        progress.advance(7, run, Offset(6));
        let second = progress.ask(7, &outbox, wants(&["b"], 4, None));
        assert_eq!(progress.answer(7, second, true), None, "a task is at work");
        assert_eq!(progress.position(7), Offset(4));
        progress.advance(7, run, Offset(10));
        progress.next = Offset(11);
        let step = progress.step(7, run).unwrap();
        assert_eq!((step.at, step.limit), (Offset(10), Offset(11)), "it has grown");
        progress.advance(7, run, Offset(11));
        let step = progress.step(7, run).unwrap();
        assert_eq!((step.at, step.limit), (Offset(4), Offset(11)));
        assert!(!step.pass.is_wanted("a", Offset(10)) && step.pass.is_wanted("b", Offset(4)));
        assert!(!progress.is_held(7, &outbox, "a") && progress.is_held(7, &outbox, "b"));
        progress.advance(7, run, Offset(11));
        assert!(progress.step(7, run).is_none());
        assert!(!progress.is_held(7, &outbox, "b"));
        assert_eq!(progress.position(7), Offset(11));
    }

    #[test]
    fn a_topic_that_is_live_is_not_held_while_it_gets_what_lies_before() {
        let (mut progress, outbox) = (PartitionProgress::new(Offset(10)), outbox());
        let id = progress.ask(7, &outbox, wants(&["a"], 2, Some(5)));
        let run = progress.answer(7, id, true).unwrap();
        assert!(!progress.is_held(7, &outbox, "a"));
        let step = progress.step(7, run).unwrap();
        assert_eq!((step.at, step.limit), (Offset(2), Offset(5)));
        assert!(step.pass.is_wanted("a", Offset(4)) && !step.pass.is_wanted("a", Offset(5)));
    }

    #[test]
    fn a_refused_subscription_owes_only_what_was_held_back() {
        let (mut progress, outbox) = (PartitionProgress::new(Offset(10)), outbox());
        let id = progress.ask(7, &outbox, wants(&["a"], 0, None));
        progress.next = Offset(12);
        let run = progress.answer(7, id, false).unwrap();
        let step = progress.step(7, run).unwrap();
        assert_eq!((step.at, step.limit), (Offset(10), Offset(12)));
    }

    #[test]
    fn what_one_connection_asked_for_holds_nothing_back_from_the_next() {
        let (mut progress, one, two) = (PartitionProgress::new(Offset(10)), outbox(), outbox());
        let id = progress.ask(7, &one, wants(&["a"], 0, None));
        let run = progress.answer(7, id, true).unwrap();
        assert!(!progress.is_held(7, &two, "a"));
        drop(progress.forget(7));
        progress.ask(7, &two, wants(&["a"], 3, None));
        assert!(progress.step(7, run).is_none(), "the task of the first one ends");
        assert!(progress.is_held(7, &two, "a"));
    }
}
