//! Steps of the client of messages over HTTP.

use stafett_delivery::Settle;

use super::{CLASSES, LEASE_MS, WAIT_MS};
use crate::random::Random;

/// Step of the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MailStep {
    /// Sends messages in one request, under a new key.
    Send { count: u8, bytes: u16 },
    /// Sends one of the last requests again, as `back` counts.
    Again { back: u8 },
    /// Receives messages.
    Receive {
        count: u8,
        /// `None` for all.
        class: Option<u8>,
        oldest: bool,
        wait_ms: u64,
        how: Taking,
    },
    /// Settles the oldest leases.
    Settle { count: u8, what: Settle, stored: bool },
    /// Extends all leases.
    Extend,
    /// Leaves before the answers to its requests come.
    Leave,
    /// Once all leases are over, compares the queue with the knowledge of the client.
    Look,
}

/// Settlement of messages that are received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taking {
    Soon,
    Stored,
    Lease { ms: u64 },
}

impl MailStep {
    pub fn draw(random: &mut Random) -> Self {
        let mut small = |bound: u8| u8::try_from(random.below(bound.into())).unwrap_or(0);
        let (kind, count, class) = (small(32), 1 + small(5), small(2 * CLASSES));
        match kind {
            0..=9 => Self::Send {
                count,
                bytes: random.pick(&[10, 100, 2_000, 20_000]),
            },
            10..=13 => Self::Again { back: small(4) },
            14..=22 => Self::Receive {
                count,
                class: (class < CLASSES).then_some(class),
                oldest: small(3) == 0,
                wait_ms: random.pick(&[0, 0, 20, WAIT_MS]),
                how: random.pick(&[
                    Taking::Soon,
                    Taking::Stored,
                    Taking::Lease { ms: 50 },
                    Taking::Lease { ms: LEASE_MS },
                    Taking::Lease { ms: LEASE_MS },
                ]),
            },
            23..=27 => Self::Settle {
                count: 1 + small(8),
                stored: small(3) > 0,
                what: random.pick(&[Settle::Complete, Settle::Complete, Settle::Requeue]),
            },
            28 => Self::Extend,
            29 | 30 => Self::Leave,
            _ => Self::Look,
        }
    }
}
