//! Records of a task on their way to its worker.
//!
//! A fetch changes nothing but the offsets that count as delivered. It begins where the worker says, by
//! behind the last commit. So a lost answer loses nothing. A new claim begins at the safe offset, and
//! leaves out the records of finished keys.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use stafett_journal::Visibility;
use stafett_model::{LogId, Offset, StoredRecord};
use stafett_topics::{ReadEnd, RecordItem, RecordTail, SkipReason, Skipped, TopicCatalog};

use crate::definition::TimeRules;
use crate::entry::Position;
use crate::filter::{Passed, Selection};
use crate::mark::Mark;
use crate::pace::{Lowest, Pace, raise, size};
use crate::state::{DueTimer, TaskState};

/// Bytes that one fetch reads from a log, at most: some may have nothing for the task.
const READ_BYTES_MAX: usize = 16 << 20;
/// Timers in one delivery, at most.
const DUE_MAX: usize = 1000;
/// Timers that are delivered and not committed, and rises of the highest timestamp in records that are, at
/// most: a fetch ahead of them waits for a commit.
const AHEAD_MAX: usize = 1 << 16;

/// Timers by time and place, with the place behind their delivery, per input.
pub(crate) type Told = BTreeMap<(i64, u64), Arc<[u64]>>;

/// Deliveries of one claim.
#[derive(Debug, Clone, Default)]
pub(crate) struct Delivery {
    pub(crate) epoch: u64,
    /// Offsets at which a fetch begins, per input.
    pub(crate) base: Vec<u64>,
    /// Offsets behind all deliveries, per input.
    pub(crate) reached: Vec<u64>,
    /// Offsets at or behind `base` before which no record is left for the task, per input.
    clear: Vec<u64>,
    /// A range behind `clear` without a record for the task, per input.
    apart: Vec<(u64, u64)>,
    /// Lowest `next` and `safe` that a commit may name.
    pub(crate) lowest: Lowest,
    /// Gap that was accepted.
    pub(crate) accepted: Option<Gap>,
    /// Ends of the inputs at the last fetch.
    pub(crate) ends: Vec<u64>,
    /// Highest timestamp before `base`, per input.
    high: Vec<Option<i64>>,
    /// Rises of the highest timestamp behind `base`, by the offset behind each, per input.
    rises: Vec<VecDeque<(u64, i64)>>,
    /// Task time of the last commit.
    committed_ms: i64,
    /// Time of the clock, once everything was delivered and nothing came for a while.
    pub(crate) idle_ms: i64,
    /// Steady time since which nothing waits in any input.
    pub(crate) idle_since_ms: Option<i64>,
    /// Timers that were delivered, and that no commit has changed or passed since.
    pub(crate) told: Told,
    pub(crate) gap: Option<Gap>,
    /// Record that is delivered alone, and not committed: its input and offset.
    pub(crate) alone: Option<(usize, u64)>,
    /// Input that the next fetch looks at first.
    turn: usize,
}

/// A range of an input that is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    pub input: usize,
    pub from: u64,
    pub to: u64,
    /// `expired` or `damaged`.
    pub why: &'static str,
}

/// A record as it is delivered.
#[derive(Debug, Clone)]
pub struct Delivered {
    pub record: StoredRecord,
    /// True for a record behind the end of its key, or before task time.
    pub late: bool,
}

/// Answer to a fetch.
#[derive(Debug, Clone, Default)]
pub struct Fetched {
    /// Input of the records.
    pub input: usize,
    pub records: Vec<Delivered>,
    /// Timers that were due before the first record.
    pub due: Vec<DueTimer>,
    /// Place at which it began, per input.
    pub base: Vec<u64>,
    /// Place behind everything, per input.
    pub next: Vec<u64>,
    /// Stored position when it began, per input.
    pub(crate) position: Vec<u64>,
    /// Ends of the inputs.
    pub end: Vec<u64>,
    pub time: i64,
    /// Range that is gone and was passed over.
    pub gap: Option<Gap>,
    /// Records of its slice that were passed over.
    pub passed: Passed,
}

impl Fetched {
    /// True if there is nothing for the worker.
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty() && self.due.is_empty() && self.gap.is_none()
    }

    /// True if it passed over something that is not for the worker.
    pub(crate) fn has_moved(&self) -> bool {
        self.next != self.base
    }

    /// True if an input has more.
    pub(crate) fn has_more(&self) -> bool {
        self.next.iter().zip(&self.end).any(|(next, end)| next < end)
    }
}

