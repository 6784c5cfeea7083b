//! Scrubbing: reads sealed segments from time to time, so that damage is reported while a backup still has
//! the data.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use super::chunk::Chunks;
use super::engine::Engine;
use super::position::SegmentId;
use super::scan::{Chain, scan};
use super::segment::{HeadBlock, SEGMENT_HEAD_BYTES, Segment, SegmentHead};
use super::sidecar::{Sidecar, SidecarError};

/// Interval between two segments.
const SEGMENT_EVERY: Duration = Duration::from_mins(10);

/// Cursor over the sealed segments, one at a time.
#[derive(Debug)]
pub(crate) struct Scrubber {
    next: SegmentId,
    due: Instant,
}

impl Default for Scrubber {
    fn default() -> Self {
        Self {
            next: SegmentId::default(),
            due: Instant::now() + SEGMENT_EVERY,
        }
    }
}

impl Scrubber {
    /// Reads the next segment if it is due.
    pub(crate) fn step(&mut self, core: &Engine) {
        if self.due.elapsed() == Duration::ZERO {
            return;
        }
        self.due = Instant::now() + SEGMENT_EVERY;
        let segments = core.segments.all();
        let Some(segment) = segments
            .iter()
            .find(|it| it.id >= self.next)
            .or_else(|| segments.first())
        else {
            return;
        };
        self.next = SegmentId(segment.id.0 + 1);
        scrub(core, segment);
    }
}

/// Result of reading sealed segments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScrubReport {
    pub segments: usize,
    /// Segments that are damaged, or cannot be read.
    pub damaged: usize,
}

/// Reads all sealed segments, until `step` ends it.
pub(crate) fn scrub_each(
    core: &Engine,
    mut step: impl FnMut(usize, usize) -> ControlFlow<()>,
) -> ScrubReport {
    let mut report = ScrubReport::default();
    let segments = core.segments.all();
    for segment in &segments {
        if step(report.segments, segments.len()).is_break() {
            break;
        }
        report.segments += 1;
        report.damaged += usize::from(!scrub(core, segment));
    }
    report
}

/// Reads a whole sealed segment and reports damage. True if it is intact, or has no sidecar yet. One that
/// cannot be read is damaged, unless the storage may recover.
pub(crate) fn scrub(core: &Engine, segment: &Segment) -> bool {
    match damage(core, segment) {
        Ok(None) => {
            core.metrics.scrubbed_segments.inc();
            true
        }
        Ok(Some(damage)) => {
            core.metrics.damaged_segments.inc();
            tracing::error!(segment = segment.id.0, damage, "a stored segment is damaged");
            false
        }
        Err(error) if core.storage.may_recover() => {
            tracing::warn!(segment = segment.id.0, %error, "a stored segment cannot be read now");
            false
        }
        Err(error) => {
            core.metrics.damaged_segments.inc();
            tracing::error!(segment = segment.id.0, %error, "a stored segment cannot be read");
            false
        }
    }
}

fn damage(core: &Engine, segment: &Segment) -> std::io::Result<Option<String>> {
    let index = match core.files.get(segment.sidecar_role()) {
        Ok(index) => index,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let summary = match Sidecar::open(&*index, segment.id) {
        Ok(sidecar) => sidecar.summary,
        Err(SidecarError::Io(error)) => return Err(error),
        Err(error) => return Ok(Some(format!("its sidecar: {error}"))),
    };
    let file = core.files.get(segment.role())?;
    let mut block = vec![0; SEGMENT_HEAD_BYTES];
    super::storage::read_exact_at(&*file, &mut block, 0)?;
    let HeadBlock::Head(head) = SegmentHead::decode(&block) else {
        return Ok(Some("its header".into()));
    };
    let chain = Chain {
        sequence: head.first_sequence.saturating_sub(1),
        checksum: head.previous,
    };
    let mut chunks = Chunks::default();
    let mut not_whole = None;
    let end = scan(&*file, segment.id, 0, chain, |group| {
        for frame in &group.frames {
            if !chunks.note(frame.byte, &frame.head, &frame.body) {
                not_whole.get_or_insert(frame.byte);
            }
        }
    })?;
    if end.byte < summary.valid_bytes {
        return Ok(Some(format!("at byte {}: {}", end.byte, end.reason)));
    }
    Ok(not_whole.map(|byte| format!("a chunk of the batch that ends at byte {byte} is missing")))
}
