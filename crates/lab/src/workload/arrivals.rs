//! What came to a part of the receivers of a role, where each message comes to several of them that are not
//! told apart.
//!
//! How often a message is to come *here* depends on who follows its topic on this host, and a message that
//! nobody here follows never comes at all. So nothing is judged here: what came is handed every second to who
//! sees all hosts (a [`super::tally::Tally`] judges it there), and forgotten.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::ledger::Entry;

const BLOCK: usize = 64;

/// How often messages came since it was asked last.
#[derive(Debug, Default)]
pub struct Arrivals {
    /// Of every stream that counts: counts by the number of their block.
    streams: BTreeMap<u32, BTreeMap<u64, [u16; BLOCK]>>,
}

/// How often each of some messages of a stream in a row came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrived {
    pub stream: u32,
    pub first: u64,
    pub counts: Vec<u16>,
}

impl Arrivals {
    /// Messages of this stream count.
    pub fn expect(&mut self, stream: u32) {
        self.streams.entry(stream).or_default();
    }

    /// Whether it comes again is not known here.
    pub fn enter(&mut self, stream: u32, sequence: u64) -> Entry {
        let Some(blocks) = self.streams.get_mut(&stream) else {
            return Entry::Foreign;
        };
        let block = blocks.entry(sequence / BLOCK as u64).or_insert([0; BLOCK]);
        let place = usize::try_from(sequence % BLOCK as u64).unwrap_or(0);
        if let Some(count) = block.get_mut(place) {
            *count = count.saturating_add(1);
        }
        Entry::New
    }

    /// What came since this was asked last.
    pub fn take(&mut self) -> Vec<Arrived> {
        let mut all: Vec<Arrived> = Vec::new();
        for (stream, blocks) in &mut self.streams {
            let mut last = None;
            for (number, counts) in std::mem::take(blocks) {
                match all
                    .last_mut()
                    .filter(|_| number.checked_sub(1) == last && last.is_some())
                {
                    Some(run) => run.counts.extend_from_slice(&counts),
                    None => all.push(Arrived {
                        stream: *stream,
                        first: number * BLOCK as u64,
                        counts: counts.to_vec(),
                    }),
                }
                last = Some(number);
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_is_told_once_and_blocks_in_a_row_together() {
        let mut arrivals = Arrivals::default();
        arrivals.expect(1);
        arrivals.expect(2);
        for sequence in [0, 63, 64, 64, 1000, u64::MAX] {
            assert_eq!(arrivals.enter(1, sequence), Entry::New);
        }
        assert_eq!(arrivals.enter(2, 64), Entry::New);
        assert_eq!(arrivals.enter(3, 0), Entry::Foreign);
        let told: Vec<_> = arrivals
            .take()
            .into_iter()
            .map(|run| {
                let count: u64 = run.counts.iter().map(|count| u64::from(*count)).sum();
                (run.stream, run.first, run.counts.len(), count)
            })
            .collect();
        assert_eq!(
            told,
            [
                (1, 0, 128, 4),
                (1, 960, 64, 1),
                (1, u64::MAX - 63, 64, 1),
                (2, 64, 64, 1)
            ]
        );
        assert!(arrivals.take().is_empty());
    }
}
