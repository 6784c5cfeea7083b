//! A transactional producer as a pure state machine, without clock, lock or journal.
//!
//! ```text
//!            begin                    end                    stored
//!   Empty ──────────▶ Ongoing ──────────────────▶ Ending ──────────────▶ Ended
//!                       ▲  ▲                        │                      │
//!                       │  └──────── refused ───────┘                      │
//!                       └───────────────── begin ──────────────────────────┘
//! ```
//!
//! A change of the epoch (a new instance of the producer, an end that fences) passes through `Ending` too:
//! nothing else happens until it is stored. An end of a transaction over several cells also waits there until
//! all of them have their control batches.

use std::collections::{BTreeMap, BTreeSet};

use stafett_groups::{NewCommit, PendingCommits};
use stafett_model::{LogId, ProducerId, TransactionEnd};
use stafett_topics::TopicId;

use crate::cells::Owed;
use crate::error::TransactionError;

/// Epochs end before this: the last one is for fencing.
pub(crate) const EPOCH_MAX: i16 = i16::MAX - 1;

/// Identity of a running producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instance {
    pub producer: ProducerId,
    pub epoch: i16,
}

/// A partition, by the topic's id.
pub type Place = (TopicId, u32);

/// State of a transactional producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Empty,
    Ongoing,
    /// Its end, or another epoch, is being stored, or other cells are still to hear of it.
    Ending(TransactionEnd),
    Ended(TransactionEnd),
    /// Its transactional id is deleted.
    Gone,
}

/// A transactional producer and its transaction.
#[derive(Debug)]
pub(crate) struct Producer {
    pub(crate) instance: Instance,
    /// Instance that asked for the present epoch: its client may not have heard of it.
    pub(crate) before: Option<Instance>,
    pub(crate) timeout_ms: u32,
    pub(crate) status: Status,
    /// Instance whose transaction took too long. Its client may take the id over again.
    pub(crate) overdue: Option<Instance>,
    /// Instance that asked for the commit of a transaction that had not begun, and is asked to repeat it.
    pub(crate) committed_early: Option<Instance>,
    /// Logs that the transaction may append to.
    pub(crate) logs: BTreeSet<LogId>,
    /// Partitions in other cells that it may append to, each with true once that is stored.
    pub(crate) elsewhere: BTreeMap<Place, bool>,
    /// Control batches of an end that other cells do not have yet.
    pub(crate) owed: Option<Owed>,
    /// Number of the transaction since the start.
    pub(crate) number: u64,
    /// Groups whose commits the transaction may take.
    pub(crate) groups: BTreeSet<Box<str>>,
    pub(crate) pending: Vec<PendingCommits>,
    /// Time of the first step of the transaction, in elapsed ms.
    pub(crate) began: u64,
    /// Wall time of the last stored change, ms since 1970.
    pub(crate) changed_at: i64,
    /// True until the first end after a start. A transaction that had only added logs and groups before the
    /// start is not known: its next request begins it.
    pub(crate) is_recovered: bool,
}

/// Answer to the wish to end a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndStep {
    /// It is to be stored, and the producer goes on as the given instance.
    Store(Instance),
    /// It has ended so before; the producer goes on as the given instance.
    Done(Instance),
}

impl Instance {
    /// Returns the instance with the next epoch; `None` if there is none.
    pub(crate) fn next(self) -> Option<Self> {
        let epoch = self.epoch.checked_add(1).filter(|epoch| *epoch <= EPOCH_MAX)?;
        Some(Self { epoch, ..self })
    }
}

impl Producer {
    pub(crate) fn new(instance: Instance, timeout_ms: u32) -> Self {
        Self {
            instance,
            before: None,
            timeout_ms,
            status: Status::Empty,
            overdue: None,
            committed_early: None,
            logs: BTreeSet::new(),
            elsewhere: BTreeMap::new(),
            owed: None,
            number: 0,
            groups: BTreeSet::new(),
            pending: Vec::new(),
            began: 0,
            changed_at: 0,
            is_recovered: false,
        }
    }

