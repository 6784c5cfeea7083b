//! How often each message of a stream came, where each comes several times.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use roaring::RoaringTreemap;

use super::{CHUNK, Piece, SEQUENCE_MAX};

/// How often each message came, by chunks.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Chunks of which everything came.
    complete: RoaringTreemap,
    pub(super) partial: BTreeMap<u64, Chunk>,
}

#[derive(Debug)]
pub(super) struct Chunk {
    counts: Box<[u16]>,
    /// Deliveries that it misses.
    open: u64,
}

impl Counts {
    /// Enters a message; false if it has come often enough.
    pub(super) fn enter(&mut self, sequence: u64, each: u16) -> bool {
        let at = sequence / CHUNK;
        if self.complete.contains(at) {
            return false;
        }
        let chunk = self.partial.entry(at).or_insert_with(|| Chunk::new(each));
        let is_new = chunk.add(sequence % CHUNK, 1, each) == 0;
        if chunk.open == 0 {
            self.partial.remove(&at);
            self.complete.insert(at);
        }
        is_new
    }

    /// Takes over a chunk of another host, as [`Ledger::absorb`].
    pub(super) fn absorb(&mut self, piece: &Piece, each: u16) -> u64 {
        if piece.chunk >= SEQUENCE_MAX / CHUNK {
            return 0;
        }
        let bytes = STANDARD.decode(&piece.content).unwrap_or_default();
        let (counts, _) = bytes.as_chunks();
        let chunk = self
            .partial
            .entry(piece.chunk)
            .or_insert_with(|| Chunk::new(each));
        let came = (0..CHUNK).zip(counts.iter().map(|count| u16::from_le_bytes(*count)));
        came.map(|(place, came)| u64::from(chunk.add(place, came, each)))
            .sum()
    }

    /// Returns the deliveries of the first `sent` messages, without those of messages that were given up.
    pub(super) fn came(&self, sent: u64, each: u16, given_up: &RoaringTreemap) -> u64 {
        let is_due = |number: u64| number < sent && !given_up.contains(number);
        let of_chunk = |(at, chunk): (&u64, &Chunk)| -> u64 {
            let numbered = (at * CHUNK..).zip(&chunk.counts);
            let due = numbered.filter(|(number, _)| is_due(*number));
            due.map(|(_, count)| u64::from(*count)).sum()
        };
        let of_complete = |at: u64| {
            let range = at * CHUNK..((at + 1) * CHUNK).min(sent);
            let messages = range.end.saturating_sub(range.start);
            (messages - given_up.range_cardinality(range)) * u64::from(each)
        };
        let complete: u64 = self.complete.iter().map(of_complete).sum();
        complete + self.partial.iter().map(of_chunk).sum::<u64>()
    }
}

impl Chunk {
    fn new(each: u16) -> Self {
        Self {
            counts: (0..CHUNK).map(|_| 0).collect(),
            open: CHUNK * u64::from(each),
        }
    }

    /// Adds deliveries of a message; returns how many of them were too many.
    fn add(&mut self, place: u64, came: u16, each: u16) -> u16 {
        let count = usize::try_from(place)
            .ok()
            .and_then(|place| self.counts.get_mut(place));
        let Some(count) = count else { return 0 };
        let taken = came.min(each - *count);
        *count += taken;
        self.open -= u64::from(taken);
        came - taken
    }

    pub(super) fn encode(&self) -> String {
        let bytes = self.counts.iter().flat_map(|count| count.to_le_bytes());
        STANDARD.encode(bytes.collect::<Vec<u8>>())
    }
}
