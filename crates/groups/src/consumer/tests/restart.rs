//! Restoring a group from its stored state.

use super::script::play;
use super::world::World;
use crate::consumer::*;

/// Replaces the group by one restored from its stored state.
pub(crate) fn restart(world: &mut World) {
    let all = world.group.encode();
    world.group = ConsumerGroup::default();
    world.group.restore(&all, &world.rules, world.now_ms).unwrap();
    assert!(!world.group.has_changes());
}

/// Stores the changes behind the earlier ones, and now and then a snapshot. Returns the restored group.
pub(super) fn follow(group: &mut ConsumerGroup, stored: &mut Vec<Vec<u8>>, now_ms: u64) -> ConsumerGroup {
    if group.has_changes() {
        stored.push(group.take_changes());
    }
    assert!(!group.has_changes());
    let mut restored = ConsumerGroup::default();
    for piece in &*stored {
        restored.restore(piece, &Rules::default(), now_ms).unwrap();
    }
    if stored.len() > 7 {
        *stored = vec![group.encode()];
    }
    restored
}

#[test]
fn members_go_on_with_their_epochs() {
    play(
        "topic t 4
         topic u 1
         a as one joins t,~u.* => 1: t0 t1 t2 t3 u0
         a acks => 1
         b joins t => 2:
         a beats => 1: t0 t1 u0
         restart
         state => Reconciling 2/2
         a beats => 1
         b beats => 2
         a acks => 2
         restart
         b beats => 2: t2 t3
         b acks => 2
         restart
         a beats => 2
         b beats => 2
         state => Stable 2/2
         topic u2 1
         restart
         # The topic came while nobody looked.
         b beats => 3
         state => Reconciling 3/3",
    );
}

#[test]
fn sessions_begin_anew_with_a_restart() {
    play(
        "topic t 2
         a joins t => 1: t0 t1
         b joins t => 2:
         a beats => 1: t0
         passes 44000 =>
         restart
         passes 44999 =>
         passes 1 => a Session, b Session",
    );
}

#[test]
fn a_cut_piece_is_not_taken() {
    let mut world = World::default();
    super::script::play_in(
        &mut world,
        "topic t 2
         a as one joins t,~x => 1: t0 t1
         b joins t => 2:
         a beats => 1: t0",
    );
    let whole = world.group.encode();
    let mut taken = 0;
    for cut in 0..whole.len() {
        taken += usize::from(
            ConsumerGroup::default()
                .restore(&whole[..cut], &Rules::default(), 0)
                .is_some(),
        );
    }
    // The stored state can end after the version and after each piece.
    assert_eq!(taken, 1 + 1 + 2 * 3 - 1);
}
