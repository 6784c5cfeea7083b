//! Control frames: changes of logs, state and segments, as the bodies of frames without entries.
//!
//! ```text
//! u8 type
//! 1 state     u16 space, u8 change (0 put, 1 delta, 2 delete), u32 key bytes, key, value
//! 2 create    u64 first log, u32 logs, spec
//! 3 change    u64 first log, u32 logs, spec
//! 4 delete    u64 first log, u32 logs
//! 5 truncate  u64 log, u64 first offset kept
//! 6 reserve   u64 log, u64 offsets below this may have been assigned
//! 7 run       u32 epoch, 16 bytes boot id, i64 ms          the program started
//! 8 run end   u32 epoch                                    it stopped cleanly, with nothing left to write
//! 9 segments  u32 added, u32 removed, then their ids       a rewrite took effect
//! 10 own      u64 log, u64 epoch of its owner
//! spec: u8 durability (0 memory, 1 os, 2 interval, 3 sync), u32 records, u32 ms,
//!       u64 retention ms, u64 retention bytes (all ones: unlimited)
//!       if bit 7 of the first byte is set, from version 3 on: compaction
//! compaction: u64 ms that tombstones are kept, u64 lag min ms, u64 lag max ms (all ones: none),
//!       u32 dirty share min, in millionths
//! ```

use std::time::Duration;

use bytes::Bytes;
use stafett_model::{Durability, Epoch, LogId, Offset};

use super::codec::{Reader, u32_of, usize_of};
use super::position::SegmentId;
use crate::contract::{Change, Compaction, LogSpec, OwnerEpoch, Retention, StateChange, StateSpace};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Control {
    State(StateChange),
    CreateLogs {
        first: LogId,
        count: u32,
        spec: LogSpec,
    },
    ChangeLogs {
        first: LogId,
        count: u32,
        spec: LogSpec,
    },
    DeleteLogs {
        first: LogId,
        count: u32,
    },
    Truncate {
        log: LogId,
        before: Offset,
    },
    Reserve {
        log: LogId,
        below: Offset,
    },
    Own {
        log: LogId,
        owner: OwnerEpoch,
    },
    Started {
        epoch: Epoch,
        boot: [u8; 16],
        at: i64,
    },
    StoppedCleanly {
        epoch: Epoch,
    },
    Segments {
        added: Vec<SegmentId>,
        removed: Vec<SegmentId>,
    },
}

const FOR_EVER: u64 = u64::MAX;
/// Bit of a spec's first byte: compaction follows.
const COMPACTION_BIT: u8 = 1 << 7;
/// Most logs that one frame creates, changes or deletes.
pub(crate) const LOGS_MAX: u32 = 1 << 16;

impl Control {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::State(change) => encode_state(change, &mut out),
            Self::CreateLogs { first, count, spec } => {
                encode_logs(2, *first, *count, &mut out);
                encode_spec(spec, &mut out);
            }
            Self::ChangeLogs { first, count, spec } => {
                encode_logs(3, *first, *count, &mut out);
                encode_spec(spec, &mut out);
            }
            Self::DeleteLogs { first, count } => encode_logs(4, *first, *count, &mut out),
            Self::Truncate { log, before } => encode_offset(5, *log, *before, &mut out),
            Self::Reserve { log, below } => encode_offset(6, *log, *below, &mut out),
            Self::Started { epoch, boot, at } => {
                out.push(7);
                out.extend_from_slice(&epoch.0.to_le_bytes());
                out.extend_from_slice(boot);
                out.extend_from_slice(&at.to_le_bytes());
            }
            Self::Own { log, owner } => {
                out.push(10);
                out.extend_from_slice(&log.0.to_le_bytes());
                out.extend_from_slice(&owner.0.to_le_bytes());
            }
            Self::StoppedCleanly { epoch } => {
                out.push(8);
                out.extend_from_slice(&epoch.0.to_le_bytes());
            }
            Self::Segments { added, removed } => {
                out.push(9);
                out.extend_from_slice(&u32_of(added.len()).to_le_bytes());
                out.extend_from_slice(&u32_of(removed.len()).to_le_bytes());
                for id in added.iter().chain(removed) {
                    out.extend_from_slice(&id.0.to_le_bytes());
                }
            }
        }
        out
    }

    /// Decodes a body whose checksum is valid. `None` if its type is unknown or its contents are malformed.
    pub(crate) fn decode(body: &Bytes) -> Option<Self> {
        let mut reader = Reader(body);
        let control = match reader.u8()? {
            1 => return decode_state(&mut reader, body),
            2 => {
                let (first, count) = decode_logs(&mut reader)?;
                Self::CreateLogs {
                    first,
                    count,
                    spec: decode_spec(&mut reader)?,
                }
            }
            3 => {
                let (first, count) = decode_logs(&mut reader)?;
                Self::ChangeLogs {
                    first,
                    count,
                    spec: decode_spec(&mut reader)?,
                }
            }
            4 => {
                let (first, count) = decode_logs(&mut reader)?;
                Self::DeleteLogs { first, count }
            }
            5 => Self::Truncate {
                log: LogId(reader.u64()?),
                before: decode_offset(&mut reader)?,
            },
            6 => Self::Reserve {
                log: LogId(reader.u64()?),
                below: decode_offset(&mut reader)?,
            },
            7 => Self::Started {
                epoch: Epoch(reader.u32()?),
                boot: reader.bytes16()?,
                at: reader.i64()?,
            },
            8 => Self::StoppedCleanly {
                epoch: Epoch(reader.u32()?),
            },
            9 => {
                let (added, removed) = (reader.u32()?, reader.u32()?);
                let mut ids = |count| {
                    (0..count)
                        .map(|_| reader.u32().map(SegmentId))
                        .collect::<Option<_>>()
                };
                Self::Segments {
                    added: ids(added)?,
                    removed: ids(removed)?,
                }
            }
            10 => Self::Own {
                log: LogId(reader.u64()?),
                owner: OwnerEpoch(reader.u64()?),
            },
            _ => return None,
        };
        reader.0.is_empty().then_some(control)
    }
}

