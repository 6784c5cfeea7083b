//! Choice of logs that a merge stores together: those that share much of their contents.
//!
//! A batch of several logs is stored once, and a merge should keep it so. So logs are *tied* by the frames
//! that they share. All frames of logs that are tied to each other, directly or indirectly, are stored in
//! arrival order, each once. The offsets of each log ascend in that order, so each log is contiguous in a
//! segment, as everywhere.
//!
//! A log that shares at most an eighth of its bytes is not tied by them: a notice to all queues should not
//! mix their messages. It is stored alone, with copies of the shared frames that hold only its own part. So a
//! merge writes at most an eighth more than if everything shared were tied.

use std::collections::{BTreeSet, HashMap};

use stafett_model::LogId;

use super::super::codec::{u32_of, usize_of};
use super::super::engine::Engine;
use super::super::sidecar::IndexEntry;
use super::input::{Input, LivenessCheck};
use super::merge::MergeError;

/// A log is tied if more than one in this many of its bytes is shared.
const SHARED_SHARE: u64 = 8;

pub(super) struct Ties {
    /// Logs that are stored alone, whatever they share: compaction changes their batches.
    apart: BTreeSet<LogId>,
    /// Tied logs by their index in `parents`. `None` if all logs are tied to each other.
    numbers: Option<HashMap<LogId, u32>>,
    /// Union-find parents; the root is the lowest index of a tie.
    parents: Vec<u32>,
    /// Frames of tied logs per input, by tie and position.
    frames: Vec<Vec<TiedFrame>>,
}

/// A frame of tied logs: its position, and its bytes in the segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TiedFrame {
    tie: u32,
    pub(super) byte: u32,
    pub(super) bytes: u32,
}

/// Bytes of a log that shares frames.
#[derive(Debug, Clone, Copy, Default)]
struct Sharer {
    shared: u64,
    all: u64,
}

impl Ties {
    /// Finds the ties from the indexes of `inputs`, segment by segment.
    pub(super) fn find(core: &Engine, inputs: &[Input], apart: BTreeSet<LogId>) -> Result<Self, MergeError> {
        let mut ties = match inputs {
            // Already in order except for dead data, and it fits into one segment again.
            [only] if only.is_sorted() && only.bytes() <= core.settings.segment_bytes.into() => {
                Self::of(None, 1)
            }
            // If its current order were cut in two, a log's offsets could interleave between both.
            [only] if only.is_sorted() => Self::of(Some(HashMap::new()), 0),
            _ => {
                let tied = tied_logs(core, inputs)?;
                let count = tied.len();
                Self::of(Some(tied), count)
            }
        };
        ties.apart = apart;
        if ties.parents.is_empty() {
            return Ok(ties);
        }
        for input in inputs {
            let frames = ties.tie(core, input)?;
            ties.frames.push(frames);
        }
        for number in 0..u32_of(ties.parents.len()) {
            ties.shorten(number);
        }
        let mut frames = std::mem::take(&mut ties.frames);
        for frames in &mut frames {
            for frame in frames.iter_mut() {
                frame.tie = ties.root(frame.tie);
            }
            frames.sort_unstable_by_key(|frame| (frame.tie, frame.byte));
        }
        ties.frames = frames;
        Ok(ties)
    }

    fn of(numbers: Option<HashMap<LogId, u32>>, count: usize) -> Self {
        Self {
            apart: BTreeSet::new(),
            numbers,
            parents: (0..u32_of(count)).collect(),
            frames: Vec::new(),
        }
    }

    /// Returns true if a log is tied to others.
    pub(super) fn has(&self, log: LogId) -> bool {
        self.number(log).is_some()
    }

    /// Returns true if a log belongs to a tie.
    pub(super) fn is_of(&self, log: LogId, tie: u32) -> bool {
        self.number(log).is_some_and(|number| self.root(number) == tie)
    }

    /// Visits the frames tie by tie, with the tie and the input's number.
    pub(super) fn each(
        &self,
        mut visit: impl FnMut(u32, usize, TiedFrame) -> Result<(), MergeError>,
    ) -> Result<(), MergeError> {
        let mut left: Vec<&[TiedFrame]> = self.frames.iter().map(Vec::as_slice).collect();
        while let Some(tie) = left.iter().filter_map(|it| it.first()).map(|it| it.tie).min() {
            for (input, frames) in left.iter_mut().enumerate() {
                let (now, later) = frames.split_at(frames.partition_point(|frame| frame.tie == tie));
                *frames = later;
                now.iter().try_for_each(|frame| visit(tie, input, *frame))?;
            }
        }
        Ok(())
    }