    /// Checks that a request is of the running instance.
    pub(crate) fn check(&self, given: Instance) -> Result<(), TransactionError> {
        if self.status == Status::Gone || given.producer != self.instance.producer {
            return Err(TransactionError::UnknownProducer);
        }
        if given.epoch != self.instance.epoch {
            return Err(TransactionError::Fenced);
        }
        Ok(())
    }

    /// Checks that a client may take over this transactional id: a new one, or the one that `given` names.
    pub(crate) fn check_takeover(&self, given: Option<Instance>) -> Result<(), TransactionError> {
        match (self.status, given) {
            (Status::Ending(_) | Status::Gone, _) => Err(TransactionError::Busy),
            (_, Some(given)) if ![Some(self.instance), self.before, self.overdue].contains(&Some(given)) => {
                Err(TransactionError::Fenced)
            }
            _ => Ok(()),
        }
    }

    /// True if the present instance is the one that `given` has asked for before: its client has not heard
    /// of it, and no other has begun since.
    pub(crate) fn has_begun_after(&self, given: Option<Instance>) -> bool {
        given.is_some() && given == self.before && given != Some(self.instance)
    }

    /// Begins a transaction, or goes on with it. `now` is in elapsed ms.
    pub(crate) fn begin(&mut self, given: Instance, now: u64) -> Result<(), TransactionError> {
        self.check(given)?;
        match self.status {
            Status::Ongoing => Ok(()),
            Status::Ending(_) | Status::Gone => Err(TransactionError::Busy),
            Status::Empty | Status::Ended(_) => {
                self.status = Status::Ongoing;
                self.began = now;
                self.number += 1;
                (self.before, self.overdue) = (None, None);
                Ok(())
            }
        }
    }

    /// Decides how a wish to end is answered. `bumps`: each end begins another epoch.
    ///
    /// The first commit of nothing by an instance is answered with [`TransactionError::Busy`], and only a
    /// second one is refused: Kafka's Java client (seen with 4.3.1) now and then sends the commit ahead of
    /// the batches of its transaction. When it is to repeat the commit, it sends the batches first; a refusal
    /// would end the producer.
    pub(crate) fn end(
        &mut self,
        given: Instance,
        end: TransactionEnd,
        bumps: bool,
        fresh: Option<Instance>,
    ) -> Result<EndStep, TransactionError> {
        if bumps && self.before == Some(given) {
            match self.status {
                Status::Ended(before) if before == end => return Ok(EndStep::Done(self.instance)),
                Status::Ended(_) => return Err(TransactionError::NoTransaction),
                // Other cells have not heard of it.
                Status::Ending(_) => return Err(TransactionError::Busy),
                Status::Empty | Status::Ongoing | Status::Gone => {}
            }
        }
        if bumps && self.overdue == Some(given) {
            // An abort has happened already: its client goes on in the epoch after it, as with Kafka.
            return match (self.status, end) {
                (Status::Ended(TransactionEnd::Abort), TransactionEnd::Abort) => {
                    Ok(EndStep::Done(self.instance))
                }
                (Status::Ending(_), _) => Err(TransactionError::Busy),
                // Its client begins anew, as with Kafka after 4.3 (KAFKA-20785); without a transaction it
                // would end.
                _ => Err(TransactionError::Fenced),
            };
        }
        self.check(given)?;
        let next = if bumps {
            self.instance.next().or(fresh).unwrap_or(self.instance)
        } else {
            self.instance
        };
        match self.status {
            Status::Ongoing => Ok(EndStep::Store(next)),
            Status::Ended(before) if before == end && !bumps => Ok(EndStep::Done(self.instance)),
            // An abort of nothing takes another epoch: requests on their way are fenced.
            Status::Empty | Status::Ended(_) if bumps && end == TransactionEnd::Abort => {
                Ok(EndStep::Store(next))
            }
            Status::Ending(_) => Err(TransactionError::Busy),
            Status::Empty | Status::Ended(_)
                if bumps && self.committed_early.replace(given) != Some(given) =>
            {
                Err(TransactionError::Busy)
            }
            // It may have begun before the start; nothing of it was stored.
            Status::Empty | Status::Ended(_) if self.is_recovered && !bumps => {
                Ok(EndStep::Done(self.instance))
            }
            Status::Empty | Status::Ended(_) | Status::Gone => Err(TransactionError::NoTransaction),
        }
    }

