//! Ranges of messages that callers take and settle by themselves, against a naive list.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "offsets are small, and a test fails by panicking"
)]

use proptest::prelude::*;
use stafett_queue::{Changes, ConsumerKey, DeliveryId, QueueState, ReturnOutcome};

const LIMIT: u32 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Waits(u32),
    InFlight(ConsumerKey, u32),
    Settled,
}

#[derive(Debug, Clone)]
enum Event {
    Append(u64),
    Take { from: u64, to: u64, count: u64 },
    Settle(u64),
    Return(u64),
    Renew(u64),
    Drop { from: u64, to: u64 },
    Restart,
    Reset(u64),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let at = 0..40_u64;
    let range = (at.clone(), 0..10_u64);
    let event = prop_oneof![
        3 => (1..8_u64).prop_map(Event::Append),
        6 => (range.clone(), 1..8_u64).prop_map(|((from, more), count)| Event::Take { from, to: from + more, count }),
        8 => at.clone().prop_map(Event::Settle),
        6 => at.clone().prop_map(Event::Return),
        2 => at.clone().prop_map(Event::Renew),
        1 => range.prop_map(|(from, more)| Event::Drop { from, to: from + more }),
        1 => Just(Event::Restart),
        1 => at.prop_map(Event::Reset),
    ];
    prop::collection::vec(event, 1..120)
}

struct Both {
    state: QueueState,
    stored: Vec<Vec<u8>>,
    naive: Vec<Place>,
    /// Messages below were taken or settled; a taken range may not pass over others.
    next: u64,
    last_key: u64,
}

fn id(offset: u64) -> DeliveryId {
    DeliveryId { lane: 0, offset }
}

impl Both {
    fn new() -> Self {
        let mut state = QueueState::default();
        state.set_delivery_limit(Some(LIMIT));
        state.lane_mut(0);
        Self {
            stored: vec![state.encode(false)],
            state,
            naive: Vec::new(),
            next: 0,
            last_key: 0,
        }
    }

    fn key(&mut self) -> ConsumerKey {
        self.last_key += 1;
        ConsumerKey(self.last_key)
    }

    fn pass_settled(&mut self) {
        while self.naive.get(self.next as usize) == Some(&Place::Settled) {
            self.next += 1;
        }
    }

    fn perform(&mut self, event: &Event) {
        let mut changes = Changes::default();
        match *event {
            Event::Append(count) => {
                self.naive.extend((0..count).map(|_| Place::Waits(0)));
                self.state.lane_mut(0).grow(self.naive.len() as u64);
            }
            Event::Take { from, to, count } => self.take(from, to, count),
            Event::Settle(at) => {
                let is_in_flight = matches!(self.place(at), Some(Place::InFlight(..)));
                assert_eq!(self.state.complete(id(at), &mut changes), is_in_flight);
                if is_in_flight {
                    self.naive[at as usize] = Place::Settled;
                }
            }
            Event::Return(at) => {
                let outcome = self.state.requeue(id(at), &mut changes);
                match self.place(at) {
                    Some(Place::InFlight(_, LIMIT)) => {
                        assert_eq!(outcome, Some(ReturnOutcome::TooOften));
                        self.state.complete(id(at), &mut changes);
                        self.naive[at as usize] = Place::Settled;
                    }
                    Some(Place::InFlight(_, returns)) => {
                        assert_eq!(outcome, Some(ReturnOutcome::Waits));
                        self.naive[at as usize] = Place::Waits(returns + 1);
                    }
                    _ => assert_eq!(outcome, None),
                }
            }
            Event::Renew(at) => {
                let key = self.key();
                let place = self.place(at);
                let is_given = self.state.give_to(id(at), key);
                assert_eq!(is_given, matches!(place, Some(Place::InFlight(..))));
                if let Some(Place::InFlight(_, returns)) = place {
                    self.naive[at as usize] = Place::InFlight(key, returns);
                }
            }
            Event::Drop { from, to } => {
                self.state.drop_range(0, from..to, &mut changes);
                for place in self.naive.iter_mut().take(to as usize).skip(from as usize) {
                    if matches!(place, Place::Waits(_)) {
                        *place = Place::Settled;
                    }
                }
            }
            Event::Restart => self.restart(),
            Event::Reset(start) => {
                self.state.reset_lane(0, start);
                self.stored = vec![self.state.encode(false)];
                let end = self.naive.len().max(start as usize);
                self.naive = (0..end as u64)
                    .map(|at| {
                        if at < start {
                            Place::Settled
                        } else {
                            Place::Waits(0)
                        }
                    })
                    .collect();
                self.state.lane_mut(0).grow(end as u64);
                self.next = start;
            }
        }
        self.pass_settled();
        if !changes.is_empty() {
            self.stored.push(changes.encode());
        }
    }

    fn place(&self, at: u64) -> Option<Place> {
        self.naive.get(at as usize).copied()
    }

