//! A connection that publishes while space is short is blocked until there is enough: nothing is read of it,
//! and clients with the capability are notified.
//!
//! ```text
//! running ── basic.publish, space is short ──▶ blocked ── there is enough ──▶ running
//! ```
//!
//! The message that begins, and what comes behind it, stays with the client: nothing of it is lost or
//! refused. Connections that only consume and settle go on, which makes space. Deliveries go out all the
//! while.

use stafett_amqp_wire::methods::connection;

use super::Session;

/// RabbitMQ's word for it.
const REASON: &str = "low on disk";

impl Session {
    /// A message begins.
    pub(super) fn wait_for_space(&mut self) {
        if self.blocked || !self.space.is_short() {
            return;
        }
        self.blocked = true;
        self.shared.metrics.blocked.inc();
        if self.agreed.client.blocked {
            let reason = REASON.into();
            self.out.send(0, connection::Blocked { reason });
        }
    }

    /// Whether nothing may be read or executed.
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// There is space: what was sent meanwhile can be executed.
    pub(crate) fn unblock(&mut self) {
        if self.forget_block() && self.agreed.client.blocked {
            self.out.send(0, connection::Unblocked {});
        }
    }

    /// Whether it was blocked until now.
    pub(super) fn forget_block(&mut self) -> bool {
        let was_blocked = std::mem::take(&mut self.blocked);
        if was_blocked {
            self.shared.metrics.blocked.dec();
        }
        was_blocked
    }
}
