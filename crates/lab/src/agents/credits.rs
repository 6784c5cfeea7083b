//! Bound on a role's messages in flight (`ahead`), on several hosts: each host may send until its clients
//! have made a number of messages in all, and hears of more in bulk.
//!
//! The numbers of all hosts together never exceed the messages that are known to be received, plus `ahead`:
//! so there are never more messages under way than `ahead`. There may be fewer, by the messages that came
//! since the last report, and by those that a host may send and does not.
//!
//! No host starves: the unused part of a host whose clients have ended goes to the others, and once every
//! message that was made has come, something is left to hand out.

use crate::workload::together::RoleProgress;

/// Less than this part of `ahead` is not handed out, unless a host has nothing left.
const BULK: u64 = 16;
/// Pieces of a hand-out.
const PIECES: u64 = 64;

/// Messages that a role's hosts may have made.
#[derive(Debug)]
pub(super) struct Credits {
    ahead: u64,
    /// By host; of those without clients of the role it stays 0.
    allowed: Vec<u64>,
    /// Hosts with clients that may still send.
    open: Vec<bool>,
}

impl Credits {
    /// `open`: by host, whether clients of the role sit there.
    pub(super) fn new(ahead: u64, open: Vec<bool>) -> Self {
        Self {
            ahead,
            allowed: vec![0; open.len()],
            open,
        }
    }

    /// By host, how many messages its clients may have made since the start.
    pub(super) fn allowed(&self) -> &[u64] {
        &self.allowed
    }

    /// Hands out the free part, evenly by the rest that each host may still send. `received` messages have
    /// come. Returns true if a host may send more than before.
    pub(super) fn hand_out(&mut self, received: u64, hosts: &[RoleProgress]) -> bool {
        let ended = hosts.iter().map(|host| host.has_ended.then_some(host.made));
        for ((allowed, open), made) in self.allowed.iter_mut().zip(&mut self.open).zip(ended) {
            if let Some(made) = made {
                // It sends no more.
                *open = false;
                *allowed = made.min(*allowed);
            }
        }
        let given = self
            .allowed
            .iter()
            .fold(0, |sum: u64, of_host| sum.saturating_add(*of_host));
        let free = self.ahead.saturating_add(received).saturating_sub(given);
        let mut needy: Vec<(usize, u64)> = Vec::new();
        for (place, host) in hosts.iter().enumerate() {
            if self.open.get(place).is_some_and(|open| *open) {
                needy.push((place, self.of(place).saturating_sub(host.made)));
            }
        }
        let has_nothing = needy.iter().any(|(_, unused)| *unused == 0);
        if needy.is_empty() || free == 0 || free < self.ahead / BULK && !has_nothing {
            return false;
        }
        self.level(free, needy);
        true
    }

    /// Fills up those that have least, piece by piece: each goes to the host with the least unused, and is a
    /// small part of the rest, at least a message.
    fn level(&mut self, mut free: u64, mut needy: Vec<(usize, u64)>) {
        while free > 0 {
            let piece = free.div_ceil(PIECES);
            // Of equal ones the host that was given least so far.
            let least = needy
                .iter_mut()
                .min_by_key(|(place, unused)| (*unused, self.of(*place)));
            let Some((place, unused)) = least else { return };
            *unused = unused.saturating_add(piece);
            free -= piece;
            if let Some(allowed) = self.allowed.get_mut(*place) {
                *allowed = allowed.saturating_add(piece);
            }
        }
    }

    fn of(&self, place: usize) -> u64 {
        self.allowed.get(place).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt as _, SeedableRng as _, rngs::SmallRng};

    use super::*;

    fn host(made: u64, has_ended: bool) -> RoleProgress {
        RoleProgress {
            made,
            has_ended,
            ..RoleProgress::default()
        }
    }

    #[test]
    fn whoever_sends_gets_what_comes_back_and_who_has_ended_gives_back() {
        let mut credits = Credits::new(100, vec![true, true, false]);
        let idle = host(0, true);
        assert!(credits.hand_out(0, &[host(0, false), host(0, false), idle]));
        assert_eq!(credits.allowed(), [50, 50, 0]);
        // The first one is slow; the second has sent all that it may, and thirty of it came.
        assert!(credits.hand_out(30, &[host(0, false), host(50, false), idle]));
        assert_eq!(credits.allowed(), [50, 80, 0]);
        assert!(
            !credits.hand_out(32, &[host(0, false), host(60, false), idle]),
            "too little to speak of"
        );
        assert!(credits.hand_out(80, &[host(3, true), host(80, false), idle]));
        assert_eq!(credits.allowed(), [3, 177, 0]);
        assert!(!credits.hand_out(80, &[host(3, true), host(80, true), idle]));
    }

    #[test]
    fn a_single_message_ahead_is_sent_in_turn() {
        let mut credits = Credits::new(1, vec![true, true]);
        for round in 0..10 {
            let made = [round / 2 + round % 2, round / 2];
            assert!(credits.hand_out(round, &made.map(|made| host(made, false))));
            assert_eq!(credits.allowed().iter().sum::<u64>(), round + 1);
        }
        assert_eq!(credits.allowed(), [5, 5]);
    }

    #[test]
    fn what_makes_no_sense_hands_nothing_out_twice() {
        let mut credits = Credits::new(u64::MAX, vec![true; 3]);
        for made in [0, u64::MAX, 1 << 60] {
            credits.hand_out(u64::MAX, &[host(made, false); 3]);
        }
        let before = credits.allowed().to_vec();
        assert!(!credits.hand_out(0, &[]), "nobody told anything");
        assert_eq!(credits.allowed(), before);
    }

    /// Hosts of all kinds: slow ones, such as tell late how far they are, and such as end.
    #[test]
    fn never_more_is_under_way_than_may_be_and_nobody_waits_for_ever() {
        for seed in 0..60 {
            let mut random = SmallRng::seed_from_u64(seed);
            let hosts = random.random_range(1..5_usize);
            let ahead = random.random_range(1..200_u64);
            let mut credits = Credits::new(ahead, vec![true; hosts]);
            let mut made = vec![0_u64; hosts];
            let mut ends: Vec<u64> = (0..hosts).map(|_| random.random_range(1..50)).collect();
            ends[0] = 200;
            let slow: Vec<u32> = (0..hosts).map(|_| random.random_range(1..20)).collect();
            let mut told = vec![RoleProgress::default(); hosts];
            let (mut received, mut known) = (0_u64, 0_u64);
            let mut steps = 0;
            while made != ends {
                steps += 1;
                assert!(steps < 1_000_000, "seed {seed}: {credits:?}");
                let place = random.random_range(0..hosts);
                match random.random_range(0..4) {
                    0 if random.random_ratio(1, slow[place]) => {
                        let may = credits.allowed()[place]
                            .min(ends[place])
                            .saturating_sub(made[place]);
                        made[place] += random.random_range(0..=may);
                    }
                    1 => received += random.random_range(0..=made.iter().sum::<u64>() - received),
                    2 => {
                        told[place] = host(made[place], made[place] == ends[place]);
                        known = known.max(received);
                    }
                    _ => {
                        credits.hand_out(known, &told);
                    }
                }
                assert!(made.iter().sum::<u64>() - received <= ahead, "seed {seed}");
            }
        }
    }
}
