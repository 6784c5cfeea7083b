//! The checkpoint: everything that would otherwise have to be replayed from the journal's beginning, in an
//! embedded database that is written later. No acknowledgement depends on it. Each transaction stores the
//! position that it covers. While a full disk has no space for its file it is empty: then everything is
//! replayed, and kept in memory until it can be stored.
//!
//! | table | key | value |
//! |---|---|---|
//! | `meta` | `journal` | position, next log, next segment, the last run |
//! | `meta` | `lost` | empty: there was a checkpoint before this file, and none has been stored since |
//! | `meta` | `arrivals` | the arrival segments in force up to the position, 4 bytes each, little-endian |
//! | `logs` | log | spec, start, next, reserved, fenced, damaged ranges, old producers, owner epoch |
//! | `producers` | log, producer | its last batches, and when it was seen (`producers.rs`) |
//! | `segments` | segment | 1: sorted, in force; 2: removed, its file may still exist |
//! | `state` | space (big-endian), key | value |
//! | `deltas` | space, key length, key, position, number (big-endian) | delta |
//!
//! Length: one structure on disk, its writer beside its readers.

mod database;

use std::fmt::Display;
use std::ops::Bound;
use std::sync::Arc;

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};
use stafett_model::{Lock, LockGuard, LogId, Offset};

use self::database::{OpenDatabase, open_database, open_stored};
use super::codec::{Reader, u32_of};
use super::control::{decode_offset, decode_spec, encode_spec};
use super::log::LogState;
use super::position::{Position, SegmentId};
use super::producers::{ProducerRow, Producers};
use super::storage::Storage;
use crate::contract::{Change, LogSpec, OwnerEpoch, StateChange, StateItem, StateSpace, StateUnreadable};

pub(crate) const FILE: &str = "checkpoint.redb";

const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
/// Row of `meta`.
const LOST: &str = "lost";
const LOGS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("logs");
/// Missing in databases of old versions.
const PRODUCERS: TableDefinition<'_, (u64, i64), &[u8]> = TableDefinition::new("producers");
const SEGMENTS: TableDefinition<'_, u32, u8> = TableDefinition::new("segments");
const STATE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("state");
const DELTAS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("deltas");

const SORTED: u8 = 1;
const REMOVED: u8 = 2;

#[derive(Debug)]
pub(crate) struct Checkpoint {
    storage: Arc<dyn Storage>,
    /// `None` after an error, until it is reopened.
    database: Lock<Option<OpenDatabase>>,
    /// True if this start created the database, or an earlier one in place of a lost one and stored nothing.
    is_new: bool,
    /// Held from gathering the changes until they are stored: checkpoints are stored in the order of their
    /// positions.
    turn: Lock<()>,
}

/// Error: the checkpoint could not be read or stored.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the checkpoint in {FILE}: {0}")]
pub(crate) struct CheckpointError(String);

/// Contents of one transaction.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub(crate) meta: Meta,
    pub(crate) logs: Vec<(LogId, Vec<u8>)>,
    pub(crate) producers: Vec<(LogId, Vec<ProducerRow>)>,
    pub(crate) deleted_logs: Vec<LogId>,
    pub(crate) state: Vec<StateAt>,
    /// All arrival segments in force up to the position.
    pub(crate) arrivals: Vec<SegmentId>,
    pub(crate) segments_added: Vec<SegmentId>,
    pub(crate) segments_removed: Vec<SegmentId>,
    /// Removed segments whose files are deleted.
    pub(crate) segments_forgotten: Vec<SegmentId>,
}

/// A change of state with its order: its group's end, and its number in the group.
#[derive(Debug, Clone)]
pub(crate) struct StateAt {
    pub(crate) position: Position,
    pub(crate) number: u32,
    pub(crate) change: StateChange,
}

