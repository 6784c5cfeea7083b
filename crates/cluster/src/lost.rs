//! Objects that could not be read: missing, changed, or refused by the store.
//!
//! Each is said once, counted while it lasts, and looked for after growing pauses. Nothing is begun meanwhile
//! that needs it: other pieces of its segment would be put again at each attempt.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;
use stafett_model::Lock;

use crate::agreement::is_referred_to;
use crate::objects::Part;
use crate::storage::SharedStorage;
use crate::transfer::at_once;
use crate::uplink::Uplink;

/// Pause before the first look for a lost object, and the longest one later on.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_mins(1);
/// Objects of one round of looks, of which there is one a second: all that are remembered have a turn within
/// some minutes.
const LOOKS_MAX: usize = 128;
/// Lost objects that are remembered. With more, no segment is sealed.
const LOST_MAX: usize = 10_000;

/// Lost objects by name.
#[derive(Debug)]
pub(crate) struct LostObjects {
    objects: Lock<BTreeMap<String, LostObject>>,
    count: Gauge,
}

#[derive(Debug)]
struct LostObject {
    file: String,
    part: Part,
    /// Time of the last look, by the clock of the settings.
    at: Duration,
    pause: Duration,
}

impl LostObjects {
    pub(crate) fn new(count: Gauge) -> Self {
        Self {
            objects: Lock::default(),
            count,
        }
    }

    /// Notes a read without success. True if it is the first one of the object.
    pub(crate) fn on_lost(&self, file: &str, part: &Part, now: Duration) -> bool {
        let mut objects = self.objects.lock();
        if let Some(lost) = objects.get_mut(&part.object) {
            // Other readers than this look do not prolong the pause.
            if lost.is_due(now) {
                lost.at = now;
                lost.pause = PAUSE_MAX.min(lost.pause * 2);
            }
            return false;
        }
        if objects.len() < LOST_MAX {
            let lost = LostObject {
                file: file.to_owned(),
                part: part.clone(),
                at: now,
                pause: PAUSE_MIN,
            };
            objects.insert(part.object.clone(), lost);
            self.show(&objects);
        }
        true
    }

    /// Forgets an object that was read, or that nothing needs any more. True if it was lost.
    pub(crate) fn forget(&self, object: &str) -> bool {
        let mut objects = self.objects.lock();
        let was_lost = objects.remove(object).is_some();
        if was_lost {
            self.show(&objects);
        }
        was_lost
    }

    pub(crate) fn has(&self, object: &str) -> bool {
        self.objects.lock().contains_key(object)
    }

    pub(crate) fn names(&self) -> BTreeSet<String> {
        self.objects.lock().keys().cloned().collect()
    }

    /// Returns true if there are more than can be remembered.
    pub(crate) fn is_full(&self) -> bool {
        self.objects.lock().len() >= LOST_MAX
    }

    /// Returns objects to look for now, with their files: those that wait for the longest time.
    fn due(&self, now: Duration) -> Vec<(String, Part)> {
        let objects = self.objects.lock();
        let mut due: Vec<&LostObject> = objects.values().filter(|lost| lost.is_due(now)).collect();
        due.sort_by_key(|lost| lost.at + lost.pause);
        due.truncate(LOOKS_MAX);
        due.into_iter()
            .map(|lost| (lost.file.clone(), lost.part.clone()))
            .collect()
    }

    fn show(&self, objects: &BTreeMap<String, LostObject>) {
        self.count.set(i64::try_from(objects.len()).unwrap_or(i64::MAX));
    }
}

impl LostObject {
    fn is_due(&self, now: Duration) -> bool {
        now.saturating_sub(self.at) >= self.pause
    }
}

impl Drop for LostObjects {
    /// The next owner has its own view.
    fn drop(&mut self) {
        self.count.set(0);
    }
}

impl Uplink {
    /// Notes a read of an object without success, and returns the error.
    pub(crate) fn on_lost(&self, file: &str, part: &Part, wrong: &str) -> io::Error {
        self.settings.metrics.missing_objects.inc();
        // A former owner that does not know its successor yet may meet objects that are deleted.
        let error = io::Error::other(format!("the object {} of {file} is {wrong}", part.object));
        if self.lost.on_lost(file, part, self.settings.clock.now()) {
            tracing::error!(%error, "an object is lost: what needs it waits until it is back");
        }
        error
    }

    /// Notes an object that was read.
    pub(crate) fn on_read(&self, part: &Part) {
        if self.lost.forget(&part.object) {
            tracing::info!(object = part.object, "an object that was lost is back");
        }
    }
}

impl SharedStorage {
    /// Looks for lost objects whose pause is over. Those that nothing refers to any more are forgotten.
    pub(crate) fn look_for_lost(&self) -> io::Result<()> {
        let uplink = &self.uplink;
        let due = uplink.lost.due(uplink.settings.clock.now());
        at_once(uplink.settings.requests_max, &due, |(file, part)| {
            if self.is_ending() {
                return Ok(());
            }
            if uplink.until_answered(|| is_referred_to(&*uplink.database, &part.object))? {
                // Its failure is noted.
                let _ = uplink.get(file, part);
                uplink.check()
            } else {
                uplink.lost.forget(&part.object);
                Ok(())
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_many_lost_objects_have_their_turn() {
        let lost = LostObjects::new(Gauge::default());
        let mut now = Duration::from_secs(1);
        for number in 0..1000 {
            lost.on_lost("segment", &Part::of(0, format!("a/{number:04}"), b"x"), now);
        }
        let mut seen = BTreeSet::new();
        let mut rounds = 0;
        while seen.len() < 1000 {
            now += Duration::from_secs(1);
            rounds += 1;
            for (file, part) in lost.due(now) {
                assert!(!lost.on_lost(&file, &part, now));
                seen.insert(part.object);
            }
            assert!(rounds <= 8, "{} of 1000", seen.len());
        }
    }

    #[test]
    fn a_lost_object_is_looked_for_after_growing_pauses_and_said_once() {
        let count = Gauge::default();
        let lost = LostObjects::new(count.clone());
        let part = Part::of(0, "a/1".to_owned(), b"x");
        let mut now = Duration::from_secs(100);
        assert!(lost.on_lost("segment", &part, now));
        for pause in [1, 2, 4, 8, 16, 32, 60, 60] {
            let early = now + Duration::from_millis(1000 * pause - 1);
            assert!(lost.due(early).is_empty(), "before {pause} s");
            assert!(!lost.on_lost("segment", &part, early), "a reader is no look");
            now += Duration::from_secs(pause);
            assert_eq!(lost.due(now), [("segment".to_owned(), part.clone())]);
            assert!(!lost.on_lost("segment", &part, now));
            assert_eq!(count.get(), 1);
        }
        assert!(lost.has("a/1") && !lost.is_full());
        assert!(lost.forget("a/1") && !lost.forget("a/1"));
        assert_eq!(count.get(), 0);
        assert!(lost.on_lost("segment", &part, now), "it is lost once more");
        drop(lost);
        assert_eq!(count.get(), 0);
    }
}
