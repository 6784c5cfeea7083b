//! Deliveries of share groups: which records members hold, and which must come again or must not.
//!
//! ```text
//!             acquired                  accepted, rejected: answered
//!   Free ────────────────▶ Held ──────────────────────────────────▶ Settled
//!    ▲                      │ │
//!    └── released, lock ends┘ └── not answered ──▶ Doubtful: settled, or free
//! ```

use std::collections::BTreeMap;

use super::{GAP, GROUPS, NOTICED_MS, RELEASE, RENEW, Rules};
use crate::ledger::LogKey;
use crate::world::Finding;

/// A member: its number, and the number of earlier ones in its place.
pub(super) type Holder = (u8, u32);
/// A group's place in a log.
pub(super) type PlaceKey = (u8, LogKey);

/// A record that a group was given.
#[derive(Debug, Clone, Copy)]
struct Delivered {
    fate: Fate,
    /// Deliveries before the next one, at least and at most.
    least: u32,
    most: u32,
    /// Deliveries that are stored.
    stored: u32,
    /// Unanswered fetches of the group that were over before its last delivery.
    unseen: u32,
}

/// Fetches of a group without an answer: each may have taken any records.
#[derive(Debug, Clone, Default)]
struct Unseen {
    count: u32,
    /// When the connections of the last ones ended. The broker may not have noticed yet, and still takes
    /// records for them.
    ended_ms: Vec<i64>,
}

impl Unseen {
    /// Returns the number of fetches that take no records any more.
    fn over(&self, now_ms: i64) -> u32 {
        let going_on = self.ended_ms.iter().filter(|ended| now_ms < **ended + NOTICED_MS);
        let going_on = u32::try_from(going_on.count()).unwrap_or(u32::MAX);
        self.count.saturating_sub(going_on)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Free,
    Held(Hold),
    Settled,
    Doubtful,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Hold {
    holder: Holder,
    /// The lock lasts at least until then.
    until_ms: i64,
    /// Acknowledgement that is not answered.
    sent: Option<i8>,
    /// True if there is no record at the offset.
    is_gap: bool,
}

/// An acknowledgement of one record, with the number of its delivery.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settled {
    pub(super) offset: u64,
    pub(super) kind: i8,
    count: u32,
}

/// A range of a log that a member acquired.
#[derive(Debug, Clone, Copy)]
pub(super) struct Delivery {
    pub(super) offset: u64,
    pub(super) count: u32,
    pub(super) is_gap: bool,
}

/// All deliveries.
#[derive(Debug, Clone, Default)]
pub(super) struct Deliveries {
    places: BTreeMap<PlaceKey, BTreeMap<u64, Delivered>>,
    /// Fetches without an answer, by group.
    unseen: [Unseen; GROUPS as usize],
    /// Time of the last turn.
    pub(super) now_ms: i64,
    /// True while the program stops: connections end one by one, so a record goes on to a second member,
    /// whose answer may be read first.
    pub(super) is_stopping: bool,
    /// Unanswered fetches before a place was emptied.
    emptied: BTreeMap<PlaceKey, u32>,
}

impl Deliveries {
    /// Returns the number of unanswered fetches of a group, and of those that are over.
    fn unseen(&self, group: u8) -> (u32, u32) {
        let unseen = self.unseen.get(usize::from(group));
        unseen.map_or((0, 0), |unseen| (unseen.count, unseen.over(self.now_ms)))
    }

    fn record(&mut self, key: PlaceKey, offset: u64) -> &mut Delivered {
        let unseen = self.emptied.get(&key).copied().unwrap_or(0);
        let place = self.places.entry(key).or_default();
        place.entry(offset).or_insert(Delivered {
            fate: Fate::Free,
            least: 0,
            most: 0,
            stored: 0,
            unseen,
        })
    }