    fn number(&self, log: LogId) -> Option<u32> {
        if self.apart.contains(&log) {
            return None;
        }
        match &self.numbers {
            Some(numbers) => numbers.get(&log).copied(),
            None => Some(0),
        }
    }

    /// Ties the logs that share frames of an input, and returns the frames of all tied logs, by position.
    fn tie(&mut self, core: &Engine, input: &Input) -> Result<Vec<TiedFrame>, MergeError> {
        let mut alive = LivenessCheck::new(core);
        let mut frames = Vec::new();
        input.each(|entry| {
            if let Some(number) = self.number(entry.log)
                && alive.is(entry.log, entry.end())
            {
                frames.push(TiedFrame {
                    tie: number,
                    byte: entry.byte,
                    bytes: u32_of(entry.stored_bytes()),
                });
            }
        })?;
        frames.sort_unstable_by_key(|frame| frame.byte);
        frames.dedup_by(|next, frame| {
            let is_same = next.byte == frame.byte;
            if is_same {
                self.join(next.tie, frame.tie);
            }
            is_same
        });
        frames.shrink_to_fit();
        Ok(frames)
    }

    fn root(&self, mut number: u32) -> u32 {
        while let Some(parent) = self.parents.get(usize_of(number)).filter(|it| **it != number) {
            number = *parent;
        }
        number
    }

    fn join(&mut self, one: u32, other: u32) {
        let (one, other) = (self.shorten(one), self.shorten(other));
        if let Some(parent) = self.parents.get_mut(usize_of(one.max(other))) {
            *parent = one.min(other);
        }
    }

    /// Returns the root and points all nodes on the way directly to it.
    fn shorten(&mut self, mut number: u32) -> u32 {
        let root = self.root(number);
        while let Some(parent) = self.parents.get_mut(usize_of(number)).filter(|it| **it != root) {
            number = std::mem::replace(parent, root);
        }
        root
    }
}

/// Returns the logs that share enough to be tied, numbered in the order of their ids.
fn tied_logs(core: &Engine, inputs: &[Input]) -> Result<HashMap<LogId, u32>, MergeError> {
    let mut sharers: HashMap<LogId, Sharer> = HashMap::new();
    for input in inputs {
        input.each(|entry| {
            if entry.entries > 1 {
                sharers.entry(entry.log).or_default();
            }
        })?;
    }
    if sharers.is_empty() {
        return Ok(HashMap::new());
    }
    let mut alive = LivenessCheck::new(core);
    for input in inputs {
        input.each(|entry| {
            if let Some(sharer) = sharers.get_mut(&entry.log)
                && alive.is(entry.log, entry.end())
            {
                sharer.add(entry);
            }
        })?;
    }
    let tied = sharers.into_iter().filter(|(_, sharer)| sharer.is_tied());
    let mut tied: Vec<LogId> = tied.map(|(log, _)| log).collect();
    tied.sort_unstable();
    Ok(tied.into_iter().zip(0..).collect())
}

impl Sharer {
    fn add(&mut self, entry: &IndexEntry) {
        self.all += u64::from(entry.bytes);
        if entry.entries > 1 {
            self.shared += u64::from(entry.bytes);
        }
    }

    fn is_tied(self) -> bool {
        self.shared * SHARED_SHARE > self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_tied_in_several_steps_is_one_tie() {
        let mut ties = Ties::of(None, 8);
        for (one, other) in [(7, 5), (1, 2), (5, 2), (4, 6), (6, 4)] {
            ties.join(one, other);
        }
        let roots: Vec<_> = (0..8).map(|number| ties.root(number)).collect();
        assert_eq!(roots, [0, 1, 1, 3, 4, 1, 4, 1]);
    }

    #[test]
    fn ties_are_visited_one_after_the_other_through_all_inputs() {
        let frame = |tie, byte| TiedFrame { tie, byte, bytes: 8 };
        let mut ties = Ties::of(None, 3);
        ties.frames = vec![
            vec![frame(0, 30), frame(2, 10)],
            Vec::new(),
            vec![frame(0, 5), frame(0, 9), frame(1, 1)],
        ];
        let mut seen = Vec::new();
        let visited = ties.each(|tie, input, frame| {
            seen.push((tie, input, frame.byte));
            Ok(())
        });
        assert!(visited.is_ok());
        assert_eq!(seen, [(0, 0, 30), (0, 2, 5), (0, 2, 9), (1, 2, 1), (2, 0, 10)]);
    }

    #[test]
    fn a_log_that_shares_little_is_not_tied() {
        let tied = |shared, all| Sharer { shared, all }.is_tied();
        assert!(!tied(0, 100) && !tied(1, 8) && tied(2, 8) && tied(8, 8));
    }
}
