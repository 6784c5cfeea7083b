//! The state machine against a naive queue: random histories, and all small ones.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use stafett_queue::{
    Changes, ConsumerKey, ConsumerRules, DeliveryId, LaneOrder, QueueState, ReadyMessage, ReturnOutcome,
};

/// A naive queue: every message is an entry.
#[derive(Debug, Default, Clone)]
struct Naive {
    messages: BTreeMap<(std::cmp::Reverse<u32>, u64), Place>,
    ends: BTreeMap<u32, u64>,
    limit: Option<u32>,
    /// Number of new messages delivered if one of three is from the lowest lane; `None` if the highest lane
    /// is always first.
    high_twice: Option<u32>,
    /// Returned messages, in the order of their return.
    back: Vec<DeliveryId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Waits {
        was_returned: bool,
        returns: u32,
    },
    InFlight {
        consumer: Option<ConsumerKey>,
        returns: u32,
    },
}

impl Naive {
    fn append(&mut self, lane: u32, count: u64) -> u64 {
        let end = self.ends.entry(lane).or_default();
        for at in *end..*end + count {
            let place = Place::Waits {
                was_returned: false,
                returns: 0,
            };
            self.messages.insert((std::cmp::Reverse(lane), at), place);
        }
        *end += count;
        *end
    }

    fn first(&self) -> Option<ReadyMessage> {
        let mut waiting = self.messages.iter().filter_map(|((lane, offset), place)| {
            let Place::Waits { was_returned, .. } = place else {
                return None;
            };
            Some(ReadyMessage {
                id: DeliveryId {
                    lane: lane.0,
                    offset: *offset,
                },
                was_returned: *was_returned,
            })
        });
        let Some(handed_out) = self.high_twice else {
            return waiting.next();
        };
        let waiting: Vec<_> = waiting.collect();
        let back = self.back.first().copied();
        let back = back.map(|id| ReadyMessage {
            id,
            was_returned: true,
        });
        let lowest = waiting.iter().map(|ready| ready.id.lane).min();
        back.or_else(|| {
            let lane = if handed_out % 3 == 2 {
                lowest
            } else {
                waiting.first().map(|ready| ready.id.lane)
            };
            waiting.iter().find(|ready| Some(ready.id.lane) == lane).copied()
        })
    }

    /// Records a message that was delivered, or dropped in its turn.
    fn on_turn(&mut self, ready: ReadyMessage) {
        self.back.retain(|id| *id != ready.id);
        if let Some(handed_out) = &mut self.high_twice
            && !ready.was_returned
        {
            *handed_out += 1;
        }
    }

    fn ready(&self) -> u64 {
        let waits = self.messages.values();
        waits.filter(|place| matches!(place, Place::Waits { .. })).count() as u64
    }

    fn in_flight(&self) -> Vec<DeliveryId> {
        let taken = self.messages.iter();
        taken
            .filter(|(_, place)| matches!(place, Place::InFlight { .. }))
            .map(|((lane, offset), _)| DeliveryId {
                lane: lane.0,
                offset: *offset,
            })
            .collect()
    }

    fn waiting(&self) -> Vec<DeliveryId> {
        let waiting = self.messages.iter();
        waiting
            .filter(|(_, place)| matches!(place, Place::Waits { .. }))
            .map(|((lane, offset), _)| DeliveryId {
                lane: lane.0,
                offset: *offset,
            })
            .collect()
    }

    /// Makes a message in flight wait. It is first only if its turn has passed: if no message before it waits
    /// for its first turn.
    fn put_back(&mut self, id: DeliveryId, returns: u32) -> bool {
        let lane = std::cmp::Reverse(id.lane);
        let mut before = self.messages.range((lane, 0)..(lane, id.offset));
        let is_new = |place: &Place| {
            matches!(
                place,
                Place::Waits {
                    was_returned: false,
                    ..
                }
            )
        };
        let was_returned = !before.any(|(_, place)| is_new(place));
        let place = self.place(id).unwrap();
        *place = Place::Waits {
            was_returned,
            returns,
        };
        was_returned
    }

    fn place(&mut self, id: DeliveryId) -> Option<&mut Place> {
        self.messages.get_mut(&(std::cmp::Reverse(id.lane), id.offset))
    }

    fn remove(&mut self, id: DeliveryId) {
        self.messages.remove(&(std::cmp::Reverse(id.lane), id.offset));
    }
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Append {
        lane: u32,
        count: u64,
    },
    Give {
        settles: bool,
    },
    /// Takes a waiting message out of its turn.
    Choose(usize),
    Complete(usize),
    Requeue(usize),
    ReturnUnseen(usize),
    Drop,
    Skip(u64),
    Purge,
    Restart,
}

