//! Settings in force of a dispatcher, which may change while it runs, and its pause.
//!
//! They are swapped as a whole under the dispatcher's lock. Flags are read without the lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use stafett_queue::{Overflow, QueueSettings};

use super::context::DeliveryContext;
use super::dispatcher::{DeliveryState, Dispatcher};
use super::grown_lanes::GrownLanes;
use super::lanes::LogOwnership;

/// Properties of the settings in force that are asked without a lock.
#[derive(Debug)]
pub(super) struct SettingFlags(AtomicU8);

const HAS_LIMITS: u8 = 1;
const REFUSES: u8 = 2;
const EXPIRES: u8 = 4;
const DEAD_LETTERS: u8 = 8;

impl SettingFlags {
    pub(super) fn of(settings: &QueueSettings) -> Self {
        let flags = Self(AtomicU8::default());
        flags.set(settings);
        flags
    }

    fn set(&self, settings: &QueueSettings) {
        let flag = |set, flag| if set { flag } else { 0 };
        let flags = flag(settings.has_limits(), HAS_LIMITS)
            | flag(settings.overflow != Overflow::DropHead, REFUSES)
            | flag(settings.expires_ms.is_some(), EXPIRES)
            | flag(settings.dead_letter.is_some(), DEAD_LETTERS);
        self.0.store(flags, Ordering::Release);
    }

    fn has(&self, flags: u8) -> bool {
        self.0.load(Ordering::Acquire) & flags == flags
    }

    pub(super) fn has_limits(&self) -> bool {
        self.has(HAS_LIMITS)
    }

    /// Returns true if messages beyond a limit are refused.
    pub(super) fn refuses(&self) -> bool {
        self.has(HAS_LIMITS | REFUSES)
    }

    pub(super) fn expires(&self) -> bool {
        self.has(EXPIRES)
    }

    pub(super) fn dead_letters(&self) -> bool {
        self.has(DEAD_LETTERS)
    }
}

impl Dispatcher {
    /// Returns the settings in force.
    pub fn settings(&self) -> Arc<QueueSettings> {
        Arc::clone(&self.lock().settings)
    }

    /// Returns true if nothing is handed out until [`Self::set_paused`] ends that.
    pub fn is_paused(&self) -> bool {
        self.lock().state.consumers.is_paused()
    }

    /// Returns the bytes of bodies that wait; where they are not all counted an estimate from the logs.
    pub fn bytes_waiting(&self, context: &DeliveryContext) -> u64 {
        let inner = self.lock();
        let counted = inner.state.bytes_ready();
        if inner.settings.bytes_max.is_some() && !inner.state.is_partial() {
            counted
        } else {
            inner.estimated_bytes(context).max(counted)
        }
    }

    /// Puts settings into force, for waiting messages too. The caller dispatches once the lock is released.
    pub fn set_settings(
        self: &Arc<Self>,
        context: &Arc<DeliveryContext>,
        inner: &mut DeliveryState,
        settings: QueueSettings,
    ) {
        self.flags.set(&settings);
        let before = std::mem::replace(&mut inner.settings, Arc::new(settings));
        let settings = Arc::clone(&inner.settings);
        inner.state.set_delivery_limit(settings.delivery_limit);
        if (before.has_limits(), before.overflow) != (settings.has_limits(), settings.overflow) {
            // Messages on their way were counted by the rules before.
            inner.staged = 0;
        }
        if settings.bytes_max.is_some() && before.bytes_max.is_none() {
            // Without a limit of bytes they are not counted: some messages are dropped unread.
            inner.look_at_logs(self, context);
            for lane in inner.logs.clone() {
                let end = context.journal.bounds(lane.log).map_or(0, |bounds| bounds.end.0);
                inner.state.count_bytes_from(lane.lane, end);
            }
            if inner.state.is_partial() && self.ownership == LogOwnership::Own {
                context.scan_soon(self);
            }
        }
        inner.may_expire |= settings.ttl_ms.is_some();
        inner.head_expires = None;
        inner.begin_groups_anew();
        inner.grown = GrownLanes::All;
        inner.note_use(context, self);
        // Fewer settled messages may have to be retained.
        context.mark_dirty(self, inner);
    }

    /// Pauses or resumes the hand-out. The caller dispatches once the lock is released.
    pub fn set_paused(
        self: &Arc<Self>,
        context: &DeliveryContext,
        inner: &mut DeliveryState,
        is_paused: bool,
    ) {
        inner.state.consumers.set_paused(is_paused);
        inner.grown = GrownLanes::All;
        inner.note_use(context, self);
        inner.on_put_back(&[]);
    }
}

/// Bytes of a stored message beside its body. Rather too many: an estimate refuses no message that has room.
const STORED_HEAD: u64 = 170;

impl DeliveryState {
    /// Returns the approximate bytes of ready bodies: the share of the ready messages in the stored bytes,
    /// without [`STORED_HEAD`].
    pub(super) fn estimated_bytes(&self, context: &DeliveryContext) -> u64 {
        let of_lane = |lane: &super::lanes::LaneLog| {
            let bounds = context.journal.bounds(lane.log)?;
            let ready = self.state.lane(lane.lane)?.ready();
            let all = bounds.end.0.saturating_sub(bounds.start.0).max(1);
            let heads = all.saturating_mul(STORED_HEAD);
            let bodies = bounds.bytes.saturating_sub(heads);
            u64::try_from(u128::from(bodies) * u128::from(ready) / u128::from(all)).ok()
        };
        let lanes = self.logs.iter().map(|lane| of_lane(lane).unwrap_or(0));
        lanes.fold(0, u64::saturating_add)
    }
}