    /// True if the transaction has lasted longer than it may.
    pub(crate) fn is_overdue(&self, now: u64) -> bool {
        self.status == Status::Ongoing && now.saturating_sub(self.began) >= u64::from(self.timeout_ms)
    }

    /// The change was stored: the producer goes on as `next`.
    pub(crate) fn stored(&mut self, (next, before): (Instance, Option<Instance>), status: Status, at: i64) {
        (self.before, self.overdue) = (before, None);
        self.instance = next;
        self.status = status;
        self.logs.clear();
        self.elsewhere.clear();
        self.groups.clear();
        self.pending = Vec::new();
        self.changed_at = at;
        self.is_recovered = false;
    }

    /// Adds commits of a group. Later ones of a partition replace earlier ones, also if these come behind
    /// them: another cell may have repeated its message.
    pub(crate) fn add_commits(&mut self, mut added: PendingCommits) {
        let later = self.pending.iter();
        let later = later.filter(|pending| pending.group == added.group && pending.order > added.order);
        let later: BTreeSet<_> = later
            .flat_map(|pending| &pending.commits)
            .map(|new| (new.topic, new.partition))
            .collect();
        added
            .commits
            .retain(|new| !later.contains(&(new.topic, new.partition)));
        let places: BTreeSet<_> = added
            .commits
            .iter()
            .map(|new| (new.topic, new.partition))
            .collect();
        self.withdraw(&added.group, |place| places.contains(place));
        if !added.commits.is_empty() {
            self.pending.push(added);
        }
    }

    /// True if commits of a group wait for the end.
    pub(crate) fn has_commits_of(&self, group: &str) -> bool {
        self.pending
            .iter()
            .any(|pending| &*pending.group == group && !pending.commits.is_empty())
    }

    /// Returns the partitions of a group whose commits wait for the end, or for the cell of the group.
    pub(crate) fn places_of(&self, group: &str) -> Vec<Place> {
        let owed = self.owed.iter().flat_map(|owed| &owed.commits);
        let pending = self.pending.iter().chain(owed);
        let pending = pending.filter(|pending| &*pending.group == group);
        let commits = pending.flat_map(|pending| &pending.commits);
        commits.map(|commit| (commit.topic, commit.partition)).collect()
    }

    /// Removes commits of a group that wait.
    pub(crate) fn withdraw(&mut self, group: &str, is_gone: impl Fn(&Place) -> bool) {
        for pending in self.pending.iter_mut().filter(|pending| &*pending.group == group) {
            pending
                .commits
                .retain(|commit| !is_gone(&(commit.topic, commit.partition)));
        }
        self.pending.retain(|pending| !pending.commits.is_empty());
    }

    /// True if commits of a group fit beside the pending ones of other partitions.
    pub(crate) fn has_room(&self, group: &str, added: &[NewCommit], max: usize) -> bool {
        let pending = self.pending.iter().flat_map(|pending| {
            let commits = pending.commits.iter();
            commits.map(|commit| (&*pending.group, commit.topic, commit.partition))
        });
        let added = added.iter().map(|commit| (group, commit.topic, commit.partition));
        pending.chain(added).collect::<BTreeSet<_>>().len() <= max
    }