/// Both queues, and the stored form of one of them.
struct Both {
    state: QueueState,
    naive: Naive,
    order: LaneOrder,
    stored: Vec<Vec<u8>>,
    whole: Option<Vec<u8>>,
    /// Stored hand-out marks.
    marks: BTreeMap<u32, u64>,
    since_restart: BTreeSet<DeliveryId>,
    /// Chosen messages in flight: after a restart, each counts as returned once.
    chosen: BTreeSet<DeliveryId>,
}

impl Both {
    fn new(limit: Option<u32>, order: LaneOrder) -> Self {
        Self {
            state: QueueState::new(false, limit).with_order(order),
            naive: Naive {
                limit,
                high_twice: (order == LaneOrder::HighTwice).then_some(0),
                ..Naive::default()
            },
            order,
            stored: Vec::new(),
            whole: None,
            marks: BTreeMap::new(),
            since_restart: BTreeSet::new(),
            chosen: BTreeSet::new(),
        }
    }

    fn step(&mut self, step: Step) {
        let mut changes = Changes::default();
        match step {
            Step::Append { lane, count } => {
                let end = self.naive.append(lane, count);
                self.state.lane_mut(lane).grow(end);
            }
            Step::Give { settles } => self.give(settles, &mut changes),
            Step::Choose(which) => self.choose(which, &mut changes),
            Step::Complete(which) => {
                if let Some(id) = self.pick(which) {
                    assert!(self.state.complete(id, &mut changes));
                    assert!(!self.state.complete(id, &mut changes), "once");
                    self.naive.remove(id);
                    self.chosen.remove(&id);
                }
            }
            Step::Requeue(which) => self.requeue(which, &mut changes),
            Step::ReturnUnseen(which) => self.return_unseen(which, &mut changes),
            Step::Drop => {
                if let Some(ready) = self.state.first_ready() {
                    self.state.drop_ready(ready.id, 0, &mut changes);
                    self.naive.remove(ready.id);
                    self.naive.on_turn(ready);
                }
            }
            Step::Skip(count) => {
                if let Some(ready) = self.state.first_ready().filter(|ready| !ready.was_returned) {
                    let to = ready.id.offset + count;
                    let end = self.naive.ends[&ready.id.lane];
                    // A hole has no messages, so none in it is in flight.
                    let taken = self.naive.in_flight().into_iter().filter(|id| *id > ready.id);
                    let taken = taken.filter(|id| id.lane == ready.id.lane);
                    let to = taken.map(|id| id.offset).chain([to, end]).min().unwrap();
                    self.state.skip(ready, to, &mut changes);
                    for offset in ready.id.offset..to {
                        let id = DeliveryId { offset, ..ready.id };
                        if let Some(Place::Waits {
                            was_returned: false, ..
                        }) = self.naive.place(id)
                        {
                            self.naive.remove(id);
                        }
                    }
                }
            }
            Step::Purge => {
                assert_eq!(self.state.purge(&mut changes), self.naive.ready());
                let waits = |place: &Place| matches!(place, Place::Waits { .. });
                self.naive.messages.retain(|_, place| !waits(place));
                self.naive.back.clear();
            }
            Step::Restart => self.restart(),
        }
        if !changes.is_empty() {
            self.stored.push(changes.encode());
        }
        self.check();
    }

    fn pick(&self, which: usize) -> Option<DeliveryId> {
        let taken = self.naive.in_flight();
        (!taken.is_empty()).then(|| taken[which % taken.len()])
    }

    fn give(&mut self, settles: bool, changes: &mut Changes) {
        let Some(ready) = self.state.first_ready() else {
            return;
        };
        if let Some(mark) = self.state.lane_mut(ready.id.lane).mark_ahead() {
            changes.mark(ready.id.lane, mark);
            self.marks.insert(ready.id.lane, mark);
        }
        let handed = self.state.hand_out(ready.id, None, settles, 1, changes);
        self.naive.on_turn(ready);
        let place = self.naive.place(ready.id).unwrap();
        let Place::Waits { returns, .. } = *place else {
            panic!("it is in flight already")
        };
        assert_eq!(handed.returns, returns);
        if returns > 0 || self.since_restart.contains(&ready.id) {
            assert!(handed.redelivered);
        }
        if settles {
            *place = Place::InFlight {
                consumer: None,
                returns,
            };
        } else {
            self.naive.remove(ready.id);
        }
    }

