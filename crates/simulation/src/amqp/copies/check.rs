//! Comparison of all copies with the queues in which they were found.

use std::collections::BTreeMap;

use super::{Copies, Place, Settled, Stored};
use crate::world::Finding;

impl Copies {
    /// Compares all copies with the queues in which they were found, while nothing is going on.
    pub fn check(&mut self, found: &BTreeMap<(usize, Place), u32>) -> Result<(), Finding> {
        for (number, place) in found.keys() {
            let known = self.in_queue(*number, place.0);
            if known.is_none() {
                return Err(Finding(format!(
                    "message {number} is in queue {}, where nobody sent it",
                    place.0
                )));
            }
        }
        let clock_ms = self.clock_ms;
        for (id, copy) in &mut self.all {
            let times: u32 = copy
                .places(id.1)
                .filter_map(|place| found.get(&(id.0, place)))
                .sum();
            let is_good = match (copy.stored, copy.settled, times) {
                (_, _, 2..) => false,
                (_, _, 1) if !copy.times.may_be_out(clock_ms) => false,
                (Stored::Confirmed, Settled::No, 0) if copy.may_be_elsewhere(clock_ms) => true,
                (Stored::Never, _, times) | (_, Settled::Gone | Settled::At(_), times) => times == 0,
                (Stored::Confirmed, Settled::No, times) => times == 1,
                (Stored::Unknown, _, _) | (_, Settled::Perhaps | Settled::Pending(_), _) => true,
            };
            if !is_good {
                return Err(Finding(format!("{id:?} is there {times} times: {copy:?}")));
            }
        }
        Ok(())
    }

    /// Resolves uncertain states after a start by the copies that were found.
    pub fn resolve(&mut self, found: &BTreeMap<(usize, Place), u32>) {
        let clock_ms = self.clock_ms;
        for (id, copy) in &mut self.all {
            let is_there = copy.places(id.1).any(|place| found.contains_key(&(id.0, place)));
            let may_expire = copy.times.may_expire(clock_ms);
            match (copy.stored, is_there) {
                // It may wait at its exchange.
                (Stored::Unknown, false) if !copy.times.is_out(clock_ms) => {}
                (Stored::Unknown, true) => copy.stored = Stored::Confirmed,
                (Stored::Unknown, false) => copy.stored = Stored::Never,
                (Stored::Confirmed | Stored::Never, _) => {}
            }
            match (copy.settled, is_there) {
                (Settled::No, false) if may_expire => copy.settled = Settled::Gone,
                (Settled::Perhaps, true) => copy.settled = Settled::No,
                (Settled::Perhaps, false) if copy.times.is_out(clock_ms) => copy.settled = Settled::Gone,
                (
                    Settled::No | Settled::Perhaps | Settled::Pending(_) | Settled::At(_) | Settled::Gone,
                    _,
                ) => {}
            }
        }
    }
}
