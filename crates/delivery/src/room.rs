//! Room for new messages within the limits of a dispatcher.

use std::sync::Arc;

use stafett_model::Message;
use stafett_queue::Overflow;

use super::context::DeliveryContext;
use super::dispatcher::Dispatcher;

impl Dispatcher {
    /// Returns true if one more message may be appended.
    pub fn has_room(&self, context: &DeliveryContext, message: &Message) -> bool {
        if !self.flags.refuses() {
            return true;
        }
        let mut inner = self.lock();
        inner.look_at_logs(self, context);
        if inner.counts_too_many {
            return true;
        }
        let settings = &inner.settings;
        let waiting = inner.state.ready() + inner.staged;
        let bytes = inner.state.bytes_ready() + message.value.len() as u64;
        // A message that is handed out at once needs no room.
        let goes = |count: u64| inner.state.consumers.can_take(count);
        settings
            .length_max
            .is_none_or(|max| goes((waiting + 1).saturating_sub(max)))
            && settings
                .bytes_max
                .is_none_or(|max| bytes <= max || goes(waiting + 1))
    }

    /// Updates the counts for a message that is being appended. True if [`Self::release_room`] has to be
    /// called if it is not stored.
    pub fn reserve_room(self: &Arc<Self>, context: &DeliveryContext, message: &Message) -> bool {
        let is_last_run = !message.persistent && self.is_stored && !self.declared.keeps_transient;
        if message.ttl_ms.is_none() && !self.flags.has_limits() && !is_last_run {
            return false;
        }
        let mut inner = self.lock();
        let settings = Arc::clone(&inner.settings);
        inner.may_expire |= message.ttl_ms.is_some();
        inner.persistence.has_new_transient |= is_last_run;
        if is_last_run && !inner.persistence.is_transient_noted {
            inner.note_transient(context, self);
        }
        if settings.bytes_max.is_some() {
            inner.state.add_bytes(message.value.len() as u64);
        }
        if settings.has_limits() {
            inner.staged += u64::from(settings.overflow != Overflow::DropHead);
        }
        settings.has_limits() && (settings.overflow != Overflow::DropHead || settings.bytes_max.is_some())
    }

    /// Removes a message of `bytes` bytes that was not stored from the counts.
    pub fn release_room(&self, bytes: u64) {
        let mut inner = self.lock();
        inner.staged = inner
            .staged
            .saturating_sub(u64::from(inner.settings.overflow != Overflow::DropHead));
        if inner.settings.bytes_max.is_some() {
            inner.state.remove_bytes(bytes);
        }
    }
}