    fn requeue(&mut self, which: usize, changes: &mut Changes) {
        let Some(id) = self.pick(which) else { return };
        let Some(Place::InFlight { returns, .. }) = self.naive.place(id).copied() else {
            panic!("it is in flight")
        };
        let too_often = self.naive.limit.is_some_and(|limit| returns + 1 > limit);
        let expected = if too_often {
            ReturnOutcome::TooOften
        } else {
            ReturnOutcome::Waits
        };
        assert_eq!(self.state.requeue(id, changes), Some(expected));
        if !too_often {
            self.chosen.remove(&id);
            if self.naive.put_back(id, returns + 1) {
                self.naive.back.push(id);
            }
        }
    }

    fn choose(&mut self, which: usize, changes: &mut Changes) {
        let waiting = self.naive.waiting();
        let Some(id) = (!waiting.is_empty()).then(|| waiting[which % waiting.len()]) else {
            return;
        };
        let handed = self.state.choose(id, None, 1, changes).unwrap();
        assert_eq!(
            self.state.choose(id, None, 1, &mut Changes::default()),
            None,
            "once"
        );
        self.naive.back.retain(|back| *back != id);
        let place = self.naive.place(id).unwrap();
        let Place::Waits { returns, .. } = *place else {
            panic!("it is in flight already")
        };
        assert_eq!(handed.returns, returns);
        if returns > 0 || self.since_restart.contains(&id) {
            assert!(handed.redelivered);
        }
        *place = Place::InFlight {
            consumer: None,
            returns,
        };
        self.chosen.insert(id);
    }

    fn return_unseen(&mut self, which: usize, changes: &mut Changes) {
        let Some(id) = self.pick(which) else { return };
        assert!(self.state.disown(id));
        assert!(self.state.return_unseen(id, changes));
        assert!(!self.state.return_unseen(id, changes), "once");
        self.chosen.remove(&id);
        let Some(Place::InFlight { returns, .. }) = self.naive.place(id).copied() else {
            panic!("it is in flight")
        };
        if self.naive.put_back(id, returns) {
            self.naive.back.insert(0, id);
        }
    }

    /// Restarts from the stored form: every second time from a snapshot.
    fn restart(&mut self) {
        if self.stored.len().is_multiple_of(2) {
            self.whole = Some(self.state.encode(false));
            self.stored.clear();
        }
        let mut state = QueueState::new(false, self.naive.limit).with_order(self.order);
        if let Some(handed_out) = &mut self.naive.high_twice {
            *handed_out = 0;
        }
        self.naive.back.clear();
        if let Some(whole) = &self.whole {
            assert_eq!(state.restore(whole), Ok(false));
        }
        for delta in &self.stored {
            assert_eq!(state.apply(delta), Ok(false));
        }
        for (lane, end) in &self.naive.ends {
            state.lane_mut(*lane).grow(*end);
        }
        self.state = state;
        let chosen = std::mem::take(&mut self.chosen);
        for ((lane, offset), place) in &mut self.naive.messages {
            let id = DeliveryId {
                lane: lane.0,
                offset: *offset,
            };
            let (returns, had) = match *place {
                Place::Waits { returns, .. } => (returns, returns > 0),
                Place::InFlight { returns, .. } if chosen.contains(&id) => (returns + 1, true),
                Place::InFlight { returns, .. } => (returns, true),
            };
            if had {
                self.since_restart.insert(id);
            }
            *place = Place::Waits {
                was_returned: false,
                returns,
            };
        }
    }

    fn check(&self) {
        assert_eq!(self.state.first_ready(), self.naive.first());
        assert_eq!(self.state.ready(), self.naive.ready());
        assert_eq!(self.state.in_flight(), self.naive.in_flight().len());
        let held: u32 = self.state.holders().values().sum();
        assert_eq!(usize::try_from(held), Ok(self.state.in_flight()));
        for (number, lane) in self.state.lanes() {
            let first = self
                .naive
                .messages
                .keys()
                .filter(|(known, _)| known.0 == number)
                .map(|(_, offset)| *offset)
                .min();
            let end = self.naive.ends.get(&number).copied().unwrap_or(0);
            assert_eq!(lane.head(), first.unwrap_or(end), "all below the head is settled");
        }
    }
}

