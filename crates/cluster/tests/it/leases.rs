//! Leases: when a candidate claims, and when an owner ends by itself.

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use stafett_cluster::fake::{Effect, FakeDatabase, Fault};
use stafett_cluster::{Candidate, Claim, Database, Lease, Link, Look, Tenure};

/// Long enough for a busy machine.
const LEASE: Duration = Duration::from_secs(4);
const FIRST: Claim = Claim {
    epoch: 1,
    fence: Link {
        seq: 0,
        nonce: [0; 16],
    },
};

/// Returns a clock that shows the given seconds one after the other, and how it is read.
fn clock(seconds: &[u64]) -> impl FnMut() -> Duration {
    let mut seconds = seconds.iter().copied();
    move || Duration::from_secs(seconds.next().unwrap())
}

#[test]
fn a_look_that_was_answered_late_counts_from_its_answer() {
    let database = FakeDatabase::default();
    assert!(database.node().claim(0, [1; 16]).unwrap());
    let node: Arc<dyn Database> = database.node();
    let mut candidate = Candidate::new(node, [2; 16], LEASE);
    let mut look = |seconds: &[u64]| candidate.look(clock(seconds)).unwrap();
    assert_eq!(look(&[0, 3]), Look::Owned, "asked at 0, answered at 3");
    assert_eq!(look(&[6]), Look::Owned);
    assert!(matches!(look(&[7]), Look::Claimed(_)));
}

#[test]
fn a_beat_keeps_candidates_away() {
    let database = FakeDatabase::default();
    let owner = database.node();
    assert!(owner.claim(0, [1; 16]).unwrap());
    let node: Arc<dyn Database> = database.node();
    let mut candidate = Candidate::new(node, [2; 16], LEASE);
    for now in [0, 3, 6, 9] {
        assert_eq!(candidate.look(clock(&[now, now])).unwrap(), Look::Owned);
        assert!(owner.beat(1).unwrap());
    }
}

#[test]
fn a_candidate_does_not_wait_for_a_process_that_has_ended() {
    let database = FakeDatabase::default();
    assert!(database.node().claim(0, [1; 16]).unwrap());
    let node: Arc<dyn Database> = database.node();
    let mut candidate = Candidate::new(node, [2; 16], LEASE);
    candidate.on_ended([9; 16]);
    assert_eq!(
        candidate.look(clock(&[0, 0])).unwrap(),
        Look::Owned,
        "another one ended"
    );
    candidate.on_ended([1; 16]);
    assert!(matches!(candidate.look(clock(&[1])).unwrap(), Look::Claimed(_)));
}

#[test]
fn an_owner_without_answers_ends_before_its_lease() {
    let database = FakeDatabase::default();
    let silence = Fault {
        call: 1,
        is_done: false,
        effect: Effect::Silence,
    };
    assert!(database.node().claim(0, [1; 16]).unwrap());
    let node: Arc<dyn Database> = database.node_with(Some(silence));
    let (lost, losses) = mpsc::sync_channel(1);
    let tenure = Arc::<Tenure>::default();
    assert!(!tenure.holds());
    let begun = Instant::now();
    let lease = Lease::keep(node, FIRST, (LEASE, &tenure), move |reason| {
        lost.send(reason.to_owned()).unwrap();
    })
    .unwrap();
    let reason = losses.recv_timeout(10 * LEASE).unwrap();
    assert!(begun.elapsed() < LEASE, "{:?}", begun.elapsed());
    assert_eq!(lease.loss(), Some(reason));
    assert!(!tenure.holds());
}

#[test]
fn an_owner_that_misses_one_answer_goes_on() {
    let database = FakeDatabase::default();
    let fault = Fault {
        call: 1,
        is_done: false,
        effect: Effect::NoAnswer,
    };
    let owner = database.node();
    assert!(owner.claim(0, [1; 16]).unwrap());
    let node: Arc<dyn Database> = database.node_with(Some(fault));
    let (lost, losses) = mpsc::sync_channel(1);
    let tenure = Arc::<Tenure>::default();
    assert!(!tenure.holds());
    let lease = Lease::keep(node, FIRST, (LEASE, &tenure), move |reason| {
        lost.send(reason.to_owned()).unwrap();
    })
    .unwrap();
    let before = owner.owner().unwrap().beat;
    while owner.owner().unwrap().beat == before && losses.try_recv().is_err() {
        std::thread::yield_now();
    }
    assert_eq!(lease.loss(), None);
    assert!(tenure.holds());
    lease.release();
    assert!(!tenure.holds());
    assert_eq!(owner.owner().unwrap().node, None);
}
