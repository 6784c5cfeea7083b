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
pub(super) struct Want {
    pub(super) from: Offset,
    /// Offset at which live delivery began. `None` if the topic is held back until it is live.
    pub(super) until: Option<Offset>,
}

pub(super) type Wants = HashMap<Arc<str>, Want>;

/// Delivery state of a partition, and the clients behind it.
#[derive(Debug)]
pub(crate) struct Follow {
    pub(super) next: Offset,
    /// Clients that are behind, by number.
    behind: HashMap<u32, Behind>,
    last_id: u64,
}

/// Progress of a listening client that catches up.
#[derive(Debug)]
pub(crate) struct Behind {
    outbox: Arc<Outbox>,
    /// Id of the task that works on this.
    run: u64,
    is_running: bool,
    asked: Vec<Asked>,
    next: Wants,
    pass: Option<Arc<Pass>>,
    /// Offset that the pass has reached.
    at: Offset,
}

/// Request of a subscription that is not stored yet.
#[derive(Debug)]
struct Asked {
    id: u64,
    wants: Wants,
    /// Offset from which messages are held back.
    now: Offset,
}

/// One reading of the partition for a set of topics.
#[derive(Debug)]
pub(super) struct Pass {
    pub(super) wants: Wants,
    /// End of the pass, if all its topics have one.
    until: Option<Offset>,
}

/// Next range to read.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) at: Offset,
    pub(super) limit: Offset,
    pub(super) pass: Arc<Pass>,
}

impl Follow {
    pub(super) fn new(next: Offset) -> Self {
        Self {
            next,
            behind: HashMap::new(),
            last_id: 0,
        }
    }

    /// Returns the offset up to which the partition has been delivered.
    pub(crate) fn next(&self) -> Offset {
        self.next
    }

    /// Returns true if a message to `topic` is held back for a client that listens with `outbox`.
    pub(crate) fn is_held(&self, client: u32, outbox: &Arc<Outbox>, topic: &str) -> bool {
        if self.behind.is_empty() {
            return false;
        }
        let behind = self.behind.get(&client);
        behind.is_some_and(|behind| Arc::ptr_eq(&behind.outbox, outbox) && behind.holds(topic))
    }

    /// Holds back the topics that a client is about to subscribe to. Returns the id for [`Follow::answer`].
    pub(super) fn ask(&mut self, client: u32, outbox: &Arc<Outbox>, wants: Wants) -> u64 {
        self.last_id += 1;
        let id = self.last_id;
        let new = || Behind {
            outbox: Arc::clone(outbox),
            run: id,
            is_running: false,
            asked: Vec::new(),
            next: Wants::new(),
            pass: None,
            at: self.next,
        };
        let behind = self.behind.entry(client).or_insert_with(new);
        behind.asked.push(Asked {
            id,
            wants,
            now: self.next,
        });
        id
    }

    /// Handles the outcome of a subscription. If it was refused, only messages held back meanwhile are
    /// delivered, to clients that have the topics anyway. Returns the run for which a task has to be started,
    /// if none is running.
    pub(super) fn answer(&mut self, client: u32, id: u64, is_stored: bool) -> Option<u64> {
        let behind = self.behind.get_mut(&client)?;
        let place = behind.asked.iter().position(|asked| asked.id == id)?;
        let Asked { wants, now, .. } = behind.asked.swap_remove(place);
        for (topic, want) in wants {
            let want = match (is_stored, want.until) {
                (true, _) => want,
                (false, None) => Want {
                    from: now,
                    until: None,
                },
                (false, Some(_)) => continue,
            };
            let both = |known: &mut Want| {
                known.from = known.from.min(want.from);
                // No end is later than any end.
                known.until = known.until.zip(want.until).map(|(one, other)| one.max(other));
            };
            behind.next.entry(topic).and_modify(both).or_insert(want);
        }
        (!std::mem::replace(&mut behind.is_running, true)).then_some(behind.run)
    }

    /// Returns the next range for a task to read. `None` ends the task: the client has caught up or has left.
    pub(super) fn step(&mut self, client: u32, run: u64) -> Option<Step> {
        let next = self.next;
        let behind = self.behind.get_mut(&client).filter(|behind| behind.run == run)?;
        loop {
            if let Some(pass) = &behind.pass {
                let limit = pass.until.unwrap_or(next).min(next);
                if behind.at < limit {
                    return Some(Step {
                        at: behind.at,
                        limit,
                        pass: Arc::clone(pass),
                    });
                }
                behind.pass = None;
            }
            if behind.next.is_empty() {
                behind.is_running = false;
                if behind.asked.is_empty() {
                    self.behind.remove(&client);
                }
                return None;
            }
            let pass = Pass::of(std::mem::take(&mut behind.next));
            behind.at = pass.from();
            behind.pass = Some(Arc::new(pass));
        }
    }

    /// Returns true if a task still has something to do.
    pub(super) fn is_running(&self, client: u32, run: u64) -> bool {
        self.behind.get(&client).is_some_and(|behind| behind.run == run)
    }