/// Limits steps to two lanes if there are two priorities.
fn two_lanes(step: Step, order: LaneOrder) -> Step {
    if let Step::Append { lane, count } = step
        && order == LaneOrder::HighTwice
    {
        let lane = lane.min(1);
        Step::Append { lane, count }
    } else {
        step
    }
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..3_u32, 1..6_u64).prop_map(|(lane, count)| Step::Append { lane, count }),
        6 => any::<bool>().prop_map(|settles| Step::Give { settles }),
        3 => any::<usize>().prop_map(Step::Choose),
        4 => any::<usize>().prop_map(Step::Complete),
        3 => any::<usize>().prop_map(Step::Requeue),
        2 => any::<usize>().prop_map(Step::ReturnUnseen),
        1 => Just(Step::Drop),
        1 => (1..4_u64).prop_map(Step::Skip),
        1 => Just(Step::Purge),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn it_does_what_a_naive_queue_does(
        steps in prop::collection::vec(step(), 1..120),
        limit in prop::option::of(0..3_u32),
    ) {
        for order in [LaneOrder::HighestFirst, LaneOrder::HighTwice] {
            let mut both = Both::new(limit, order);
            for step in &steps {
                both.step(two_lanes(*step, order));
            }
        }
    }

    #[test]
    fn what_is_stored_is_read_or_refused(bytes in prop::collection::vec(0..8_u8, 0..40)) {
        let mut state = QueueState::new(false, None);
        let _ = state.apply(&bytes);
        let _ = state.restore(&bytes);
    }
}

#[test]
fn every_small_history_does_what_a_naive_queue_does() {
    const STEPS: [Step; 9] = [
        Step::Append { lane: 0, count: 2 },
        Step::Append { lane: 1, count: 1 },
        Step::Give { settles: true },
        Step::Give { settles: false },
        Step::Choose(1),
        Step::Complete(1),
        Step::Requeue(0),
        Step::Purge,
        Step::Restart,
    ];
    const LENGTH: u32 = 6;
    for order in [LaneOrder::HighestFirst, LaneOrder::HighTwice] {
        for number in 0..STEPS.len().pow(LENGTH) {
            let mut both = Both::new(Some(1), order);
            both.step(Step::Append { lane: 0, count: 3 });
            let mut rest = number;
            for _ in 0..LENGTH {
                both.step(STEPS[rest % STEPS.len()]);
                rest /= STEPS.len();
            }
        }
    }
}

#[test]
fn of_two_priorities_the_high_one_goes_twice_as_often_and_what_came_back_first() {
    let mut state = QueueState::new(false, None).with_order(LaneOrder::HighTwice);
    let mut changes = Changes::default();
    state.lane_mut(0).grow(4);
    state.lane_mut(1).grow(4);
    let mut next = |state: &mut QueueState| {
        let ready = state.first_ready().unwrap();
        state.hand_out(ready.id, None, true, 1, &mut changes);
        ready.id
    };
    let id = |lane, offset| DeliveryId { lane, offset };
    let first: Vec<_> = (0..2).map(|_| next(&mut state)).collect();
    assert_eq!(first, [id(1, 0), id(1, 1)]);
    assert_eq!(state.passed_over().map(|ready| ready.id), Some(id(1, 2)));
    let lanes: Vec<_> = (0..6).map(|_| next(&mut state).lane).collect();
    assert_eq!(lanes, [0, 1, 1, 0, 0, 0]);
    assert_eq!(state.passed_over(), None);
    state.lane_mut(1).grow(6);
    state.requeue(id(0, 2), &mut Changes::default());
    state.requeue(id(1, 1), &mut Changes::default());
    let back = [next(&mut state), next(&mut state), next(&mut state)];
    assert_eq!(
        back,
        [id(0, 2), id(1, 1), id(1, 4)],
        "in the order in which they came back"
    );
}

#[test]
fn what_is_put_back_as_if_nobody_had_taken_it_is_as_it_was() {
    for order in [LaneOrder::HighestFirst, LaneOrder::HighTwice] {
        let mut state = QueueState::new(false, None).with_order(order);
        let mut changes = Changes::default();
        state.lane_mut(0).grow(3);
        let consumer = state.consumers.add(ConsumerRules {
            credit: Some(3),
            settles: true,
            ..ConsumerRules::default()
        });
        let mut ids = Vec::new();
        while let Some(ready) = state.first_ready() {
            let handed = state.hand_out(ready.id, Some(consumer.unwrap()), true, 1, &mut changes);
            assert!(!handed.redelivered);
            ids.push(ready.id);
        }
        assert!(!state.consumers.any_ready(), "its credit is used up");
        assert!(ids.iter().all(|id| state.disown(*id)));
        assert!(state.consumers.any_ready(), "it is not asked for them any more");
        assert_eq!((state.in_flight(), state.ready()), (3, 0));
        changes.clear();
        assert!(ids.iter().rev().all(|id| state.return_unseen(*id, &mut changes)));
        assert!(changes.is_empty(), "there is nothing to be stored");
        for id in ids {
            let ready = state.first_ready().unwrap();
            assert_eq!(ready.id, id);
            let handed = state.hand_out(id, None, true, 1, &mut changes);
            assert_eq!((handed.redelivered, handed.returns), (false, 0));
        }
    }
}

