//! Control frames staged by the engine itself, and waiting until everything before them is synced.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use smallvec::SmallVec;

use super::control::Control;
use super::engine::Engine;
use super::group::GROUP_HEAD_BYTES;
use super::pool::Share;
use super::prepare::control_frame;
use super::stage::STATE_SYNC_WITHIN_MS;
use super::write_queue::{StagedAppend, StagedFrame, Wait};
use crate::contract::Outcome;
use crate::ticket::Ticket;

/// Stages the frame that starts the run. False if there is no segment for it and no space to make one: then
/// nothing is written and every append is refused, until a later attempt succeeds.
pub(crate) fn begin_run(core: &Engine) -> bool {
    if let Err(error) = core.pool.ensure_spare() {
        tracing::debug!(%error, "there is no segment to begin with");
        return false;
    }
    let (boot, at) = (core.settings.boot, core.now_ms());
    let epoch = core.epoch;
    let is_staged = append_control(core, Control::Started { epoch, boot, at });
    // Nothing is staged before that frame.
    core.begun.store(is_staged, Ordering::Release);
    is_staged
}

/// Stages a control frame without waiting for it. False if there is no space for it, or the queue is closed.
pub(crate) fn append_control(core: &Engine, control: Control) -> bool {
    let frame = control_frame(control);
    let bytes = frame.head.frame_bytes() + GROUP_HEAD_BYTES;
    let Some(charge) = core.pool.take_space(bytes, Share::Engine) else {
        return false;
    };
    let staged = StagedAppend {
        frames: SmallVec::from_buf([frame]),
        settler: None,
        placed: SmallVec::new(),
        wait: Wait::Written,
        sync_within_ms: STATE_SYNC_WITHIN_MS,
        interval: None,
        bytes,
        ahead: VecDeque::new(),
        ahead_bytes: 0,
        seals: false,
        charge,
        pinned_bytes: 0,
    };
    let is_staged = core.queue.push(staged);
    if is_staged {
        core.queue.wake();
    }
    is_staged
}

/// Stages a control frame and waits until it is synced. False if that is not certain.
pub(crate) fn append_control_synced(core: &Engine, control: Control) -> bool {
    stage_and_wait(core, SmallVec::from_buf([control_frame(control)]), false)
}

/// Waits until everything staged is synced. False if that is not certain.
pub(crate) fn wait_synced(core: &Engine) -> bool {
    stage_and_wait(core, SmallVec::new(), false)
}

/// Waits like [`wait_synced`], and seals the segment being written.
pub(crate) fn seal_synced(core: &Engine) -> bool {
    // The rest of the segment may be promised to staged appends: without a spare, the next write would fail.
    let seals = core.pool.take_segment();
    let is_synced = stage_and_wait(core, SmallVec::new(), seals);
    if seals {
        core.pool.give_segment();
    }
    is_synced
}

/// Stages frames and waits until they and everything staged before are synced. False if that is not certain.
fn stage_and_wait(core: &Engine, frames: SmallVec<[StagedFrame; 1]>, seals: bool) -> bool {
    if !core.has_begun() {
        // Recovery has synced everything that exists.
        return frames.is_empty();
    }
    let bytes = match frames.iter().map(|frame| frame.head.frame_bytes()).sum::<usize>() {
        0 => 0,
        bytes => bytes + GROUP_HEAD_BYTES,
    };
    let charge = match bytes {
        0 => 0,
        bytes => match core.pool.take_space(bytes, Share::Engine) {
            Some(charge) => charge,
            None => return false,
        },
    };
    let (ticket, settlers) = Ticket::new(1);
    for (settler, frames) in settlers.zip([frames]) {
        core.queue.push(StagedAppend {
            frames,
            settler: Some(settler),
            placed: SmallVec::new(),
            wait: Wait::Synced,
            sync_within_ms: u32::MAX,
            interval: None,
            bytes,
            ahead: VecDeque::new(),
            ahead_bytes: 0,
            seals,
            charge,
            pinned_bytes: 0,
        });
    }
    if core.settings.threads {
        core.queue.wake();
    } else {
        while super::writer::pump(core) {}
        super::syncer::pump(core);
    }
    matches!(ticket.wait().as_slice(), [Outcome::Committed(_)])
}