/// Bounds of a fetch.
#[derive(Debug, Clone, Copy)]
pub struct FetchLimits {
    pub records: usize,
    pub bytes: usize,
}

/// Parts of the app that a delivery needs.
pub(crate) struct Source<'a> {
    pub(crate) catalog: &'a TopicCatalog,
    pub(crate) logs: &'a [LogId],
    pub(crate) selection: Selection<'a>,
    pub(crate) rules: TimeRules,
    pub(crate) stops_at_gap: bool,
    /// True for a task that has never committed and begins at the earliest offset: nothing of it can be
    /// lost.
    pub(crate) begins: bool,
}

impl Delivery {
    /// Begins the deliveries of a claim. Inputs of which something was done, behind `starts`, hold task time
    /// where it was committed.
    pub(crate) fn begin(epoch: u64, state: &TaskState, starts: &[u64], rules: TimeRules) -> Self {
        let position = &state.position;
        let committed = position.time.saturating_add_unsigned(rules.grace_ms);
        let is_known = |(next, start)| next > start && position.time > i64::MIN;
        let inputs = position.next.iter().zip(starts);
        Self {
            epoch,
            base: position.safe.clone(),
            reached: position.next.clone(),
            clear: position.safe.clone(),
            apart: vec![(0, 0); position.next.len()],
            lowest: Lowest::of(position),
            high: inputs.map(|input| is_known(input).then_some(committed)).collect(),
            rises: vec![VecDeque::new(); position.next.len()],
            committed_ms: position.time,
            idle_ms: i64::MIN,
            ..Self::default()
        }
    }

    /// Takes a commit of the claim.
    pub(crate) fn on_commit(&mut self, position: &Position) {
        let Position { next, time, .. } = position;
        let time = *time;
        self.committed_ms = time;
        self.high = self.high_at(next);
        for (rises, next) in self.rises.iter_mut().zip(next) {
            rises.retain(|(behind, _)| behind > next);
        }
        next.clone_into(&mut self.base);
        self.lowest.on_commit(position);
        raise(&mut self.clear, next);
        self.join_apart();
        // Its worker has done with those that came before the place, and may have others in hand.
        self.told.retain(|_, behind| is_behind(behind, next));
        self.alone = None;
    }

    /// Returns the number of timers that may be delivered.
    pub(crate) fn due_max(&self) -> usize {
        AHEAD_MAX.saturating_sub(self.told.len()).min(DUE_MAX)
    }

    /// Notes timers that are delivered.
    pub(crate) fn note_told(&mut self, due: &[(i64, u64)], next: &[u64]) {
        let behind: Arc<[u64]> = next.into();
        let due = due.iter().map(|timer| (*timer, Arc::clone(&behind)));
        self.told.extend(due);
    }

    /// Returns the place before which nothing is left for the task, and its time; `None` while a timer or a
    /// record on its own is under way.
    pub(crate) fn left_out(&self, rules: TimeRules) -> Option<(Vec<u64>, i64)> {
        let is_quiet = self.told.is_empty() && self.alone.is_none();
        is_quiet.then(|| (self.clear.clone(), self.time_at(rules, &self.clear)))
    }

    /// Notes a range without a record for the task.
    fn note_clear(&mut self, input: usize, from: u64, to: u64) {
        let Some((first, behind)) = self.apart.get_mut(input) else {
            return;
        };
        if *behind != from {
            *first = from;
        }
        *behind = to;
        self.join_apart();
    }

    /// Moves `clear` over ranges that it has reached, and forgets how timestamps rose before it: no place
    /// below it is asked for.
    fn join_apart(&mut self) {
        for (clear, (from, to)) in self.clear.iter_mut().zip(&self.apart) {
            if from <= clear {
                *clear = (*clear).max(*to);
            }
        }
        let inputs = self.clear.iter().zip(&mut self.high).zip(&mut self.rises);
        for ((clear, high), rises) in inputs {
            while let Some((_, rise)) = rises.pop_front_if(|(behind, _)| *behind <= *clear) {
                *high = (*high).max(Some(rise));
            }
        }
    }

    /// Returns the input whose records were delivered last.
    pub(crate) fn last_input(&self) -> usize {
        let inputs = self.base.len().max(1);
        (self.turn + inputs - 1) % inputs
    }

