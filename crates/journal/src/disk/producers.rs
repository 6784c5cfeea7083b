//! Idempotent producers of one log: which batches each of them sent last.
//!
//! A producer numbers its records per log, from 0, modulo 2^31. Its last five batches are known, which is as many as
//! a client of Kafka keeps under way (KIP-98), so that one that is sent again is told from one that is out of order.

use smallvec::SmallVec;
use stafett_model::{BatchHeader, Offset, ProducerId};

use super::codec::Reader;
use crate::contract::ProducerSeen;

const BATCHES_KEPT: usize = 5;

/// The producers of a log, sorted by id. Most logs have none, and pay a pointer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Producers(Vec<Producer>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Producer {
    id: i64,
    epoch: i16,
    /// When its last batch came, ms.
    seen_at: i64,
    /// Oldest first.
    batches: SmallVec<[Sent; 1]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sent {
    first: i32,
    last: i32,
    base: Offset,
}

/// A numbered batch, by its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Numbered {
    pub(crate) producer: ProducerId,
    epoch: i16,
    first: i32,
    last: i32,
}

/// What a batch is to a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Next,
    Duplicate { base: Offset },
    OutOfSequence { given: i32, expected: i32 },
    Stale { given: i16, current: i16 },
}

impl Numbered {
    /// `None` for a batch of a producer that does not number.
    pub(crate) fn of(header: &BatchHeader) -> Option<Self> {
        let producer = header.producer()?;
        (header.base_sequence >= 0).then(|| Self {
            producer,
            epoch: header.producer_epoch,
            first: header.base_sequence,
            last: sequence_after(header.base_sequence, header.last_offset_delta),
        })
    }
}

impl Producers {
    pub(crate) fn judge(&self, batch: Numbered) -> Verdict {
        let Ok(index) = self.find(batch.producer) else {
            return Verdict::Next;
        };
        let Some(known) = self.0.get(index) else {
            return Verdict::Next;
        };
        if batch.epoch < known.epoch {
            return Verdict::Stale {
                given: batch.epoch,
                current: known.epoch,
            };
        }
        if batch.epoch > known.epoch {
            return match batch.first {
                0 => Verdict::Next,
                given => Verdict::OutOfSequence { given, expected: 0 },
            };
        }
        let sent = known
            .batches
            .iter()
            .find(|sent| sent.first == batch.first && sent.last == batch.last);
        if let Some(sent) = sent {
            return Verdict::Duplicate { base: sent.base };
        }
        let expected = known
            .batches
            .last()
            .map_or(0, |sent| sequence_after(sent.last, 1));
        if batch.first == expected {
            Verdict::Next
        } else {
            Verdict::OutOfSequence {
                given: batch.first,
                expected,
            }
        }
    }

    /// Notes a batch that was judged next. One that is known already changes nothing, so that frames can be replayed.
    pub(crate) fn note(&mut self, batch: Numbered, base: Offset, now: i64) {
        let index = match self.find(batch.producer) {
            Ok(index) => index,
            Err(index) => {
                let new = Producer {
                    id: batch.producer.0,
                    epoch: batch.epoch,
                    seen_at: now,
                    batches: SmallVec::new(),
                };
                self.0.insert(index, new);
                index
            }
        };
        let Some(known) = self.0.get_mut(index) else {
            return;
        };
        if known.batches.last().is_some_and(|sent| sent.base >= base) {
            return;
        }
        if batch.epoch != known.epoch {
            known.epoch = batch.epoch;
            known.batches.clear();
        }
        if known.batches.len() == BATCHES_KEPT {
            known.batches.remove(0);
        }
        known.batches.push(Sent {
            first: batch.first,
            last: batch.last,
            base,
        });
        known.seen_at = now;
    }

