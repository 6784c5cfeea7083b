//! Puts rewritten segments into force, and releases the replaced ones once they are no longer read.

use std::collections::HashMap;
use std::sync::Arc;

use stafett_model::LogId;

use super::super::control::Control;
use super::super::control_append::append_control_synced;
use super::super::engine::Engine;
use super::super::log::SegmentExtent;
use super::super::position::SegmentId;
use super::super::segment::Segment;
use super::merge::MergedSegment;
use super::output::remove;

/// Replaced segments that may still be read.
#[derive(Debug, Default)]
pub(crate) struct RetiringSegments(Vec<Arc<Segment>>);

impl RetiringSegments {
    /// Replaces `inputs` by `merged`. One durable control frame decides; then every log is updated.
    pub(crate) fn swap(&mut self, core: &Engine, inputs: &[SegmentId], merged: Vec<MergedSegment>) -> bool {
        let _turn = core.checkpoint.turn();
        let added = merged.iter().map(|it| it.segment.id).collect();
        if !append_control_synced(
            core,
            Control::Segments {
                added,
                removed: inputs.to_vec(),
            },
        ) {
            // If the frame was not even staged, the output never takes effect, and wastes space.
            if !core.has_failed() && !core.queue.is_closed() {
                for output in &merged {
                    remove(core, output.segment.id);
                }
            }
            return false;
        }
        let mut runs: HashMap<LogId, Vec<SegmentExtent>> = HashMap::new();
        for output in merged {
            let segment = output.segment.id;
            core.segments.insert(output.segment);
            for (log, first, bytes) in output.logs {
                let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
                runs.entry(log).or_default().push(SegmentExtent {
                    first,
                    segment,
                    bytes,
                });
            }
        }
        for log in core.logs.all() {
            let new = runs.remove(&log.id);
            let mut state = log.lock();
            let before = state.runs.len();
            state.runs.retain(|run| !inputs.contains(&run.segment));
            if let Some(new) = new {
                state.runs.extend(new);
                state.runs.sort_unstable_by_key(|run| (run.first, run.segment));
            }
            if state.runs.len() != before {
                state.runs.shrink_to_fit();
            }
            state.count_bytes();
        }
        for id in inputs {
            self.0.extend(core.segments.remove(*id));
        }
        true
    }

    /// Recycles or removes the files of segments that are no longer referenced.
    pub(crate) fn release(&mut self, core: &Engine) {
        if self.0.is_empty() {
            return;
        }
        let _turn = core.checkpoint.turn();
        let mut gone = Vec::new();
        self.0.retain_mut(|segment| {
            if Arc::strong_count(segment) > 1 {
                return true;
            }
            match recycle(core, segment) {
                Ok(()) => gone.push(segment.id),
                Err(error) => {
                    tracing::warn!(%error, segment = segment.id.0, "a dead segment stays for now");
                    return true;
                }
            }
            false
        });
        // A name that could reappear after a loss of power has to stay in the checkpoint as replaced.
        if !gone.is_empty() && core.storage.sync_names().is_ok() {
            core.pending().segments_forgotten.extend(gone);
        }
    }
}

fn recycle(core: &Engine, segment: &Segment) -> std::io::Result<()> {
    core.files.forget(segment.role());
    core.files.forget(segment.sidecar_role());
    // Missing files are ignored: an earlier attempt removed them, or there was no sidecar.
    let is_done = |done: std::io::Result<()>| match done {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        done => done,
    };
    is_done(core.storage.remove(&segment.sidecar_role().name()))?;
    is_done(core.pool.recycle(segment.role()).map(drop))?;
    core.housekeeping.dead().remove(&segment.id);
    Ok(())
}