    /// Takes the reach of another fetch of the claim.
    pub(crate) fn merge_reached(&mut self, other: &Self) {
        raise(&mut self.reached, &other.reached);
    }

    /// Takes what another fetch of the claim has delivered, while a commit was stored.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.merge_reached(other);
        let told = other.told.iter();
        let told = told.filter(|(_, behind)| is_behind(behind, &self.base));
        self.told
            .extend(told.map(|(timer, behind)| (*timer, Arc::clone(behind))));
    }

    /// Moves places over records that are not for the task.
    pub(crate) fn pass_clear(&self, places: &mut [u64]) {
        raise(places, &self.clear);
    }

    /// Returns the highest timestamps before a place.
    fn high_at(&self, next: &[u64]) -> Vec<Option<i64>> {
        let inputs = self.high.iter().zip(&self.rises).zip(next);
        let high = inputs.map(|((high, rises), next)| {
            let count = rises.partition_point(|(behind, _)| behind <= next);
            let rise = count.checked_sub(1).and_then(|last| rises.get(last));
            rise.map(|(_, high)| *high).or(*high)
        });
        high.collect()
    }

    /// Returns task time at a place.
    pub(crate) fn time_at(&self, rules: TimeRules, next: &[u64]) -> i64 {
        if !rules.of_records {
            return self.idle_ms;
        }
        let lowest = self.pace(next, None).lowest();
        let of_records = lowest.map_or(i64::MIN, |lowest| lowest.saturating_sub_unsigned(rules.grace_ms));
        let is_all = self
            .reached
            .iter()
            .zip(next)
            .all(|(reached, next)| next >= reached);
        let of_clock = if is_all { self.idle_ms } else { i64::MIN };
        self.committed_ms.max(of_records).max(of_clock)
    }

    /// Returns the pace of records at a place. While an input has records and none of them was read, but for
    /// the one that is read now, task time does not go on.
    fn pace(&self, next: &[u64], reading: Option<usize>) -> Pace {
        let high = self.high_at(next);
        let mut inputs = high.iter().zip(next).zip(&self.ends).enumerate();
        let waits = |(input, ((high, next), end)): (usize, ((&Option<i64>, &u64), &u64))| {
            high.is_none() && next < end && reading != Some(input)
        };
        Pace {
            is_held: inputs.any(waits),
            high,
            time: i64::MIN,
        }
    }

    /// False if a fetch from this place has to wait for a commit. Records before it may be read again.
    fn may_rise(&self, input: usize, place: u64) -> bool {
        let rises = self.rises.get(input);
        rises.is_none_or(|rises| {
            rises.len() < AHEAD_MAX || rises.back().is_some_and(|(behind, _)| place < *behind)
        })
    }

    fn note_time(&mut self, input: usize, record: &StoredRecord) {
        let known = self.high.get(input).copied().flatten();
        let Some(rises) = self.rises.get_mut(input) else {
            return;
        };
        let first = (0, known.unwrap_or(i64::MIN));
        let (behind, high) = rises.back().copied().unwrap_or(first);
        if record.offset.0 >= behind && record.timestamp > high {
            rises.push_back((record.offset.0 + 1, record.timestamp));
        }
    }

    /// Reads the next records of one input, from `fetched.next` on. Returns false if there is none.
    pub(crate) async fn read(
        &mut self,
        source: &Source<'_>,
        mark: &Mark,
        limits: FetchLimits,
        fetched: &mut Fetched,
    ) -> Result<bool, ReadEnd> {
        let inputs = source.logs.len();
        for step in 0..inputs {
            let input = (self.turn + step) % inputs.max(1);
            if self.read_input(source, mark, input, limits, fetched).await? {
                self.turn = (input + 1) % inputs.max(1);
                return Ok(true);
            }
            if self.gap.is_some() {
                return Ok(false);
            }
        }
        Ok(false)
    }

    async fn read_input(
        &mut self,
        source: &Source<'_>,
        mark: &Mark,
        input: usize,
        limits: FetchLimits,
        fetched: &mut Fetched,
    ) -> Result<bool, ReadEnd> {
        let mut pace = Pace {
            time: fetched.time,
            ..self.pace(&fetched.next, Some(input))
        };
        let (Some(log), Some(next)) = (source.logs.get(input), fetched.next.get_mut(input)) else {
            return Ok(false);
        };
        let began = *next;
        let mut tail = RecordTail::new(*log, Offset(began), limits.bytes.max(1), Visibility::Committed);
        let (mut bytes, hold) = (0, mark.hold(input));
        while fetched.records.len() < limits.records && bytes < limits.bytes && self.may_rise(input, *next) {
            match tail.item() {
                Some(RecordItem::Record(record)) if record.offset.0 > hold => break,
                Some(RecordItem::Record(record)) => {
                    let offset = record.offset.0;
                    let mut passed = fetched.passed;
                    let is_left = source
                        .selection
                        .passes_over(mark, input, &record, &mut passed)
                        .await;
                    // One that fails may be passed over since.
                    if !is_left && offset == hold {
                        break;
                    }
                    let is_alone = !is_left && mark.is_alone(input, offset);
                    if is_alone && self.alone.is_some_and(|known| known != (input, offset)) {
                        break;
                    }
                    *next = offset + 1;
                    fetched.passed = passed;
                    // Records that are passed over move task time too: it is a fact of the place.
                    self.note_time(input, &record);
                    let late = pace.take(source.rules, mark, input, &record);
                    if !is_left {
                        bytes += size(&record);
                        fetched.records.push(Delivered { record, late });
                        self.alone = is_alone.then_some((input, offset)).or(self.alone);
                    }
                    if is_alone || mark.next_timer.is_some_and(|due| due <= pace.time) {
                        break; // A delivery ends where a timer falls due.
                    }
                }
                Some(RecordItem::Skipped(skipped)) => {
                    if !fetched.records.is_empty() {
                        break;
                    }
                    if !self.pass_gap(source, Gap::of(input, skipped), &mut fetched.gap) {
                        return Ok(false);
                    }
                    *next = skipped.to.0;
                }
                None if tail.bytes_read() >= READ_BYTES_MAX => break,
                None => match tail.read(source.catalog).await {
                    Ok(()) => {}
                    Err(ReadEnd::AtEnd) => {
                        // Offsets without records are done.
                        *next = (*next).max(tail.next_offset().0);
                        break;
                    }
                    Err(why) => return Err(why),
                },
            }
        }
        let reached = *next;
        self.note_read(input, began, reached, fetched);
        Ok(!fetched.records.is_empty() || reached > began || fetched.gap.is_some())
    }

    /// Notes that an input was read from one place to another.
    fn note_read(&mut self, input: usize, began: u64, reached: u64, fetched: &mut Fetched) {
        fetched.input = input;
        if let Some(known) = self.reached.get_mut(input) {
            *known = reached.max(*known);
        }
        match fetched.records.first() {
            Some(_) if fetched.gap.is_some() => {}
            Some(first) => self.note_clear(input, began, first.record.offset.0),
            None => self.note_clear(input, began, reached),
        }
    }

    /// Returns false if the task rests at a gap. Nothing is lost to a task that begins.
    fn pass_gap(&mut self, source: &Source<'_>, gap: Gap, passed: &mut Option<Gap>) -> bool {
        if source.begins || self.accepted == Some(gap) {
            return true;
        }
        if source.stops_at_gap {
            self.gap = Some(gap);
            return false;
        }
        passed.get_or_insert(gap);
        true
    }
}

/// True for a place that is not before another one, in any input.
fn is_behind(place: &[u64], other: &[u64]) -> bool {
    place.iter().zip(other).all(|(place, other)| place >= other)
}

impl Gap {
    fn of(input: usize, skipped: Skipped) -> Self {
        let why = match skipped.why {
            SkipReason::Damaged => "damaged",
            SkipReason::Expired | SkipReason::Gap => "expired",
        };
        Self {
            input,
            from: skipped.from.0,
            to: skipped.to.0,
            why,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A commit that has passed a timer by has it come again.
    #[test]
    fn a_fetch_that_a_commit_overtakes_brings_back_no_timer_before_its_place() {
        let mut known = Delivery {
            base: vec![3, 2],
            ..Delivery::default()
        };
        let mut other = Delivery::default();
        for (at, behind) in [[3, 1], [3, 2], [4, 2]].iter().enumerate() {
            other.note_told(&[(0, at as u64)], behind);
        }
        known.merge(&other);
        assert!(known.told.keys().eq(&[(0, 1), (0, 2)]));
    }
}