/// Properties of the journal as a whole.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Meta {
    /// Position up to which everything is covered.
    pub(crate) position: Position,
    pub(crate) next_log: u64,
    pub(crate) next_segment: u32,
    /// The last start of the program, and true in `ended` if it stopped cleanly.
    pub(crate) run: StartInfo,
    /// Total running time of the journal ([`super::running`]).
    pub(crate) running_ms: i64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct StartInfo {
    pub(crate) epoch: u32,
    pub(crate) boot: [u8; 16],
    pub(crate) ended: bool,
}

/// Row of a log.
#[derive(Debug)]
#[expect(
    clippy::box_collection,
    reason = "moved into the log as it is, which pays a pointer"
)]
pub(crate) struct LogRow {
    pub(crate) spec: LogSpec,
    pub(crate) start: Offset,
    pub(crate) next: Offset,
    pub(crate) reserved: Offset,
    pub(crate) fenced: bool,
    pub(crate) damaged: Option<Box<Vec<(Offset, Offset)>>>,
    pub(crate) producers: Option<Box<Producers>>,
    pub(crate) owner: OwnerEpoch,
}

/// State of a segment's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SegmentState {
    Sorted,
    Removed,
}

impl Checkpoint {
    pub(crate) fn open(storage: Arc<dyn Storage>) -> Result<Self, CheckpointError> {
        let is_new = !storage.list().map_err(failed)?.iter().any(|name| name == FILE);
        let database = open_database(&storage)?;
        let mut checkpoint = Self {
            storage,
            database: Lock::new(Some(database)),
            is_new,
            turn: Lock::default(),
        };
        checkpoint.is_new |= checkpoint.meta_row(LOST, |row| Ok(row.is_some()))?;
        Ok(checkpoint)
    }

    /// Returns true if no checkpoint has been stored in this database, or in the one before that was lost.
    pub(crate) fn is_new(&self) -> bool {
        self.is_new
    }