fn encode_logs(what: u8, first: LogId, count: u32, out: &mut Vec<u8>) {
    out.push(what);
    out.extend_from_slice(&first.0.to_le_bytes());
    out.extend_from_slice(&count.to_le_bytes());
}

/// Reads a range of log ids; `None` if it is too long or overflows.
fn decode_logs(reader: &mut Reader<'_>) -> Option<(LogId, u32)> {
    let (first, count) = (reader.u64()?, reader.u32()?);
    let fits = count <= LOGS_MAX && first.checked_add(count.into()).is_some();
    fits.then_some((LogId(first), count))
}

/// Reads an offset; `None` if it is beyond the largest one.
pub(crate) fn decode_offset(reader: &mut Reader<'_>) -> Option<Offset> {
    Offset::ZERO.checked_add(reader.u64()?)
}

fn encode_offset(what: u8, log: LogId, offset: Offset, out: &mut Vec<u8>) {
    out.push(what);
    out.extend_from_slice(&log.0.to_le_bytes());
    out.extend_from_slice(&offset.0.to_le_bytes());
}

fn encode_state(state: &StateChange, out: &mut Vec<u8>) {
    let (change, value) = match &state.change {
        Change::Put(value) => (0, value.as_ref()),
        Change::Delta(value) => (1, value.as_ref()),
        Change::Delete => (2, &[][..]),
    };
    out.reserve_exact(8 + state.key.len() + value.len());
    out.push(1);
    out.extend_from_slice(&state.space.0.to_le_bytes());
    out.push(change);
    out.extend_from_slice(&u32_of(state.key.len()).to_le_bytes());
    out.extend_from_slice(&state.key);
    out.extend_from_slice(value);
}

fn decode_state(reader: &mut Reader<'_>, body: &Bytes) -> Option<Control> {
    let (space, change) = (StateSpace(reader.u16()?), reader.u8()?);
    let key_bytes = usize_of(reader.u32()?);
    let key = body.slice_ref(reader.take(key_bytes)?);
    let value = body.slice_ref(reader.0);
    let change = match change {
        0 => Change::Put(value),
        1 => Change::Delta(value),
        2 => Change::Delete,
        _ => return None,
    };
    Some(Control::State(StateChange { space, key, change }))
}

/// Encodes a spec; the checkpoint uses the same form.
pub(crate) fn encode_spec(spec: &LogSpec, out: &mut Vec<u8>) {
    let (level, records, every) = match spec.durability {
        Durability::Memory => (0, 0, 0),
        Durability::Os => (1, 0, 0),
        Durability::Interval { records, every } => {
            (2, records, u32::try_from(every.as_millis()).unwrap_or(u32::MAX))
        }
        Durability::Sync => (3, 0, 0),
    };
    let flag = spec.compaction.map_or(0, |_| COMPACTION_BIT);
    out.push(level | flag);
    out.extend_from_slice(&records.to_le_bytes());
    out.extend_from_slice(&every.to_le_bytes());
    put_millis(spec.retention.age, out);
    out.extend_from_slice(&spec.retention.bytes.unwrap_or(FOR_EVER).to_le_bytes());
    if let Some(compaction) = &spec.compaction {
        put_millis(Some(compaction.tombstones_kept), out);
        put_millis(Some(compaction.lag_min), out);
        put_millis(compaction.lag_max, out);
        out.extend_from_slice(&compaction.dirty_share_min.to_le_bytes());
    }
}

fn put_millis(time: Option<Duration>, out: &mut Vec<u8>) {
    let millis = time.map_or(FOR_EVER, |time| {
        u64::try_from(time.as_millis()).unwrap_or(FOR_EVER)
    });
    out.extend_from_slice(&millis.to_le_bytes());
}

