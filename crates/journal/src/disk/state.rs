//! Recovered keyed state: the checkpoint's, and changes that are in no checkpoint yet because the disk is
//! full.

use std::collections::HashMap;

use bytes::Bytes;

use super::checkpoint::StateAt;
use super::engine::Engine;
use super::recovery::OpenError;
use super::rewrite::CompactionProgress;
use super::write_queue::Wait;
use crate::contract::{Change, StateChange, StateItem, StateSpace, StateUnreadable};
use crate::memory::state::{KeyedState, visit_space};
use crate::request_ids::{self, Requests};

/// Loads the remembered request ids.
pub(crate) fn load_requests(core: &Engine) -> Result<(), OpenError> {
    let mut stored = Vec::new();
    load(core, request_ids::SPACE, &mut |item| {
        if let StateItem::Value { key, value } = item {
            stored.push((Bytes::copy_from_slice(key), Bytes::copy_from_slice(value)));
        }
    })
    .map_err(|error| OpenError::Checkpoint(error.to_string()))?;
    // Everything recovered is durable: no wait is necessary.
    *core.requests.lock() = Requests::load(stored, Wait::Nothing);
    Ok(())
}

/// Loads the progress of compaction.
pub(crate) fn load_compactions(core: &Engine) -> Result<(), OpenError> {
    let mut loaded = HashMap::new();
    load(core, request_ids::SPACE, &mut |item| {
        if let StateItem::Value { key, value } = item {
            loaded.extend(CompactionProgress::decode(key, value));
        }
    })
    .map_err(|error| OpenError::Checkpoint(error.to_string()))?;
    *core.compactions.lock() = loaded;
    Ok(())
}

/// Visits the state of a space.
pub(crate) fn load(
    core: &Engine,
    space: StateSpace,
    visit: &mut dyn FnMut(StateItem<'_>),
) -> Result<(), StateUnreadable> {
    let _turn = core.checkpoint.turn();
    let missing = missing(core, space)?;
    if missing.is_empty() {
        return core.checkpoint.load_state(space, visit);
    }
    let mut state = KeyedState::default();
    core.checkpoint.load_state(space, &mut |item| {
        let (key, change) = match item {
            StateItem::Value { key, value } => (key, Change::Put(Bytes::copy_from_slice(value))),
            StateItem::Delta { key, delta } => (key, Change::Delta(Bytes::copy_from_slice(delta))),
        };
        let key = Bytes::copy_from_slice(key);
        state.apply(StateChange { space, key, change });
    })?;
    for change in missing {
        state.apply(change);
    }
    visit_space(&state, space, visit);
    Ok(())
}

/// Returns the changes that the checkpoint does not have, in order. The caller holds the checkpoint turn.
fn missing(core: &Engine, space: StateSpace) -> Result<Vec<StateChange>, StateUnreadable> {
    let meta = core.checkpoint.meta();
    let stored = meta.map_err(|error| StateUnreadable(error.to_string()))?.position;
    // A checkpoint whose storing failed may exist all the same.
    let is_missing = |at: &&StateAt| stored == core.checkpointed() || at.position > stored;
    let pending = core.pending();
    let of_space = pending.state.iter().filter(|at| at.change.space == space);
    Ok(of_space.filter(is_missing).map(|at| at.change.clone()).collect())
}