    pub(crate) fn turn(&self) -> LockGuard<'_, ()> {
        self.turn.lock()
    }

    /// Takes the turn if it is free.
    pub(crate) fn try_turn(&self) -> Option<LockGuard<'_, ()>> {
        self.turn.try_lock()
    }

    pub(crate) fn store(&self, changes: &Changes) -> Result<(), CheckpointError> {
        let mut slot = self.database.lock();
        let opened = match slot.take() {
            Some(opened) if opened.is_stored => opened,
            // An earlier error closed it, or there was no space for it.
            Some(_) | None => open_stored(&self.storage)?,
        };
        // After an error the database refuses to continue: the next attempt reopens it.
        store(&opened.database, changes)?;
        *slot = Some(opened);
        Ok(())
    }

    pub(crate) fn meta(&self) -> Result<Meta, CheckpointError> {
        self.meta_row("journal", |bytes| match bytes {
            None => Ok(Meta::default()),
            Some(bytes) => Meta::decode(bytes).ok_or_else(|| failed("its meta row is malformed")),
        })
    }

    /// Returns the arrival segments that must exist; `None` if the checkpoint was stored by an old version
    /// without this row.
    pub(crate) fn arrivals(&self) -> Result<Option<Vec<SegmentId>>, CheckpointError> {
        self.meta_row("arrivals", |bytes| Ok(bytes.map(decode_arrivals)))
    }

    fn meta_row<R>(
        &self,
        name: &str,
        decode: impl FnOnce(Option<&[u8]>) -> Result<R, CheckpointError>,
    ) -> Result<R, CheckpointError> {
        self.read(|database| {
            let table = database
                .begin_read()
                .map_err(failed)?
                .open_table(META)
                .map_err(failed)?;
            let bytes = table.get(name).map_err(failed)?;
            decode(bytes.as_ref().map(redb::AccessGuard::value))
        })
    }

    pub(crate) fn for_each_log(&self, mut visit: impl FnMut(LogId, LogRow)) -> Result<(), CheckpointError> {
        self.read(|database| {
            let table = database
                .begin_read()
                .map_err(failed)?
                .open_table(LOGS)
                .map_err(failed)?;
            for row in table.iter().map_err(failed)? {
                let (id, bytes) = row.map_err(failed)?;
                let row = LogRow::decode(bytes.value())
                    .ok_or_else(|| failed(format!("the row of log {} is malformed", id.value())))?;
                visit(LogId(id.value()), row);
            }
            Ok(())
        })
    }

    /// Visits the rows of producers until `visit` returns false for a malformed one.
    pub(crate) fn for_each_producer(
        &self,
        mut visit: impl FnMut(LogId, i64, &[u8]) -> bool,
    ) -> Result<(), CheckpointError> {
        self.read(|database| {
            let table = match database.begin_read().map_err(failed)?.open_table(PRODUCERS) {
                Ok(table) => table,
                Err(redb::TableError::TableDoesNotExist(_)) => return Ok(()),
                Err(error) => return Err(failed(error)),
            };
            for row in table.iter().map_err(failed)? {
                let (key, bytes) = row.map_err(failed)?;
                let (log, id) = key.value();
                if !visit(LogId(log), id, bytes.value()) {
                    return Err(failed(format!(
                        "the row of producer {id} of log {log} is malformed"
                    )));
                }
            }
            Ok(())
        })
    }

    pub(crate) fn segments(&self) -> Result<Vec<(SegmentId, SegmentState)>, CheckpointError> {
        self.read(|database| {
            let table = database
                .begin_read()
                .map_err(failed)?
                .open_table(SEGMENTS)
                .map_err(failed)?;
            let mut segments = Vec::new();
            for row in table.iter().map_err(failed)? {
                let (id, state) = row.map_err(failed)?;
                let state = if state.value() == SORTED {
                    SegmentState::Sorted
                } else {
                    SegmentState::Removed
                };
                segments.push((SegmentId(id.value()), state));
            }
            Ok(segments)
        })
    }

    pub(crate) fn load_state(
        &self,
        space: StateSpace,
        visit: &mut dyn FnMut(StateItem<'_>),
    ) -> Result<(), StateUnreadable> {
        self.read(|database| load_state(database, space, visit))
            .map_err(|error| StateUnreadable(error.to_string()))
    }

    fn read<R>(
        &self,
        read: impl FnOnce(&Database) -> Result<R, CheckpointError>,
    ) -> Result<R, CheckpointError> {
        let mut slot = self.database.lock();
        let opened = match slot.take() {
            Some(opened) => opened,
            // An earlier error closed it.
            None => open_database(&self.storage)?,
        };
        read(&slot.insert(opened).database)
    }
}

fn failed(error: impl Display) -> CheckpointError {
    CheckpointError(error.to_string())
}