    /// Approximate bytes that the pending commits take in the append of the end.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.pending.iter().map(PendingCommits::bytes).sum()
    }

    /// True if commits wait for the end, or for the cells of their groups.
    pub(crate) fn has_waiting_commits(&self) -> bool {
        self.pending_count() > 0 || self.owed.as_ref().is_some_and(|owed| !owed.commits.is_empty())
    }

    /// Approximate bytes of the pending commits of groups of other cells.
    pub(crate) fn elsewhere_bytes(&self) -> usize {
        let elsewhere = self.pending.iter().filter(|pending| pending.cell != 0);
        elsewhere.map(PendingCommits::bytes).sum()
    }

    /// Number of commits that are pending.
    pub(crate) fn pending_count(&self) -> usize {
        self.pending.iter().map(|pending| pending.commits.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Instance = Instance {
        producer: ProducerId(5),
        epoch: 0,
    };

    fn ongoing() -> Producer {
        let mut producer = Producer::new(FIRST, 1000);
        producer.begin(FIRST, 10).unwrap();
        producer
    }

    #[test]
    fn only_the_running_instance_goes_on() {
        let mut producer = ongoing();
        let next = FIRST.next().unwrap();
        producer.stored((next, None), Status::Ended(TransactionEnd::Abort), 1);
        assert_eq!(producer.begin(FIRST, 11), Err(TransactionError::Fenced));
        let other = Instance {
            producer: ProducerId(6),
            ..next
        };
        assert_eq!(producer.begin(other, 11), Err(TransactionError::UnknownProducer));
        assert_eq!(producer.begin(next, 11), Ok(()));
        assert_eq!(producer.check_takeover(None), Ok(()));
        assert_eq!(
            producer.check_takeover(Some(FIRST)),
            Err(TransactionError::Fenced)
        );
    }

    #[test]
    fn an_end_that_was_not_heard_of_is_answered_again() {
        use TransactionEnd::{Abort, Commit};
        let mut producer = ongoing();
        assert_eq!(
            producer.end(FIRST, Commit, false, None),
            Ok(EndStep::Store(FIRST))
        );
        producer.stored((FIRST, None), Status::Ended(Commit), 1);
        assert_eq!(producer.end(FIRST, Commit, false, None), Ok(EndStep::Done(FIRST)));
        assert_eq!(
            producer.end(FIRST, Abort, false, None),
            Err(TransactionError::NoTransaction)
        );

        let mut producer = ongoing();
        let next = FIRST.next().unwrap();
        assert_eq!(producer.end(FIRST, Commit, true, None), Ok(EndStep::Store(next)));
        producer.stored((next, Some(FIRST)), Status::Ended(Commit), 1);
        assert_eq!(producer.end(FIRST, Commit, true, None), Ok(EndStep::Done(next)));
        assert_eq!(
            producer.end(FIRST, Abort, true, None),
            Err(TransactionError::NoTransaction)
        );
        let after = next.next().unwrap();
        assert_eq!(producer.end(next, Abort, true, None), Ok(EndStep::Store(after)));
    }

    #[test]
    fn a_transaction_that_had_only_begun_before_a_start_ends() {
        let mut producer = Producer::new(FIRST, 1000);
        producer.is_recovered = true;
        for end in [TransactionEnd::Commit, TransactionEnd::Abort] {
            assert_eq!(producer.end(FIRST, end, false, None), Ok(EndStep::Done(FIRST)));
        }
        producer.begin(FIRST, 10).unwrap();
        producer.stored((FIRST, None), Status::Ended(TransactionEnd::Abort), 1);
        assert_eq!(
            producer.end(FIRST, TransactionEnd::Commit, false, None),
            Err(TransactionError::NoTransaction)
        );
    }

    #[test]
    fn a_client_whose_transaction_took_too_long_may_abort_it_and_go_on() {
        let mut producer = ongoing();
        let next = FIRST.next().unwrap();
        producer.stored((next, None), Status::Ended(TransactionEnd::Abort), 1);
        producer.overdue = Some(FIRST);
        let end = |producer: &mut Producer, end| producer.end(FIRST, end, true, None);
        assert_eq!(end(&mut producer, TransactionEnd::Abort), Ok(EndStep::Done(next)));
        let fenced = Err(TransactionError::Fenced);
        assert_eq!(end(&mut producer, TransactionEnd::Commit), fenced);
        producer.begin(next, 20).unwrap();
        assert_eq!(end(&mut producer, TransactionEnd::Abort), fenced);
    }

    #[test]
    fn a_commit_ahead_of_its_batches_is_repeated_and_one_of_nothing_refused() {
        use TransactionEnd::Commit;
        let mut producer = ongoing();
        let [first, second] = [FIRST.next().unwrap(), FIRST.next().unwrap().next().unwrap()];
        producer.stored((first, Some(FIRST)), Status::Ended(Commit), 1);
        let end = |producer: &mut Producer, given| producer.end(given, Commit, true, None);
        assert_eq!(end(&mut producer, first), Err(TransactionError::Busy));
        assert_eq!(
            end(&mut producer, FIRST),
            Ok(EndStep::Done(first)),
            "the commit before"
        );
        producer.begin(first, 20).unwrap();
        assert_eq!(end(&mut producer, first), Ok(EndStep::Store(second)));
        producer.stored((second, Some(first)), Status::Ended(Commit), 2);

        assert_eq!(end(&mut producer, second), Err(TransactionError::Busy));
        let refused = Err(TransactionError::NoTransaction);
        assert_eq!(
            [end(&mut producer, second), end(&mut producer, second)],
            [refused.clone(), refused]
        );
    }

    #[test]
    fn commits_that_come_late_replace_no_later_ones() {
        let mut producer = ongoing();
        let commits = |order, partitions: &[u32]| PendingCommits {
            group: "g".into(),
            cell: 1,
            commits: partitions
                .iter()
                .map(|partition| NewCommit {
                    topic: TopicId(1),
                    partition: *partition,
                    offset: 0,
                    leader_epoch: -1,
                    text: None,
                })
                .collect(),
            at: 0,
            order,
        };
        producer.add_commits(commits(7, &[1]));
        producer.add_commits(commits(5, &[1]));
        producer.add_commits(commits(6, &[1, 2]));
        let orders: Vec<_> = producer
            .pending
            .iter()
            .map(|pending| (pending.order, pending.commits.len()))
            .collect();
        assert_eq!(orders, [(7, 1), (6, 1)]);
        producer.add_commits(commits(8, &[1, 2]));
        assert_eq!(producer.pending.len(), 1);
    }

    #[test]
    fn nothing_begins_while_an_end_is_stored() {
        let mut producer = ongoing();
        producer.status = Status::Ending(TransactionEnd::Commit);
        assert_eq!(producer.begin(FIRST, 20), Err(TransactionError::Busy));
        assert_eq!(producer.check_takeover(None), Err(TransactionError::Busy));
        assert_eq!(
            producer.end(FIRST, TransactionEnd::Commit, false, None),
            Err(TransactionError::Busy)
        );
    }

    #[test]
    fn the_time_counts_from_the_first_step() {
        let mut producer = ongoing();
        producer.begin(FIRST, 900).unwrap();
        assert!(!producer.is_overdue(1009) && producer.is_overdue(1010));
        producer.stored((FIRST, None), Status::Ended(TransactionEnd::Commit), 1);
        assert!(!producer.is_overdue(9999));
    }

    #[test]
    fn the_last_epoch_is_followed_by_a_fresh_producer() {
        let last = Instance {
            epoch: EPOCH_MAX,
            ..FIRST
        };
        let fresh = Instance {
            producer: ProducerId(6),
            epoch: 0,
        };
        let mut producer = Producer::new(last, 1000);
        producer.begin(last, 0).unwrap();
        assert_eq!(last.next(), None);
        let step = producer.end(last, TransactionEnd::Commit, true, Some(fresh));
        assert_eq!(step, Ok(EndStep::Store(fresh)));
    }
}
