//! A connection that publishes while space is short is blocked until there is enough space: nothing is read
//! from it, and clients with the capability are notified.
//!
//! ```text
//! running ── basic.publish, space is short ──▶ blocked ── there is enough ──▶ running
//! ```
//!
//! The first message in that state, and all bytes behind it, stay unread: nothing is lost or refused.
//! Connections that only consume and settle continue, which frees space. Deliveries continue on blocked
//! connections too.

use stafett_amqp_wire::methods::connection;

use super::Session;

/// RabbitMQ's text for it.
const REASON: &str = "low on disk";

impl Session {
    /// Blocks the connection if space is short. Called at the beginning of a message.
    pub(super) fn wait_for_space(&mut self) {
        if self.blocked || !self.space.is_short() {
            return;
        }
        self.blocked = true;
        self.context.metrics.blocked.inc();
        if self.agreed.client.blocked {
            let reason = REASON.into();
            self.out.send(0, connection::Blocked { reason });
        }
    }

    /// Returns true if nothing may be read or executed.
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Ends the block: waiting frames can be executed.
    pub(crate) fn unblock(&mut self) {
        if self.forget_block() && self.agreed.client.blocked {
            self.out.send(0, connection::Unblocked {});
        }
    }

    /// Resets the block. Returns true if the connection was blocked.
    pub(super) fn forget_block(&mut self) -> bool {
        let was_blocked = std::mem::take(&mut self.blocked);
        if was_blocked {
            self.context.metrics.blocked.dec();
        }
        was_blocked
    }
}