    fn take(&mut self, from: u64, to: u64, count: u64) {
        let key = self.key();
        let mut left = count;
        let runs = self.state.take_range(0, from..to, key, |_, _| {
            let admits = left > 0;
            left = left.saturating_sub(1);
            admits
        });
        let taken: Vec<(u64, u32)> = runs
            .into_iter()
            .flat_map(|run| run.offsets.map(move |at| (at, run.returns)))
            .collect();
        let mut expected = Vec::new();
        for at in from..to.min(self.naive.len() as u64) {
            if expected.len() as u64 == count || at > self.next {
                break;
            }
            if let Some(Place::Waits(returns)) = self.place(at) {
                self.naive[at as usize] = Place::InFlight(key, returns);
                expected.push((at, returns));
                self.next = self.next.max(at + 1);
                self.pass_settled();
            }
        }
        assert_eq!(taken, expected);
    }

    /// Returns messages in flight to the queue, with their return counts as before.
    fn restart(&mut self) {
        let mut state = QueueState::default();
        state.set_delivery_limit(Some(LIMIT));
        state.restore(&self.stored[0]).unwrap();
        for delta in &self.stored[1..] {
            state.apply(delta).unwrap();
        }
        state.lane_mut(0).grow(self.naive.len() as u64);
        self.state = state;
        for place in &mut self.naive {
            if let Place::InFlight(_, returns) = *place {
                *place = Place::Waits(returns);
            }
        }
        self.next = 0;
        self.pass_settled();
    }

    fn check(&self) {
        let lane = self.state.lane(0).unwrap();
        let count = |wanted: fn(&Place) -> bool| self.naive.iter().filter(|place| wanted(place)).count();
        let in_flight = count(|place| matches!(place, Place::InFlight(..)));
        assert_eq!((self.state.in_flight(), lane.in_flight()), (in_flight, in_flight));
        assert_eq!(
            self.state.ready(),
            count(|place| matches!(place, Place::Waits(_))) as u64
        );
        assert_eq!(lane.unsettled(), count(|place| *place != Place::Settled) as u64);
        for (at, place) in (0..).zip(&self.naive) {
            let taken = lane.taken(at).map(|taken| (taken.consumer, taken.returns));
            let expected = match place {
                Place::InFlight(key, returns) => Some((Some(*key), *returns)),
                Place::Waits(_) | Place::Settled => None,
            };
            assert_eq!(taken, expected, "{at}");
        }
    }
}

proptest! {
    #[test]
    fn ranges_are_taken_and_settled_as_a_naive_list_says(events in events()) {
        let mut both = Both::new();
        for event in &events {
            both.perform(event);
            both.check();
        }
    }
}

#[derive(Debug, Clone)]
enum OfBytes {
    Append,
    Take,
    Return(usize),
    Drop,
    Count(u64),
    Anew,
}

fn of_bytes() -> impl Strategy<Value = Vec<OfBytes>> {
    let event = prop_oneof![
        3 => Just(OfBytes::Append),
        4 => Just(OfBytes::Take),
        3 => (0..8_usize).prop_map(OfBytes::Return),
        2 => Just(OfBytes::Drop),
        4 => (1..6_u64).prop_map(OfBytes::Count),
        1 => Just(OfBytes::Anew),
    ];
    prop::collection::vec(event, 0..60)
}

fn bytes_of(offset: u64) -> u32 {
    100 + offset as u32
}

/// Counts the bodies of up to `count` offsets that are not counted yet, as a scan does that reads the log.
fn count(state: &mut QueueState, counted: &mut u64, to: u64, count: u64) {
    let range = *counted..(*counted + count).min(to);
    let found: Vec<_> = range.clone().map(|at| (at, bytes_of(at))).collect();
    *counted = range.end;
    state.count_range(0, range, &found);
}

proptest! {
    #[test]
    fn bytes_are_exact_once_all_that_waited_is_counted(events in of_bytes()) {
        let mut state = QueueState::new(false, None);
        let mut changes = Changes::default();
        let mut end = 20;
        state.lane_mut(0).grow(end);
        state.count_bytes_from(0, end);
        let (mut counted, mut to) = (0, end);
        let mut taken = Vec::new();
        for event in events {
            let next = state.lane(0).unwrap().first_ready().map(|(offset, _)| DeliveryId { lane: 0, offset });
            match event {
                OfBytes::Append => {
                    state.add_bytes(bytes_of(end).into());
                    end += 1;
                    state.lane_mut(0).grow(end);
                }
                OfBytes::Take => {
                    if let Some(id) = next {
                        state.hand_out(id, None, true, bytes_of(id.offset), &mut changes);
                        taken.push(id);
                    }
                }
                OfBytes::Drop => {
                    if let Some(id) = next {
                        state.drop_ready(id, bytes_of(id.offset), &mut changes);
                    }
                }
                OfBytes::Return(at) if at < taken.len() => {
                    assert!(state.return_unseen(taken.swap_remove(at), &mut changes));
                }
                OfBytes::Return(_) => {}
                OfBytes::Count(some) => count(&mut state, &mut counted, to, some),
                OfBytes::Anew => {
                    state.count_bytes_from(0, end);
                    (counted, to) = (state.lane(0).unwrap().head(), end);
                }
            }
            let lane = state.lane(0).unwrap();
            let ready: u64 = (0..end).filter(|at| lane.ready_from(*at) == Some(*at)).map(|at| u64::from(bytes_of(at))).sum();
            prop_assert!(state.bytes_ready() <= ready);
            prop_assert!(state.is_partial() || state.bytes_ready() == ready);
        }
        count(&mut state, &mut counted, to, u64::MAX / 2);
        prop_assert!(!state.is_partial());
    }
}
