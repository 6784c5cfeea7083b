//! Members that leave or are removed.

use super::script::play;

#[test]
fn what_a_member_had_goes_to_those_who_stay() {
    play(
        "topic t 2
         a joins t => 1: t0 t1
         b joins t => 2:
         a beats => 1: t0
         a acks => 2
         b beats => 2: t1
         b acks => 2
         a leaves => -1
         state => Assigning 3/2
         b beats => 3: t0 t1
         b leaves => -1
         state => Empty 4/3
         b beats => UnknownMember
         b leaves => UnknownMember",
    );
}

#[test]
fn who_is_silent_for_a_session_is_put_out() {
    play(
        "topic t 2
         a joins t => 1: t0 t1
         b joins t => 2:
         passes 30000 =>
         b beats => 2
         passes 14999 =>
         passes 1 => a Session
         b beats => 3: t0 t1
         a beats => UnknownMember",
    );
}

#[test]
fn who_does_not_give_back_in_time_is_put_out() {
    play(
        "topic t 2
         a joins t => 1: t0 t1
         b joins t => 2:
         a beats => 1: t0
         passes 30000 =>
         a beats => 1
         b beats => 2
         passes 29999 =>
         a beats => 1
         b beats => 2
         passes 1 => a Rebalance
         b beats => 3: t0 t1
         a beats => UnknownMember",
    );
}

#[test]
fn a_member_of_another_epoch_is_fenced() {
    play(
        "topic t 1
         a joins t => 1: t0
         a at 7
         a beats => FencedEpoch
         b joins t => 2:
         a at 1
         a acks => 2
         # One epoch behind, and without more than it may have: an answer was lost.
         a at 1
         a acks => 2
         a at 1
         a beats => FencedEpoch
         a at -1
         a leaves => -1",
    );
}

#[test]
fn a_static_member_that_pauses_keeps_what_it_has() {
    play(
        "topic t 2
         a as one joins t => 1: t0 t1
         b as two joins t => 2:
         a beats => 1: t0
         a acks => 2
         b beats => 2: t1
         a pauses => -2
         state => Reconciling 2/2
         b beats => 2
         # Comes back as somebody else.
         c as one joins t => 2: t0
         restart
         c beats => 2
         state => Stable 2/2
         a beats => UnknownMember",
    );
}

#[test]
fn a_static_member_has_one_owner() {
    play(
        "topic t 1
         a as one joins t => 1: t0
         b as one joins t => UnreleasedInstance
         a as one joins t => UnreleasedInstance
         a pauses => -2
         c as one joins t => 1: t0",
    );
}

#[test]
fn the_old_owner_of_an_instance_is_fenced() {
    play(
        "topic t 1
         a as one joins t => 1: t0
         a pauses => -2
         c as one joins t => 1: t0
         a as one joins t => UnreleasedInstance",
    );
}

#[test]
fn a_static_member_that_does_not_come_back_is_put_out() {
    play(
        "topic t 2
         a as one joins t => 1: t0 t1
         b joins t => 2:
         a beats => 1: t0
         a acks => 2
         b beats => 2: t1
         a pauses => -2
         passes 40000 =>
         b beats => 2
         passes 5000 => a Session
         b beats => 3: t0 t1",
    );
}

#[test]
fn who_is_behind_may_commit_what_it_has_had() {
    play(
        "topic t 4
         x commits -1 t0 => fine
         a joins t => 1: t0 t1 t2 t3
         x commits -1 t0 => UnknownMember
         a commits 1 t0 => fine
         a commits 2 t0 => StaleEpoch
         b joins t => 2:
         a beats => 1: t0 t1
         # Still has to give these back, and commits them before.
         a commits 1 t2 t3 => fine
         a acks => 2
         a commits 1 t0 => fine
         a commits 1 t2 => StaleEpoch
         b beats => 2: t2 t3
         b commits 1 t2 => StaleEpoch
         b commits 2 t2 => fine",
    );
}