fn store(database: &Database, changes: &Changes) -> Result<(), CheckpointError> {
    let mut transaction = database.begin_write().map_err(failed)?;
    transaction.set_two_phase_commit(true);
    {
        let mut table = transaction.open_table(META).map_err(failed)?;
        table
            .insert("journal", changes.meta.encode().as_slice())
            .map_err(failed)?;
        table
            .insert("arrivals", encode_arrivals(&changes.arrivals).as_slice())
            .map_err(failed)?;
        table.remove(LOST).map_err(failed)?;
    }
    {
        let mut table = transaction.open_table(LOGS).map_err(failed)?;
        for (id, row) in &changes.logs {
            table.insert(id.0, row.as_slice()).map_err(failed)?;
        }
        for id in &changes.deleted_logs {
            table.remove(id.0).map_err(failed)?;
        }
    }
    store_producers(&transaction, changes)?;
    {
        let mut table = transaction.open_table(SEGMENTS).map_err(failed)?;
        for id in &changes.segments_added {
            table.insert(id.0, SORTED).map_err(failed)?;
        }
        for id in &changes.segments_removed {
            table.insert(id.0, REMOVED).map_err(failed)?;
        }
        for id in &changes.segments_forgotten {
            table.remove(id.0).map_err(failed)?;
        }
    }
    {
        let mut state = transaction.open_table(STATE).map_err(failed)?;
        let mut deltas = transaction.open_table(DELTAS).map_err(failed)?;
        let mut any_deltas = !redb::ReadableTableMetadata::is_empty(&deltas).map_err(failed)?;
        for at in &changes.state {
            let StateChange { space, key, change } = &at.change;
            let name = state_name(*space, key);
            match change {
                Change::Put(value) => {
                    state.insert(name.as_slice(), value.as_ref()).map_err(failed)?;
                }
                Change::Delete => {
                    state.remove(name.as_slice()).map_err(failed)?;
                }
                Change::Delta(delta) => {
                    any_deltas = true;
                    let name = delta_name(*space, key, at.position.packed(), at.number);
                    deltas.insert(name.as_slice(), delta.as_ref()).map_err(failed)?;
                }
            }
            if any_deltas && !matches!(change, Change::Delta(_)) {
                let (from, to) = (
                    delta_name(*space, key, 0, 0),
                    delta_name(*space, key, at.position.packed(), at.number),
                );
                deltas
                    .retain_in(from.as_slice()..to.as_slice(), |_, _| false)
                    .map_err(failed)?;
            }
        }
    }
    transaction.commit().map_err(failed)
}

fn store_producers(transaction: &WriteTransaction, changes: &Changes) -> Result<(), CheckpointError> {
    if changes.producers.is_empty() && changes.deleted_logs.is_empty() {
        return Ok(());
    }
    let mut table = transaction.open_table(PRODUCERS).map_err(failed)?;
    for (log, changed) in &changes.producers {
        for (id, row) in changed {
            match row {
                Some(row) => drop(table.insert((log.0, *id), row.as_slice()).map_err(failed)?),
                None => drop(table.remove((log.0, *id)).map_err(failed)?),
            }
        }
    }
    for log in &changes.deleted_logs {
        table
            .retain_in((log.0, i64::MIN)..=(log.0, i64::MAX), |_, _| false)
            .map_err(failed)?;
    }
    Ok(())
}

