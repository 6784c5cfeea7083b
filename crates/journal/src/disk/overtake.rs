//! Order of appends while the body of another is written in chunks.
//!
//! Appends are written in the order of staging, with one exception: while one append is written ahead in
//! chunks, others go into the write groups in between. The remaining order is the one of the contract:
//! appends that share a log keep their order, and so do those that change anything besides batches. Only one
//! body is written in chunks at a time.

use std::collections::{HashSet, VecDeque};

use stafett_model::LogId;

use super::control::Control;
use super::write_queue::{StagedAppend, WriteQueueState};
use crate::request_ids;

/// Bytes of chunks that are written during one sync while appends wait for syncs.
const CHUNKS_PER_SYNC: usize = 1 << 20;

/// Space for a write group, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    /// Limit of a group, unless a single append is larger.
    pub(crate) group: usize,
    /// Space left in the segment being written; `segment` is that of an empty one.
    pub(crate) left: usize,
    pub(crate) segment: usize,
}

/// Appends that stay in the queue, and may not be overtaken by those that must follow them.
#[derive(Debug, Default)]
struct BlockingAppends {
    logs: HashSet<LogId>,
    any: bool,
    all: bool,
}

impl BlockingAppends {
    fn add(&mut self, staged: &StagedAppend) {
        self.any = true;
        self.all |= staged.seals || controls_of(staged).any(|control| !is_of_one_log(control));
        let logs = staged.frames.iter().flat_map(|frame| &frame.logs);
        self.logs.extend(logs.map(|(log, _)| log.id));
    }

    fn holds(&self, staged: &StagedAppend) -> bool {
        // An append without frames waits for everything before it to be written.
        self.all || self.any && (staged.frames.is_empty() || self.shares_a_log(staged))
    }

    fn shares_a_log(&self, staged: &StagedAppend) -> bool {
        let mut logs = staged.frames.iter().flat_map(|frame| &frame.logs);
        logs.any(|(log, _)| self.logs.contains(&log.id))
            || controls_of(staged).any(|control| match control {
                Control::State(_) | Control::CreateLogs { .. } => false,
                Control::ChangeLogs { first, count, .. } | Control::DeleteLogs { first, count } => {
                    let ids = first.0..first.0 + u64::from(*count);
                    self.logs.iter().any(|log| ids.contains(&log.0))
                }
                Control::Truncate { log, .. } | Control::Reserve { log, .. } | Control::Own { log, .. } => {
                    self.logs.contains(log)
                }
                // These refer to everything staged before.
                Control::Started { .. } | Control::StoppedCleanly { .. } | Control::Segments { .. } => true,
            })
    }
}

/// Returns true if a control only has to keep the order of one log.
fn is_of_one_log(control: &Control) -> bool {
    match control {
        Control::Reserve { .. } | Control::Own { .. } => true,
        // Each id is put and deleted once, and no caller needs two of them together.
        Control::State(change) => change.space == request_ids::SPACE,
        Control::CreateLogs { .. }
        | Control::ChangeLogs { .. }
        | Control::DeleteLogs { .. }
        | Control::Truncate { .. }
        | Control::Started { .. }
        | Control::StoppedCleanly { .. }
        | Control::Segments { .. } => false,
    }
}

fn controls_of(staged: &StagedAppend) -> impl Iterator<Item = &Control> {
    staged.frames.iter().filter_map(|frame| frame.control.as_deref())
}

impl WriteQueueState {
    /// Moves the appends of the next group into `out`; returns the bytes that the segment has to keep free
    /// for the rest of an append in chunks.
    pub(super) fn take_around(&mut self, room: Room, out: &mut Vec<StagedAppend>) -> usize {
        let mut held = BlockingAppends::default();
        let mut staged = std::mem::take(&mut self.staged).into_iter();
        let mut kept = VecDeque::new();
        let (mut bytes, mut promised) = (0, 0);
        // An append begun in a segment has to end there.
        let mut limit = if self.is_open { room.left } else { usize::MAX };
        let mut cut_seen = false;
        for mut append in staged.by_ref() {
            let is_cut = !append.ahead.is_empty();
            if held.holds(&append) || is_cut && cut_seen {
                cut_seen |= is_cut;
                held.add(&append);
                kept.push_back(append);
                continue;
            }
            if is_cut {
                cut_seen = true;
                let whole = bytes + append.ahead_bytes + append.bytes;
                if !self.is_open {
                    limit = if whole <= room.left {
                        room.left
                    } else {
                        room.segment
                    };
                }
                if !self.is_paced() && (whole <= limit || bytes == 0) {
                    bytes += self.take_chunk(&mut append, out);
                }
                if !append.ahead.is_empty() {
                    promised = if self.is_open {
                        append.ahead_bytes + append.bytes
                    } else {
                        0
                    };
                    held.add(&append);
                    kept.push_back(append);
                    continue;
                }
                self.is_open = false;
                self.cut -= 1;
            } else {
                let fits = bytes == 0 || bytes + append.bytes <= room.group;
                if !fits || bytes + append.bytes + promised > limit {
                    kept.push_back(append);
                    break;
                }
            }
            bytes += append.bytes;
            let seals = append.seals;
            self.hand_out(append, out);
            if seals {
                break;
            }
        }
        kept.extend(staged);
        self.staged = kept;
        promised
    }

    /// Returns true if chunks wait until the running sync ends: appends that wait for the next sync also wait
    /// for everything written until then.
    fn is_paced(&self) -> bool {
        self.sync_has_recent_waiter && self.chunks_since >= CHUNKS_PER_SYNC
    }