#[test]
fn a_hundred_million_waiting_messages_take_no_memory_and_raggedness_takes_a_bit_each() {
    let mut state = QueueState::new(false, None);
    let mut changes = Changes::default();
    state.lane_mut(0).grow(100_000_000);
    assert_eq!(state.ready(), 100_000_000);
    let consumer = state.consumers.add(ConsumerRules::default()).unwrap();
    for _ in 0..100_000 {
        let ready = state.first_ready().unwrap();
        state.hand_out(ready.id, Some(consumer), true, 1, &mut changes);
    }
    for offset in (1..100_000).step_by(2) {
        let id = DeliveryId { lane: 0, offset };
        assert!(state.complete(id, &mut changes));
    }
    assert_eq!(state.in_flight(), 50_000);
    for offset in (0..100_000).step_by(2) {
        let id = DeliveryId { lane: 0, offset };
        assert!(state.complete(id, &mut changes));
    }
    assert_eq!(state.lane(0).unwrap().head(), 100_000);
    assert!(state.encode(false).len() < 20);
}

#[test]
fn lanes_in_turn_all_go_on_and_each_keeps_its_order() {
    let mut state = QueueState::new(false, None).with_order(LaneOrder::InTurn);
    let mut changes = Changes::default();
    for lane in [0, 1, 300] {
        state.lane_mut(lane).grow(1000);
    }
    let (mut last, mut turns) = (BTreeMap::new(), Vec::new());
    while let Some(ready) = state.first_ready() {
        assert_eq!(
            state.first_ready(),
            Some(ready),
            "it stays the next until it goes"
        );
        state.hand_out(ready.id, None, false, 1, &mut changes);
        let DeliveryId { lane, offset } = ready.id;
        assert_eq!(last.insert(lane, offset), offset.checked_sub(1), "in order");
        if turns.last() != Some(&lane) {
            turns.push(lane);
        }
    }
    assert_eq!(last.values().sum::<u64>(), 3 * 999);
    assert_eq!(turns[..6], [300, 1, 0, 300, 1, 0]);
    let mut again = QueueState::new(false, None).with_order(LaneOrder::InTurn);
    again.apply(&changes.encode()).unwrap();
    assert_eq!(
        again.encode(false),
        state.encode(false),
        "lanes beyond a byte are stored"
    );
}

#[test]
fn what_the_log_loses_is_lost_and_gives_its_credit_back() {
    let mut state = QueueState::new(false, None);
    let mut changes = Changes::default();
    let rules = ConsumerRules {
        credit: Some(2),
        settles: true,
        ..ConsumerRules::default()
    };
    let consumer = state.consumers.add(rules).unwrap();
    state.lane_mut(0).grow(10);
    for offset in 0..2 {
        state.hand_out(
            DeliveryId { lane: 0, offset },
            Some(consumer),
            true,
            1,
            &mut changes,
        );
    }
    assert!(!state.consumers.any_ready());
    assert_eq!(
        state.start_at(0, 5, &mut changes),
        3,
        "two of five were with somebody"
    );
    assert_eq!((state.in_flight(), state.ready()), (0, 5));
    assert!(state.consumers.any_ready());
    let had = DeliveryId { lane: 0, offset: 1 };
    assert!(!state.complete(had, &mut changes) && state.requeue(had, &mut changes).is_none());
    let mut again = QueueState::default();
    again.apply(&changes.encode()).unwrap();
    assert_eq!(again.lane(0).unwrap().head(), 5);
}

#[test]
fn state_of_version_1_is_read() {
    let mut state = QueueState::default();
    assert_eq!(state.restore(&[1, 0, 1, 200, 5, 0, 0, 0]), Ok(false));
    assert_eq!(state.apply(&[1, 1, 200, 5, 2, 5, 200, 9]), Ok(false));
    let lane = state.lane(200).unwrap();
    assert_eq!(lane.head(), 7);
}
