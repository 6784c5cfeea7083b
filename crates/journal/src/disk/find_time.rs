//! Search by time: sidecar rows and entries have the latest timestamp of their contents (`dates.rs`).

use std::sync::Arc;

use bytes::Bytes;
use stafett_model::{LogId, Offset};

use super::dates;
use super::engine::Engine;
use super::position::SegmentId;
use super::read::{ReadFailure, on_reading_thread, read_frames, with_sidecar};
use super::sidecar::IndexEntry;
use crate::contract::{ReadError, TimeQuery};
use crate::ticket::{TimeResult, TimeTicket};

pub(crate) fn find_time(core: &Arc<Engine>, log: LogId, query: TimeQuery) -> TimeTicket {
    let core = Arc::clone(core);
    on_reading_thread(
        move || find(&core, log, query),
        TimeTicket::Ready,
        TimeTicket::Pending,
    )
}

fn find(core: &Engine, id: LogId, query: TimeQuery) -> TimeResult {
    for _ in 0..16 {
        match attempt(core, id, query) {
            Ok(found) => return Ok(found),
            Err(ReadFailure::Moved) => {}
            Err(ReadFailure::Error(error)) => return Err(error),
        }
    }
    Err(ReadError::Io {
        log: id,
        reason: "its segments keep moving".into(),
    })
}

fn attempt(core: &Engine, id: LogId, query: TimeQuery) -> Result<Option<Bytes>, ReadFailure> {
    let log = core
        .logs
        .get(id)
        .ok_or(ReadFailure::Error(ReadError::NoSuchLog(id)))?;
    let (runs, recent, start, end) = {
        let state = log.lock();
        (
            state.runs.clone(),
            state.recent.clone(),
            state.start,
            state.visible,
        )
    };
    let mut best = BestMatch {
        query,
        start,
        end,
        found: None,
    };
    for run in &runs {
        let segment = core.segments.get(run.segment).ok_or(ReadFailure::Moved)?;
        with_sidecar(core, id, segment.sidecar_role(), |sidecar| {
            let Some(row) = sidecar.row(id)?.filter(|row| best.wants(row.date)) else {
                return Ok(());
            };
            sidecar.entries_from(&row, start, |entry| {
                best.consider(segment.id, entry);
                !best.is_done()
            })
        })?;
        if best.is_done() {
            break;
        }
    }
    for recent in &recent {
        if !best.is_done() {
            best.consider(recent.segment, recent.entry(id));
        }
    }
    let Some((segment, entry)) = best.found else {
        return Ok(None);
    };
    let segment = core.segments.get(segment).ok_or(ReadFailure::Moved)?;
    let file = core.files.get(segment.role()).map_err(|error| {
        ReadFailure::Error(ReadError::Io {
            log: id,
            reason: error.to_string().into(),
        })
    })?;
    Ok(read_frames(&core.read_buffers, &*file, id, &[entry])?.pop())
}

/// Best batch so far.
struct BestMatch {
    query: TimeQuery,
    start: Offset,
    end: Offset,
    found: Option<(SegmentId, IndexEntry)>,
}

impl BestMatch {
    fn wants(&self, date: i64) -> bool {
        let latest = dates::timestamp(date);
        match self.query {
            TimeQuery::AtOrAfter(time) => latest >= time,
            TimeQuery::Latest => self
                .found
                .is_none_or(|(_, best)| latest > dates::timestamp(best.date)),
        }
    }

    fn consider(&mut self, segment: SegmentId, entry: IndexEntry) {
        let visible = entry.end() > self.start && entry.end() <= self.end;
        if visible && !self.is_done() && self.wants(entry.date) {
            self.found = Some((segment, entry));
        }
    }

    fn is_done(&self) -> bool {
        matches!(self.query, TimeQuery::AtOrAfter(_)) && self.found.is_some()
    }
}
