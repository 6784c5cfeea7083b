//! Sorted segments without a checkpoint: it is unknown whether they are in force, so they are set aside under
//! names that end in `.lost`.
//!
//! The ids in them are never given out again. Until a checkpoint has them, each start looks them up anew.

use stafett_model::LogId;

use super::super::checkpoint::Meta;
use super::super::position::SegmentId;
use super::super::segment::{FileRole, HeadBlock, SEGMENT_HEAD_BYTES, SegmentHead, SegmentKind};
use super::super::sidecar::Sidecar;
use super::{OpenError, Recovery};

const LOST_SUFFIX: &str = ".lost";
const KIND: SegmentKind = SegmentKind::Sorted;

impl Recovery<'_> {
    /// Remembers a file that an earlier start has set aside; returns false if it is none.
    pub(super) fn note_lost_file(&mut self, name: &str) -> bool {
        let Some(name) = name.strip_suffix(LOST_SUFFIX) else {
            return false;
        };
        if let Some(FileRole::Segment(KIND, id)) = FileRole::of(name) {
            self.set_aside.insert(id);
        }
        true
    }

    /// Reports the segments that earlier starts have set aside, if none of them could store a checkpoint.
    pub(super) fn report_set_aside(&mut self) -> Result<(), OpenError> {
        if self.is_anew || self.meta == Meta::default() {
            for id in std::mem::take(&mut self.set_aside) {
                self.note_lost_segment(id, LOST_SUFFIX)?;
            }
        }
        Ok(())
    }

    /// Renames a sorted segment to a name that is ignored: it is unknown whether it is in force.
    pub(super) fn set_aside(&mut self, id: SegmentId) -> Result<(), OpenError> {
        self.note_lost_segment(id, "")?;
        let mut roles = vec![FileRole::Segment(KIND, id)];
        if self.sidecars.remove(&(KIND, id)) {
            roles.push(FileRole::Sidecar(KIND, id));
        }
        for role in roles {
            let name = role.name();
            self.storage.rename(&name, &format!("{name}{LOST_SUFFIX}"))?;
        }
        Ok(())
    }

    /// Reports a segment that is set aside, and keeps its id and those of its logs from being given out
    /// again. Its files' names end in `suffix`.
    fn note_lost_segment(&mut self, id: SegmentId, suffix: &str) -> Result<(), OpenError> {
        match self.logs_in_sidecar(id, suffix) {
            Some(logs) => self.note_unknown(logs),
            None => self.note_unknown(self.last_log_of(id, suffix)?),
        }
        self.meta.next_segment = self.meta.next_segment.max(id.0 + 1);
        self.report.set_aside.push(FileRole::Segment(KIND, id).name());
        Ok(())
    }

    /// Returns the logs in the sidecar of a segment; `None` if there is no readable one.
    fn logs_in_sidecar(&self, id: SegmentId, suffix: &str) -> Option<Vec<LogId>> {
        let name = FileRole::Sidecar(KIND, id).name();
        let file = self.storage.open(&format!("{name}{suffix}")).ok()?;
        let mut logs = Vec::new();
        let sidecar = Sidecar::open(&*file, id).ok()?;
        sidecar.for_each_row(|row| logs.push(row.log)).ok()?;
        Some(logs)
    }

    /// Returns the last log in the header of a segment.
    fn last_log_of(&self, id: SegmentId, suffix: &str) -> Result<Option<LogId>, OpenError> {
        let name = FileRole::Segment(KIND, id).name();
        let file = self.storage.open(&format!("{name}{suffix}"))?;
        let mut block = vec![0; SEGMENT_HEAD_BYTES];
        let got = file.read_at(&mut block, 0)?;
        block.truncate(got);
        Ok(match SegmentHead::decode(&block) {
            HeadBlock::Head(head) => Some(head.last.0),
            HeadBlock::Nothing | HeadBlock::Newer(_) => None,
        })
    }
}