    /// Forgets producers that were last heard of before `time`; true if none is left.
    pub(crate) fn forget_before(&mut self, time: i64) -> bool {
        self.0.retain(|producer| producer.seen_at >= time);
        self.0.is_empty()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, by id.
    pub(crate) fn seen(&self) -> Vec<ProducerSeen> {
        let last = |producer: &Producer| producer.batches.last().map_or(-1, |sent| sent.last);
        let all = self.0.iter();
        all.map(|producer| ProducerSeen {
            id: ProducerId(producer.id),
            epoch: producer.epoch,
            sequence: last(producer),
            at: producer.seen_at,
        })
        .collect()
    }

    fn find(&self, id: ProducerId) -> Result<usize, usize> {
        self.0.binary_search_by_key(&id.0, |producer| producer.id)
    }

    /// `u32 producers, each: i64 id, i16 epoch, i64 seen, u8 batches, each: i32 first, i32 last, u64 base`
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&super::codec::u32_of(self.0.len()).to_le_bytes());
        for producer in &self.0 {
            out.extend_from_slice(&producer.id.to_le_bytes());
            out.extend_from_slice(&producer.epoch.to_le_bytes());
            out.extend_from_slice(&producer.seen_at.to_le_bytes());
            out.push(u8::try_from(producer.batches.len()).unwrap_or(0));
            for sent in &producer.batches {
                out.extend_from_slice(&sent.first.to_le_bytes());
                out.extend_from_slice(&sent.last.to_le_bytes());
                out.extend_from_slice(&sent.base.0.to_le_bytes());
            }
        }
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        let count = reader.u32()?;
        let mut producers = Vec::new();
        for _ in 0..count {
            let id = reader.i64()?;
            let epoch = reader.u16()?.cast_signed();
            let seen_at = reader.i64()?;
            let batches = (0..reader.u8()?)
                .map(|_| {
                    let (first, last) = (reader.u32()?.cast_signed(), reader.u32()?.cast_signed());
                    Some(Sent {
                        first,
                        last,
                        base: Offset(reader.u64()?),
                    })
                })
                .collect::<Option<_>>()?;
            producers.push(Producer {
                id,
                epoch,
                seen_at,
                batches,
            });
        }
        Some(Self(producers))
    }
}

/// The sequence `steps` behind another: after 2^31 - 1 comes 0.
fn sequence_after(sequence: i32, steps: i32) -> i32 {
    let sum = (i64::from(sequence) + i64::from(steps)) & i64::from(i32::MAX);
    i32::try_from(sum).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(epoch: i16, first: i32, records: i32) -> Numbered {
        Numbered {
            producer: ProducerId(9),
            epoch,
            first,
            last: sequence_after(first, records - 1),
        }
    }

    #[test]
    fn a_batch_sent_again_is_a_duplicate_and_a_gap_is_out_of_sequence() {
        let mut producers = Producers::default();
        for n in 0..7 {
            assert_eq!(producers.judge(batch(0, n * 10, 10)), Verdict::Next);
            producers.note(
                batch(0, n * 10, 10),
                Offset(100 + u64::from(n.cast_unsigned()) * 10),
                1,
            );
        }
        assert_eq!(
            producers.judge(batch(0, 60, 10)),
            Verdict::Duplicate { base: Offset(160) }
        );
        assert_eq!(
            producers.judge(batch(0, 20, 10)),
            Verdict::Duplicate { base: Offset(120) }
        );
        assert_eq!(
            producers.judge(batch(0, 10, 10)),
            Verdict::OutOfSequence {
                given: 10,
                expected: 70
            }
        );
        assert_eq!(
            producers.judge(batch(0, 80, 1)),
            Verdict::OutOfSequence {
                given: 80,
                expected: 70
            }
        );
    }

    #[test]
    fn a_new_epoch_starts_at_zero_and_fences_the_old_one() {
        let mut producers = Producers::default();
        producers.note(batch(3, 5, 1), Offset(0), 1);
        assert_eq!(
            producers.judge(batch(2, 6, 1)),
            Verdict::Stale { given: 2, current: 3 }
        );
        assert_eq!(
            producers.judge(batch(4, 6, 1)),
            Verdict::OutOfSequence {
                given: 6,
                expected: 0
            }
        );
        assert_eq!(producers.judge(batch(4, 0, 1)), Verdict::Next);
    }

    #[test]
    fn an_unknown_producer_may_start_anywhere() {
        assert_eq!(Producers::default().judge(batch(0, 77, 1)), Verdict::Next);
    }

    #[test]
    fn sequences_wrap_to_zero() {
        let mut producers = Producers::default();
        producers.note(batch(0, i32::MAX - 1, 2), Offset(0), 1);
        assert_eq!(producers.judge(batch(0, 0, 1)), Verdict::Next);
    }

    #[test]
    fn they_read_back_as_written_and_replay_changes_nothing() {
        let mut producers = Producers::default();
        for id in [4, 1, 9] {
            for n in 0..3 {
                let sent = Numbered {
                    producer: ProducerId(id),
                    ..batch(1, n, 1)
                };
                producers.note(sent, Offset(n.cast_unsigned().into()), 5);
            }
        }
        let mut bytes = Vec::new();
        producers.encode(&mut bytes);
        let mut read = Producers::decode(&mut Reader(&bytes)).unwrap();
        assert_eq!(read, producers);
        read.note(
            Numbered {
                producer: ProducerId(4),
                ..batch(1, 1, 1)
            },
            Offset(1),
            6,
        );
        assert_eq!(read, producers);
    }
}