fn load_state(
    database: &Database,
    space: StateSpace,
    visit: &mut dyn FnMut(StateItem<'_>),
) -> Result<(), CheckpointError> {
    let transaction = database.begin_read().map_err(failed)?;
    let (from, behind) = (
        space.0.to_be_bytes(),
        space.0.checked_add(1).map(u16::to_be_bytes),
    );
    let to = behind
        .as_ref()
        .map_or(Bound::Unbounded, |behind| Bound::Excluded(&behind[..]));
    let names = (Bound::Included(&from[..]), to);
    let state = transaction.open_table(STATE).map_err(failed)?;
    let deltas = transaction.open_table(DELTAS).map_err(failed)?;
    for row in state.range::<&[u8]>(names).map_err(failed)? {
        let (name, value) = row.map_err(failed)?;
        let key = name.value().get(2..).unwrap_or_default();
        visit(StateItem::Value {
            key,
            value: value.value(),
        });
    }
    for row in deltas.range::<&[u8]>(names).map_err(failed)? {
        let (name, delta) = row.map_err(failed)?;
        let name = name.value();
        let key = name.get(6..name.len().saturating_sub(12)).unwrap_or_default();
        visit(StateItem::Delta {
            key,
            delta: delta.value(),
        });
    }
    Ok(())
}

fn encode_arrivals(ids: &[SegmentId]) -> Vec<u8> {
    ids.iter().flat_map(|id| id.0.to_le_bytes()).collect()
}

fn decode_arrivals(bytes: &[u8]) -> Vec<SegmentId> {
    let (ids, _) = bytes.as_chunks();
    ids.iter().map(|id| SegmentId(u32::from_le_bytes(*id))).collect()
}

fn state_name(space: StateSpace, key: &[u8]) -> Vec<u8> {
    [&space.0.to_be_bytes(), key].concat()
}

fn delta_name(space: StateSpace, key: &[u8], position: u64, number: u32) -> Vec<u8> {
    let length = u32_of(key.len()).to_be_bytes();
    [
        &space.0.to_be_bytes()[..],
        &length,
        key,
        &position.to_be_bytes(),
        &number.to_be_bytes(),
    ]
    .concat()
}

impl Meta {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(&self.position.packed().to_le_bytes());
        out.extend_from_slice(&self.next_log.to_le_bytes());
        out.extend_from_slice(&self.next_segment.to_le_bytes());
        out.extend_from_slice(&self.run.epoch.to_le_bytes());
        out.extend_from_slice(&self.run.boot);
        out.push(self.run.ended.into());
        out.extend_from_slice(&self.running_ms.to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let position = Position::unpacked(reader.u64()?);
        let (next_log, next_segment) = (reader.u64()?, reader.u32()?);
        let run = StartInfo {
            epoch: reader.u32()?,
            boot: reader.bytes16()?,
            ended: reader.u8()? != 0,
        };
        let running_ms = reader.i64().unwrap_or(0);
        Some(Self {
            position,
            next_log,
            next_segment,
            run,
            running_ms,
        })
    }
}

impl LogRow {
    pub(crate) fn encode(state: &LogState) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        encode_spec(&state.spec, &mut out);
        for offset in [state.start, state.next, state.reserved] {
            out.extend_from_slice(&offset.0.to_le_bytes());
        }
        out.push(state.fenced.into());
        let damaged = state.damaged.as_deref().map_or(&[][..], Vec::as_slice);
        out.extend_from_slice(&u32_of(damaged.len()).to_le_bytes());
        for (from, to) in damaged {
            out.extend_from_slice(&from.0.to_le_bytes());
            out.extend_from_slice(&to.0.to_le_bytes());
        }
        let is_owned = state.owner > OwnerEpoch::default();
        if is_owned {
            // Place of the producers in rows of old versions.
            out.extend_from_slice(&0_u32.to_le_bytes());
            out.extend_from_slice(&state.owner.0.to_le_bytes());
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let spec = decode_spec(&mut reader)?;
        let start = decode_offset(&mut reader)?;
        let (next, reserved) = (decode_offset(&mut reader)?, decode_offset(&mut reader)?);
        let fenced = reader.u8()? != 0;
        let damaged = (0..reader.u32()?)
            .map(|_| Some((decode_offset(&mut reader)?, decode_offset(&mut reader)?)))
            .collect::<Option<Vec<_>>>()?;
        let producers = match reader.0 {
            [] => None,
            _ => Some(Producers::decode(&mut reader)?),
        };
        let owner = match reader.0 {
            [] => OwnerEpoch::default(),
            _ => OwnerEpoch(reader.u64()?),
        };
        Some(Self {
            spec,
            start,
            next,
            reserved,
            fenced,
            damaged: (!damaged.is_empty()).then(|| Box::new(damaged)),
            producers: producers.filter(|known| !known.is_empty()).map(Box::new),
            owner,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::log::Log;

    #[test]
    fn a_row_whose_offsets_there_cannot_be_is_malformed() {
        let encoded = |start, next, reserved| {
            let log = Log::new(LogId(1), Arc::default());
            let mut state = log.lock();
            (state.start, state.next, state.reserved) = (Offset(start), Offset(next), Offset(reserved));
            LogRow::encode(&state)
        };
        assert!(LogRow::decode(&encoded(1, 2, 3)).is_some());
        let beyond = 1 << 63;
        for (start, next, reserved) in [(beyond, 2, 3), (1, u64::MAX, 3), (1, 2, beyond)] {
            assert!(LogRow::decode(&encoded(start, next, reserved)).is_none());
        }
    }
}