    /// Handles a delivery. The fetch was sent at `sent_ms`.
    pub(super) fn deliver(
        &mut self,
        key: PlaceKey,
        delivery: Delivery,
        holder: Holder,
        (sent_ms, now_ms): (i64, i64),
        rules: &Rules,
    ) -> Result<(), Finding> {
        let ((unseen, over), is_stopping) = (self.unseen(key.0), self.is_stopping);
        let Delivery {
            offset,
            count,
            is_gap,
        } = delivery;
        let record = self.record(key, offset);
        let most = record.most + 1 + (unseen - record.unseen);
        let wrong = match record.fate {
            Fate::Settled => Some("settled"),
            Fate::Held(hold) if !is_stopping && hold.sent != Some(RELEASE) && now_ms < hold.until_ms => {
                Some("locked")
            }
            Fate::Held(_) | Fate::Free | Fate::Doubtful => None,
        };
        let is_counted = (record.least + 1..=most.min(rules.deliveries_max)).contains(&count);
        if wrong.is_some() || !is_counted && !is_stopping {
            return Err(Finding(format!(
                "offset {offset} of {key:?} is delivered to {holder:?} as {count} of {most}, {}: {record:?}",
                wrong.unwrap_or("free")
            )));
        }
        let count = if is_stopping {
            count.max(record.most)
        } else {
            count
        };
        // An acknowledgement of its last delivery may be on its way, and then settles this one.
        let sent = match record.fate {
            Fate::Held(hold) if hold.holder == holder => hold.sent,
            Fate::Held(_) | Fate::Free | Fate::Settled | Fate::Doubtful => None,
        };
        *record = Delivered {
            fate: Fate::Held(Hold {
                holder,
                until_ms: sent_ms + rules.lock_ms,
                sent,
                is_gap,
            }),
            least: count,
            most: count,
            stored: record.stored,
            unseen: over,
        };
        Ok(())
    }

    /// Returns the places in which a member holds records that it has not settled.
    pub(super) fn held_by(&self, group: u8, holder: Holder) -> Vec<PlaceKey> {
        let holds = |place: &BTreeMap<u64, Delivered>| {
            let mut records = place.values();
            records
                .any(|it| matches!(it.fate, Fate::Held(hold) if hold.holder == holder && hold.sent.is_none()))
        };
        let mine = self
            .places
            .iter()
            .filter(|((of, _), place)| *of == group && holds(place));
        mine.map(|(key, _)| *key).collect()
    }

    /// Settles up to `count` records of a place that a member holds; `kind` by offset.
    pub(super) fn settle(
        &mut self,
        key: PlaceKey,
        holder: Holder,
        count: usize,
        kind: impl Fn(u64) -> i8,
    ) -> Vec<Settled> {
        let mut settled = Vec::new();
        for (offset, record) in self.places.entry(key).or_default() {
            let Fate::Held(hold) = &mut record.fate else {
                continue;
            };
            if hold.holder != holder || hold.sent.is_some() || settled.len() >= count {
                continue;
            }
            let kind = if hold.is_gap { GAP } else { kind(*offset) };
            hold.sent = Some(kind);
            settled.push(Settled {
                offset: *offset,
                kind,
                count: record.most,
            });
        }
        settled
    }