    /// Records that a task has reached `at`.
    pub(super) fn advance(&mut self, client: u32, run: u64, at: Offset) {
        if let Some(behind) = self.behind.get_mut(&client).filter(|behind| behind.run == run) {
            behind.at = at;
        }
    }

    /// Returns the first offset that the client may not have got.
    pub(super) fn position(&self, client: u32) -> Offset {
        let Some(behind) = self.behind.get(&client) else {
            return self.next;
        };
        let pass = behind.pass.iter().map(|_| behind.at);
        let next = behind.next.values().map(|want| want.from);
        let asked = behind.asked.iter().map(|asked| asked.now);
        pass.chain(next).chain(asked).fold(self.next, Offset::min)
    }

    /// Removes a client that no longer listens here. Its state may be large and should be dropped without the
    /// lock.
    pub(super) fn forget(&mut self, client: u32) -> Option<Behind> {
        self.behind.remove(&client)
    }
}

impl Behind {
    fn holds(&self, topic: &str) -> bool {
        let in_wants = |wants: &Wants| wants.get(topic).is_some_and(|want| want.until.is_none());
        self.pass.as_ref().is_some_and(|pass| in_wants(&pass.wants))
            || in_wants(&self.next)
            || self.asked.iter().any(|asked| in_wants(&asked.wants))
    }
}

impl Pass {
    fn of(wants: Wants) -> Self {
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
    pub(super) fn is_wanted(&self, topic: &str, offset: Offset) -> bool {
        self.wants
            .get(topic)
            .is_some_and(|want| want.from <= offset && want.until.is_none_or(|until| offset < until))
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

    fn wants(topics: &[&str], from: u64, until: Option<u64>) -> Wants {
        let want = Want {
            from: Offset(from),
            until: until.map(Offset),
        };
        topics.iter().map(|topic| (Arc::from(*topic), want)).collect()
    }

    #[test]
    fn what_is_asked_for_during_a_pass_waits_for_the_next_and_all_is_live_behind_the_last() {
        let (mut follow, outbox) = (Follow::new(Offset(10)), outbox());
        let first = follow.ask(7, &outbox, wants(&["a"], 2, None));
        assert!(follow.is_held(7, &outbox, "a"), "before it is stored");
        let run = follow.answer(7, first, true).unwrap();
        let step = follow.step(7, run).unwrap();
        assert_eq!((step.at, step.limit), (Offset(2), Offset(10)));
        follow.advance(7, run, Offset(6));
        let second = follow.ask(7, &outbox, wants(&["b"], 4, None));
        assert_eq!(follow.answer(7, second, true), None, "a task is at work");
        assert_eq!(follow.position(7), Offset(4));
        follow.advance(7, run, Offset(10));
        follow.next = Offset(11);
        let step = follow.step(7, run).unwrap();
        assert_eq!((step.at, step.limit), (Offset(10), Offset(11)), "it has grown");
        follow.advance(7, run, Offset(11));
        let step = follow.step(7, run).unwrap();
        assert_eq!((step.at, step.limit), (Offset(4), Offset(11)));
        assert!(!step.pass.is_wanted("a", Offset(10)) && step.pass.is_wanted("b", Offset(4)));
        assert!(!follow.is_held(7, &outbox, "a") && follow.is_held(7, &outbox, "b"));
        follow.advance(7, run, Offset(11));
        assert!(follow.step(7, run).is_none());
        assert!(!follow.is_held(7, &outbox, "b"));
        assert_eq!(follow.position(7), Offset(11));
    }

    #[test]
    fn a_topic_that_is_live_is_not_held_while_it_gets_what_lies_before() {
        let (mut follow, outbox) = (Follow::new(Offset(10)), outbox());
        let id = follow.ask(7, &outbox, wants(&["a"], 2, Some(5)));
        let run = follow.answer(7, id, true).unwrap();
        assert!(!follow.is_held(7, &outbox, "a"));
        let step = follow.step(7, run).unwrap();
        assert_eq!((step.at, step.limit), (Offset(2), Offset(5)));
        assert!(step.pass.is_wanted("a", Offset(4)) && !step.pass.is_wanted("a", Offset(5)));
    }

    #[test]
    fn a_refused_subscription_owes_only_what_was_held_back() {
        let (mut follow, outbox) = (Follow::new(Offset(10)), outbox());
        let id = follow.ask(7, &outbox, wants(&["a"], 0, None));
        follow.next = Offset(12);
        let run = follow.answer(7, id, false).unwrap();
        let step = follow.step(7, run).unwrap();
        assert_eq!((step.at, step.limit), (Offset(10), Offset(12)));
    }

    #[test]
    fn what_one_connection_asked_for_holds_nothing_back_from_the_next() {
        let (mut follow, one, two) = (Follow::new(Offset(10)), outbox(), outbox());
        let id = follow.ask(7, &one, wants(&["a"], 0, None));
        let run = follow.answer(7, id, true).unwrap();
        assert!(!follow.is_held(7, &two, "a"));
        drop(follow.forget(7));
        follow.ask(7, &two, wants(&["a"], 3, None));
        assert!(follow.step(7, run).is_none(), "the task of the first one ends");
        assert!(follow.is_held(7, &two, "a"));
    }
}
