//! What one audience received: what is missing, what came twice.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::arrivals::{Arrivals, Arrived};
use super::message::Received;
use super::parts::Parts;
use super::streams::{Piece, Streams};
use super::tally::Tally;

/// What the ledgers of a role may take, in bytes: with two or three of them at their bound the lab stays
/// below 300 MB.
pub(super) const ROOM_BYTES: usize = 48 << 20;

/// What one audience received.
#[derive(Debug)]
pub enum Ledger {
    /// Every message comes to it once.
    Once(Streams),
    /// Of such an audience those on this host.
    PartOfOnce(Parts),
    /// Every message comes so many times.
    Several(Tally),
    /// Of such an audience those on this host.
    Part(Arrivals),
}

/// How a message stands in the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    New,
    Again,
    /// From a stream that nobody sends, or far beyond what was sent.
    Foreign,
}

/// What came to the audiences of a role on one host, and was not told before.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AudienceArrivals {
    /// By audience: with fan-out the number of a client, else 0.
    pub pieces: Vec<(u32, Piece)>,
    /// Where every message comes to several.
    pub arrived: Vec<Arrived>,
}

impl Default for Ledger {
    fn default() -> Self {
        Self::Once(Streams::default())
    }
}

impl Ledger {
    /// Of one of so many audiences to which every message comes `each` times; `is_part`: others of it are on
    /// other hosts.
    pub fn new(each: u16, is_part: bool, audiences: u32) -> Self {
        match (each, is_part) {
            (1, true) => Self::PartOfOnce(Parts::default()),
            (1, false) => Self::Once(Streams::of_audiences(audiences)),
            (_, true) => Self::Part(Arrivals::default()),
            (_, false) => Self::Several(Tally::new(each)),
        }
    }

    /// Messages of this stream count.
    pub fn expect(&mut self, stream: u32) {
        match self {
            Self::Once(streams) => streams.expect(stream),
            Self::PartOfOnce(parts) => parts.expect(stream),
            Self::Several(tally) => tally.expect(stream),
            Self::Part(arrivals) => arrivals.expect(stream),
        }
    }

    pub fn enter(&mut self, stream: u32, sequence: u64) -> Entry {
        match self {
            Self::Once(streams) => streams.enter(stream, sequence),
            Self::PartOfOnce(parts) => parts.enter(stream, sequence),
            Self::Several(tally) => tally.enter(stream, sequence),
            Self::Part(arrivals) => arrivals.enter(stream, sequence),
        }
    }

    /// Enters messages, and tells how each stands.
    pub fn enter_all(&mut self, received: &[Received], mut tell: impl FnMut(&Received, Entry)) {
        if let Self::Once(streams) = self {
            return streams.enter_all(received, tell);
        }
        for message in received {
            tell(message, self.enter(message.stream, message.sequence));
        }
    }

    /// What came here to the audience with this number, for who sees all hosts: what it is time to tell, or,
    /// in the end, all that was not told yet.
    pub fn tell(&mut self, audience: u32, is_end: bool, came: &mut AudienceArrivals) {
        match self {
            Self::PartOfOnce(parts) => {
                let pieces = if is_end {
                    parts.take_all()
                } else {
                    parts.take_old()
                };
                came.pieces
                    .extend(pieces.into_iter().map(|piece| (audience, piece)));
            }
            Self::Part(arrivals) => came.arrived.extend(arrivals.take()),
            Self::Once(_) | Self::Several(_) => {}
        }
    }

    /// How many of the first `sent` messages of a stream did not come, but for those of which `excused` says
    /// how many there are in a range.
    pub fn missing(&self, stream: u32, sent: u64, excused: impl Fn(Range<u64>) -> u64) -> u64 {
        match self {
            Self::Once(streams) => streams.missing(stream, sent, excused),
            Self::Several(tally) => tally.missing(stream, sent, excused),
            Self::PartOfOnce(_) | Self::Part(_) => 0,
        }
    }

    /// Deliveries that are known to be missing, and not of which messages: there were too many to remember.
    /// Where one of these comes after all it counts as lost, and as having come twice.
    pub fn forgotten(&self) -> u64 {
        match self {
            Self::Once(streams) => streams.forgotten(),
            Self::Several(tally) => tally.forgotten(),
            Self::PartOfOnce(_) | Self::Part(_) => 0,
        }
    }
}