    /// Handles the answer to acknowledgements that were sent at `sent_ms`: all took effect.
    pub(super) fn on_settled(
        &mut self,
        key: PlaceKey,
        holder: Holder,
        settled: &[Settled],
        sent_ms: i64,
        rules: &Rules,
    ) -> Result<(), Finding> {
        for one in settled {
            let record = self.record(key, one.offset);
            let mine = match &mut record.fate {
                Fate::Held(hold) if hold.holder == holder && hold.sent == Some(one.kind) => Some(hold),
                Fate::Held(_) | Fate::Free | Fate::Settled | Fate::Doubtful => None,
            };
            match (one.kind, mine) {
                (RENEW, Some(hold)) => {
                    (hold.sent, hold.until_ms) = (None, hold.until_ms.max(sent_ms + rules.lock_ms));
                }
                (RENEW, None) => {}
                (RELEASE, mine) => {
                    let is_mine = mine.is_some();
                    let count = if is_mine { record.most } else { one.count };
                    record.stored = record.stored.max(one.count);
                    if is_mine {
                        record.fate = if count >= rules.deliveries_max {
                            Fate::Settled
                        } else {
                            Fate::Free
                        };
                    }
                }
                (_, Some(_)) => record.fate = Fate::Settled,
                (_, None) => {
                    return Err(Finding(format!(
                        "{one:?} of {key:?} was taken from {holder:?}: {record:?}"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Handles the refusal of acknowledgements. `is_certain`: nothing of them took effect, unless a lock was
    /// over.
    pub(super) fn on_refused(
        &mut self,
        key: PlaceKey,
        holder: Holder,
        settled: &[Settled],
        is_certain: bool,
        now_ms: i64,
    ) -> Result<(), Finding> {
        let mut is_due = false;
        for one in settled {
            let record = self.record(key, one.offset);
            match &mut record.fate {
                Fate::Held(hold) if hold.holder == holder && hold.sent == Some(one.kind) => {
                    is_due |= hold.until_ms <= now_ms || record.most != one.count;
                    hold.sent = None;
                    if !is_certain {
                        record.fate = Fate::Doubtful;
                    }
                }
                Fate::Held(_) | Fate::Free | Fate::Settled | Fate::Doubtful => is_due = true,
            }
        }
        if is_certain && !is_due {
            return Err(Finding(format!(
                "{settled:?} of {key:?} is refused to {holder:?}, which holds it"
            )));
        }
        Ok(())
    }

    /// Handles the request of a member to end its session: unsettled records come again.
    pub(super) fn on_closing(&mut self, group: u8, holder: Holder) {
        let mine = self.places.iter_mut().filter(|((of, _), _)| *of == group);
        for record in mine.flat_map(|(_, place)| place.values_mut()) {
            if matches!(record.fate, Fate::Held(hold) if hold.holder == holder && hold.sent.is_none()) {
                record.fate = Fate::Free;
            }
        }
    }

    /// Handles the end of a member, or of its session: its records come again.
    pub(super) fn on_left(&mut self, group: u8, holder: Holder, unanswered_fetches: u32) {
        let now_ms = self.now_ms;
        if let Some(unseen) = self.unseen.get_mut(usize::from(group)) {
            unseen.ended_ms.retain(|ended| now_ms < *ended + NOTICED_MS);
            unseen.count += unanswered_fetches;
            unseen.ended_ms.extend((0..unanswered_fetches).map(|_| now_ms));
        }
        let mine = self.places.iter_mut().filter(|((of, _), _)| *of == group);
        for record in mine.flat_map(|(_, place)| place.values_mut()) {
            if let Fate::Held(hold) = record.fate
                && hold.holder == holder
            {
                record.fate = hold.sent.map_or(Fate::Free, |_| Fate::Doubtful);
            }
        }
    }

    /// Handles the end of the program. `is_clean`: all deliveries are counted.
    pub(super) fn on_death(&mut self, is_clean: bool) {
        self.unseen.iter_mut().for_each(|unseen| unseen.ended_ms.clear());
        for record in self.places.values_mut().flat_map(BTreeMap::values_mut) {
            if let Fate::Held(hold) = record.fate {
                record.fate = hold.sent.map_or(Fate::Free, |_| Fate::Doubtful);
            }
            if !is_clean {
                record.least = record.stored.min(record.least);
            }
        }
    }

    /// Checks, once a group has taken everything, that a record that must be there was not left out.
    pub(super) fn check_taken(&self, key: PlaceKey, offset: u64, rules: &Rules) -> Result<(), Finding> {
        let record = self.places.get(&key).and_then(|place| place.get(&offset));
        let since = record.map_or_else(
            || self.emptied.get(&key).copied().unwrap_or(0),
            |record| record.unseen,
        );
        let most = record.map_or(0, |record| record.most) + (self.unseen(key.0).0 - since);
        let is_settled = record.is_some_and(|record| matches!(record.fate, Fate::Settled | Fate::Doubtful));
        if is_settled || most >= rules.deliveries_max {
            return Ok(());
        }
        Err(Finding(format!(
            "offset {offset} of {key:?} does not come: {record:?}"
        )))
    }

    /// Records that a place was emptied.
    pub(super) fn on_emptied(&mut self, key: PlaceKey) {
        let (_, over) = self.unseen(key.0);
        self.emptied.insert(key, over);
    }
}

#[cfg(test)]
mod tests {
    use super::super::ACCEPT;
    use super::*;

    const RULES: Rules = Rules {
        lock_ms: 100,
        deliveries_max: 3,
        reads_committed: true,
    };
    const KEY: PlaceKey = (
        0,
        LogKey {
            topic: 0,
            incarnation: 0,
            partition: 0,
        },
    );

    fn take(all: &mut Deliveries, holder: Holder, count: u32, now_ms: i64) -> bool {
        let delivery = Delivery {
            offset: 7,
            count,
            is_gap: false,
        };
        let taken = all.deliver(KEY, delivery, holder, (now_ms, now_ms), &RULES);
        taken.is_ok()
    }

    #[test]
    fn a_held_record_comes_to_another_member_once_its_lock_is_over() {
        let mut all = Deliveries::default();
        assert!(take(&mut all, (0, 0), 1, 0));
        assert!(!take(&mut all.clone(), (1, 0), 2, 99), "it is locked");
        assert!(
            !take(&mut all.clone(), (1, 0), 3, 100),
            "the count goes up by one"
        );
        assert!(take(&mut all, (1, 0), 2, 100));
    }

    #[test]
    fn an_accepted_record_never_comes_and_an_unanswered_one_may() {
        let mut all = Deliveries::default();
        assert!(take(&mut all, (0, 0), 1, 0));
        let settled = all.settle(KEY, (0, 0), 1, |_| ACCEPT);
        let mut cut = all.clone();
        cut.on_left(0, (0, 0), 0);
        assert!(cut.check_taken(KEY, 7, &RULES).is_ok() && take(&mut cut, (1, 0), 2, 1));
        all.on_settled(KEY, (0, 0), &settled, 0, &RULES).unwrap();
        all.on_death(false);
        assert!(!take(&mut all, (1, 0), 2, 500));
    }

    #[test]
    fn a_fetch_whose_end_is_not_noticed_may_still_take_records() {
        let mut all = Deliveries::default();
        all.on_left(0, (1, 0), 1);
        let mut later = all.clone();
        assert!(take(&mut all, (0, 0), 1, 0) && take(&mut all.clone(), (2, 0), 3, 100));
        later.now_ms = NOTICED_MS;
        assert!(take(&mut later, (0, 0), 1, 0) && !take(&mut later.clone(), (2, 0), 3, 100));
        assert!(take(&mut later, (2, 0), 2, 100));
    }

    #[test]
    fn deliveries_that_are_not_stored_may_not_count_after_a_kill() {
        let mut all = Deliveries::default();
        assert!(take(&mut all, (0, 0), 1, 0));
        let settled = all.settle(KEY, (0, 0), 1, |_| RELEASE);
        all.on_settled(KEY, (0, 0), &settled, 0, &RULES).unwrap();
        assert!(take(&mut all, (0, 0), 2, 0));
        all.on_death(false);
        assert!(!take(&mut all.clone(), (0, 1), 1, 0), "one is stored");
        assert!(take(&mut all.clone(), (0, 1), 2, 0) && take(&mut all.clone(), (0, 1), 3, 0));
        assert!(all.check_taken(KEY, 7, &RULES).is_err());
    }
}
