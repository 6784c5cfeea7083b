//! Steps of more than a line, drawn at random.

use super::{Action, CLIENTS, Closing, DiskFault, Settling};
use crate::amqp::{OVER, Removal, Removing};
use crate::full::UsedUp;
use crate::random::Random;

/// A number below the bound.
pub(super) fn small(random: &mut Random, bound: u8) -> u8 {
    u8::try_from(random.below(bound.into())).unwrap_or(0)
}

pub(super) fn settle(random: &mut Random) -> Action {
    Action::Settle {
        client: small(random, CLIENTS),
        count: 1 + small(random, 30),
        how: random.pick(&[
            Settling::Ack,
            Settling::AckAll,
            Settling::Requeue,
            Settling::Reject,
        ]),
    }
}

pub(super) fn close(random: &mut Random) -> Action {
    Action::Close {
        client: small(random, CLIENTS),
        settles: match small(random, 4) {
            0 => Some(Settling::AckAll),
            1 => Some(Settling::Ack),
            2 => Some(Settling::Requeue),
            _ => None,
        },
        how: random.pick(&[Closing::Channel, Closing::Connection, Closing::Cut]),
    }
}

pub(super) fn remove(random: &mut Random) -> Action {
    Action::Remove(Removal {
        queue: match small(random, 6) {
            5 => OVER,
            queue => queue,
        },
        last: (small(random, CLIENTS), small(random, 8)),
        how: random.pick(&[Removing::Purge, Removing::Delete]),
    })
}

pub(super) fn fault(random: &mut Random) -> Action {
    Action::Fault {
        after: 1 + random.below(30),
        fault: match random.below(8) {
            0 => DiskFault::Error,
            1 => DiskFault::Broken,
            2 | 3 => DiskFault::Power(random.next()),
            _ => DiskFault::Kill(random.next()),
        },
    }
}

pub(super) fn full(random: &mut Random) -> Action {
    Action::Full {
        for_ms: {
            let longest = random.pick(&[100, 600, 3000]);
            u32::try_from(random.below(longest)).unwrap_or(0)
        },
        used_up: random.pick(&[UsedUp::Nothing, UsedUp::State, UsedUp::Settlements]),
    }
}