    /// Moves the next chunk of an append into `out`; returns its bytes.
    fn take_chunk(&mut self, append: &mut StagedAppend, out: &mut Vec<StagedAppend>) -> usize {
        let Some(chunk) = append.next_chunk() else {
            return 0;
        };
        self.is_open = true;
        let bytes = chunk.bytes;
        self.chunks_since += bytes;
        self.bytes -= bytes;
        out.push(chunk);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use proptest::prelude::*;
    use smallvec::SmallVec;
    use stafett_model::{Epoch, Offset};

    use super::super::frame::{FrameEntry, FrameKind, Head};
    use super::super::log::Log;
    use super::super::write_queue::{StagedFrame, Wait};
    use super::*;
    use crate::contract::{Change, Selection, StateChange, StateSpace};

    const GROUP: usize = 4096;
    const SEGMENT: usize = 40_000;

    #[derive(Debug, Clone)]
    struct Item {
        logs: Vec<u64>,
        state: bool,
        chunks: usize,
        bytes: usize,
    }

    fn items() -> impl Strategy<Value = Vec<Item>> {
        let chunks = prop_oneof![4 => Just(0), 1 => 1..12_usize];
        let item = (
            prop::collection::vec(0..5_u64, 0..3),
            any::<bool>(),
            chunks,
            100..3000_usize,
        )
            .prop_map(|(logs, state, chunks, bytes)| Item {
                state: state && logs.len() < 2,
                // Only batches have bodies to cut.
                chunks: if logs.is_empty() { 0 } else { chunks },
                logs,
                bytes,
            });
        prop::collection::vec(item, 1..40)
    }

    fn frame(kind: FrameKind, logs: &[u64], body_bytes: usize, control: Option<Control>) -> StagedFrame {
        let entry = |log: &u64| FrameEntry {
            log: LogId(*log),
            base: Offset(0),
            span: 1,
            epoch: Epoch(1),
            records: Selection::All,
        };
        StagedFrame {
            head: Head {
                kind,
                more: false,
                body_bytes,
                body_checksum: 0,
                date: 0,
                span: 1,
                entries: logs.iter().map(entry).collect(),
            },
            body: Bytes::new(),
            logs: logs
                .iter()
                .map(|log| (Arc::new(Log::new(LogId(*log), Arc::default())), Wait::Written))
                .collect(),
            control: control.map(Box::new),
            reserves: None,
        }
    }

    /// Builds an append with its number in `sync_within_ms`.
    fn staged(number: u32, item: &Item) -> StagedAppend {
        let mut frames = SmallVec::new();
        if !item.logs.is_empty() {
            frames.push(frame(FrameKind::Batch, &item.logs, item.bytes, None));
        }
        if item.state {
            let change = StateChange {
                space: StateSpace(1),
                key: Bytes::new(),
                change: Change::Delete,
            };
            frames.push(frame(FrameKind::Control, &[], 20, Some(Control::State(change))));
        }
        let ahead: VecDeque<_> = (0..item.chunks)
            .map(|_| frame(FrameKind::Chunk, &[], 1000, None))
            .collect();
        StagedAppend {
            frames,
            settler: None,
            placed: SmallVec::new(),
            wait: Wait::Written,
            sync_within_ms: number,
            interval: None,
            bytes: item.bytes,
            ahead_bytes: ahead.iter().map(|it| it.head.frame_bytes() + 64).sum(),
            ahead,
            seals: false,
            charge: 0,
            pinned_bytes: 0,
        }
    }

    /// Returns true if the second of two appends has to follow the first.
    fn has_to_follow(first: &Item, second: &Item) -> bool {
        let is_empty = second.logs.is_empty() && !second.state;
        is_empty || first.state && second.state || first.logs.iter().any(|log| second.logs.contains(log))
    }

    proptest! {
        #[test]
        fn everything_is_written_once_and_what_belongs_together_in_order(items in items()) {
            let mut state = WriteQueueState::default();
            for (number, item) in (0..).zip(&items) {
                let staged = staged(number, item);
                state.bytes += staged.bytes + staged.ahead_bytes;
                state.cut += usize::from(!staged.ahead.is_empty());
                state.impatient += 1;
                state.staged.push_back(staged);
            }
            let (mut left, mut written, mut chunks) = (0, Vec::new(), 0);
            while !state.staged.is_empty() {
                let was_open = state.is_open;
                let room = Room { group: GROUP, left, segment: SEGMENT };
                let mut out = Vec::new();
                let promised = state.take(room, &mut out);
                prop_assert!(!out.is_empty(), "it goes on");
                let bytes: usize = out.iter().map(|staged| staged.bytes).sum();
                if bytes + promised > left {
                    prop_assert!(!was_open, "a body that was begun in a segment ends there");
                    left = SEGMENT;
                }
                prop_assert!(bytes + promised <= left, "{bytes} and {promised} in {left}");
                left -= bytes;
                for staged in out {
                    match staged.sync_within_ms {
                        u32::MAX => chunks += 1,
                        number => written.push(usize::try_from(number).unwrap()),
                    }
                }
            }
            prop_assert_eq!((state.bytes, state.cut, state.is_open, state.impatient), (0, 0, false, 0));
            prop_assert_eq!(chunks, items.iter().map(|item| item.chunks).sum::<usize>());
            let mut places = vec![usize::MAX; items.len()];
            for (place, number) in written.iter().enumerate() {
                prop_assert_eq!(places[*number], usize::MAX);
                places[*number] = place;
            }
            for (second, item) in items.iter().enumerate() {
                for (first, before) in items[..second].iter().enumerate() {
                    prop_assert!(
                        places[first] < places[second] || !has_to_follow(before, item),
                        "{} before {}", second, first
                    );
                }
            }
        }
    }
}