fn decode_compaction(reader: &mut Reader<'_>) -> Option<Compaction> {
    let mut millis = || reader.u64();
    let (tombstones, lag_min, lag_max) = (millis()?, millis()?, millis()?);
    Some(Compaction {
        tombstones_kept: Duration::from_millis(tombstones),
        lag_min: Duration::from_millis(lag_min),
        lag_max: (lag_max != FOR_EVER).then_some(Duration::from_millis(lag_max)),
        dirty_share_min: reader.u32()?,
    })
}

pub(crate) fn decode_spec(reader: &mut Reader<'_>) -> Option<LogSpec> {
    let (level, records, every) = (reader.u8()?, reader.u32()?, reader.u32()?);
    let durability = match level & !COMPACTION_BIT {
        0 => Durability::Memory,
        1 => Durability::Os,
        2 => Durability::Interval {
            records,
            every: Duration::from_millis(every.into()),
        },
        3 => Durability::Sync,
        _ => return None,
    };
    let (age, bytes) = (reader.u64()?, reader.u64()?);
    let retention = Retention {
        age: (age != FOR_EVER).then_some(Duration::from_millis(age)),
        bytes: (bytes != FOR_EVER).then_some(bytes),
    };
    let compaction = match level & COMPACTION_BIT {
        0 => None,
        _ => Some(decode_compaction(reader)?),
    };
    Some(LogSpec {
        durability,
        retention,
        compaction,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<Control> {
        let spec = LogSpec {
            durability: Durability::Interval {
                records: 9,
                every: Duration::from_millis(20),
            },
            retention: Retention {
                age: Some(Duration::from_secs(7)),
                bytes: None,
            },
            compaction: None,
        };
        let compacted = LogSpec {
            compaction: Some(Compaction {
                lag_max: Some(Duration::from_millis(8)),
                ..Compaction::default()
            }),
            ..spec
        };
        let state = |change| StateChange {
            space: StateSpace(7),
            key: Bytes::from_static(b"key"),
            change,
        };
        vec![
            Control::State(state(Change::Put(Bytes::from_static(b"value")))),
            Control::State(state(Change::Delta(Bytes::from_static(b"")))),
            Control::State(state(Change::Delete)),
            Control::CreateLogs {
                first: LogId(1 << 33),
                count: 50,
                spec,
            },
            Control::ChangeLogs {
                first: LogId(3),
                count: 1,
                spec: LogSpec::default(),
            },
            Control::ChangeLogs {
                first: LogId(3),
                count: 1,
                spec: compacted,
            },
            Control::DeleteLogs {
                first: LogId(4),
                count: 2,
            },
            Control::Truncate {
                log: LogId(5),
                before: Offset(77),
            },
            Control::Reserve {
                log: LogId(6),
                below: Offset(1 << 50),
            },
            Control::Started {
                epoch: Epoch(12),
                boot: [7; 16],
                at: -5,
            },
            Control::StoppedCleanly { epoch: Epoch(12) },
            Control::Own {
                log: LogId(8),
                owner: OwnerEpoch(u64::MAX),
            },
            Control::Segments {
                added: vec![SegmentId(9)],
                removed: vec![SegmentId(1), SegmentId(2)],
            },
        ]
    }

    #[test]
    fn every_control_reads_back_as_written() {
        for control in samples() {
            assert_eq!(Control::decode(&control.encode().into()), Some(control));
        }
    }

    #[test]
    fn ids_and_offsets_that_there_cannot_be_are_not_understood() {
        let decode = |control: Control| Control::decode(&control.encode().into());
        let spec = LogSpec::default();
        for (first, count) in [
            (u64::MAX, 1),
            (u64::MAX - 5, 10),
            (1, LOGS_MAX + 1),
            (1, u32::MAX),
        ] {
            let first = LogId(first);
            assert_eq!(decode(Control::CreateLogs { first, count, spec }), None);
            assert_eq!(decode(Control::ChangeLogs { first, count, spec }), None);
            assert_eq!(decode(Control::DeleteLogs { first, count }), None);
        }
        for offset in [u64::MAX, 1 << 63] {
            let (log, offset) = (LogId(1), Offset(offset));
            assert_eq!(decode(Control::Truncate { log, before: offset }), None);
            assert_eq!(decode(Control::Reserve { log, below: offset }), None);
        }
    }

    #[test]
    fn cut_or_unknown_bodies_are_not_understood() {
        for control in samples() {
            let body = Bytes::from(control.encode());
            let least = if matches!(control, Control::State(_)) {
                8 + 3
            } else {
                body.len()
            };
            for cut in 0..least {
                assert_eq!(
                    Control::decode(&body.slice(..cut)),
                    None,
                    "{control:?} cut at {cut}"
                );
            }
        }
        assert_eq!(Control::decode(&Bytes::from_static(&[99, 0, 0])), None);
    }
}
