//! Replay of frames that the checkpoint may not cover. Applying one again changes nothing.

use std::sync::Arc;

use stafett_model::{BatchHeader, LogId, Offset};

use super::super::checkpoint::StateAt;
use super::super::control::Control;
use super::super::frame::FrameKind;
use super::super::log::Log;
use super::super::position::{Position, SegmentId};
use super::super::scan::ScannedFrame;
use super::{Recovery, ids};
use crate::contract::OwnerEpoch;

impl Recovery<'_> {
    /// Applies a frame that the checkpoint may not cover. Applying one again changes nothing.
    pub(super) fn replay(
        &mut self,
        frame: &ScannedFrame,
        segment: SegmentId,
        group_end: Position,
        number: u32,
    ) {
        if (Position {
            segment,
            byte: frame.byte,
        }) < self.from
        {
            return;
        }
        self.report.replayed_frames += 1;
        match frame.head.kind {
            // The body of a cut batch's last frame also begins with the batch's header.
            FrameKind::Batch | FrameKind::Cut => self.replay_batch(frame),
            FrameKind::Chunk => {}
            FrameKind::Control => {
                if let Some(control) = Control::decode(&frame.body) {
                    self.replay_control(control, group_end, number);
                } else {
                    tracing::warn!(segment = segment.0, byte = frame.byte, "an unknown control frame");
                }
            }
        }
    }

    fn replay_batch(&mut self, frame: &ScannedFrame) {
        let header = BatchHeader::parse(&frame.body).ok();
        for entry in &frame.head.entries {
            let Some(log) = self.logs.get(&entry.log) else {
                if !self.deleted.contains(&entry.log) {
                    self.report.unknown_frames += 1;
                }
                continue;
            };
            let mut state = log.lock();
            if self.suspect || self.newest_gone {
                self.proven.insert(entry.log);
                let next = state.next;
                if entry.base > next && self.suspect {
                    state.lose(next, entry.base);
                } else if entry.base > next {
                    self.gaps.push((entry.log, next, entry.base));
                }
            }
            state.next = state.next.max(entry.end());
            if let Some(header) = &header {
                let is_shared = frame.head.entries.len() > 1;
                state.note_producer(header, &frame.body, is_shared, entry.base, self.now);
            }
            self.dirty.insert(entry.log);
        }
    }

    fn replay_control(&mut self, control: Control, position: Position, number: u32) {
        match control {
            Control::State(change) => self.state.push(StateAt {
                position,
                number,
                change,
            }),
            Control::CreateLogs { first, count, spec } => {
                let spec = Arc::new(spec);
                for id in ids(first, count) {
                    self.reserve_id(id);
                    self.logs
                        .entry(id)
                        .or_insert_with(|| Arc::new(Log::new(id, Arc::clone(&spec))));
                    // A created log begins behind the damage, if there is any.
                    self.proven.insert(id);
                    self.dirty.insert(id);
                }
            }
            Control::ChangeLogs { first, count, spec } => {
                let spec = Arc::new(spec);
                for id in ids(first, count) {
                    if let Some(log) = self.logs.get(&id) {
                        log.lock().spec = Arc::clone(&spec);
                        self.dirty.insert(id);
                    }
                }
            }
            Control::DeleteLogs { first, count } => self.delete_logs(ids(first, count)),
            Control::Truncate { log, before } => {
                if let Some(known) = self.logs.get(&log) {
                    known.lock().truncate(before);
                    self.dirty.insert(log);
                }
            }
            Control::Reserve { log, below } => {
                if let Some(known) = self.logs.get(&log) {
                    let mut state = known.lock();
                    state.reserved = state.reserved.max(below);
                    self.dirty.insert(log);
                }
            }
            Control::Own { log, owner } => self.own(log, owner),
            Control::Started { epoch, boot, .. } => {
                // The recovery before that run ended here, and its checkpoint was not stored.
                self.pass_lost_offsets(boot);
                self.meta.run.epoch = epoch.0;
                self.meta.run.boot = boot;
                self.meta.run.ended = false;
            }
            Control::StoppedCleanly { .. } => self.meta.run.ended = true,
            Control::Segments { added, removed } => {
                for id in &added {
                    self.sorted.insert(*id, true);
                }
                for id in &removed {
                    self.sorted.remove(id);
                    self.removed.insert(*id);
                }
                self.segments_added.extend(added);
                self.segments_removed.extend(removed);
            }
        }
    }

    fn delete_logs(&mut self, ids: impl Iterator<Item = LogId>) {
        for id in ids {
            // Its definition may be lost, and its batches left.
            self.reserve_id(id);
            self.logs.remove(&id);
            self.dirty.remove(&id);
            self.deleted.push(id);
        }
    }

    /// Has no new log get an id.
    pub(super) fn reserve_id(&mut self, id: LogId) {
        self.meta.next_log = self.meta.next_log.max(id.0.saturating_add(1));
    }

    fn own(&mut self, log: LogId, owner: OwnerEpoch) {
        if let Some(known) = self.logs.get(&log) {
            let mut state = known.lock();
            state.owner = state.owner.max(owner);
            self.dirty.insert(log);
        }
    }

    /// Records that ranges of logs are lost to damage.
    pub(super) fn lose(&mut self, lost: impl IntoIterator<Item = (LogId, Offset, Offset)>) {
        for (id, from, to) in lost {
            let Some(log) = self.logs.get(&id) else { continue };
            let mut state = log.lock();
            if to <= state.start {
                continue;
            }
            state.lose(from, to);
            state.next = state.next.max(to);
            self.dirty.insert(id);
        }
    }
}
