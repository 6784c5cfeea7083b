//! Writing on the staging thread: a small write is cheaper than two thread wake-ups.
//!
//! A thread that stages something small while the writer sleeps writes it, and has the outcome at once unless
//! that needs a sync; then it wakes only the syncer. As soon as two threads do so at the same time, the
//! writer is woken and gathers as usual.
//!
//! The order of the queue holds: entries are taken here under the writer's lock while the writer is asleep,
//! so it has taken nothing that is not written, and anything it takes later is written behind this.

use super::engine::Engine;
use super::writer;

/// Most bytes written here; more is left to the writer, as a thread of connections should not wait for the
/// disk.
const HERE_BYTES_MAX: usize = 8 << 10;
/// Most unsynced bytes; beyond, the operating system may throttle writes.
const CALM_BYTES: usize = 512 << 10;

/// Writes the staged appends if they are small and no other thread is writing. False if the writer has to be
/// woken.
pub(super) fn write(core: &Engine) -> bool {
    if !core.settings.threads || core.sync.unsynced_bytes() > CALM_BYTES {
        return false;
    }
    let Some(mut writer) = core.writer.try_lock() else {
        return false;
    };
    if !writer.has_room(core, HERE_BYTES_MAX) {
        return false;
    }
    let mut staged = std::mem::take(&mut writer.taken_here);
    let is_taken = core.queue.take_asleep(HERE_BYTES_MAX, &mut staged);
    if staged.is_empty() {
        writer.taken_here = staged;
        return is_taken;
    }
    writer::write_locked(core, writer, staged);
    true
}
