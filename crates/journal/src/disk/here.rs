//! Writing on the thread that stages: what a little costs is not worth waking a thread for, twice.
//!
//! Whoever stages something small while the writer sleeps writes it, and has its outcome before it asks for
//! it where that takes no sync; one that takes a sync wakes the syncer alone. As soon as two do so at once,
//! the writer is woken and gathers as ever.
//!
//! The order of the queue holds: what is taken here is taken under the writer's lock while the writer is
//! asleep, so it has taken nothing that it has not written, and whatever it takes next it writes behind this.

use super::core::Core;
use super::writer;

/// More than this is left to the writer: a thread of connections should not wait for the disk.
const HERE_BYTES_MAX: usize = 8 << 10;
/// With more than this to be synced, the system may make who writes wait.
const CALM_BYTES: usize = 512 << 10;

/// Writes what is staged, if it is little and nobody else does. False if the writer has to be woken.
pub(super) fn write(core: &Core) -> bool {
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
