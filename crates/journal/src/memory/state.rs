//! Keyed state in memory: a value per key, and its later deltas.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::contract::{Change, StateChange, StateItem, StateSpace};

#[derive(Debug, Clone, Default)]
pub(crate) struct KeyedState(BTreeMap<(StateSpace, Bytes), StateValue>);

#[derive(Debug, Clone, Default)]
struct StateValue {
    value: Option<Bytes>,
    deltas: Vec<Bytes>,
}

impl KeyedState {
    pub(crate) fn apply(&mut self, change: StateChange) {
        let key = (change.space, change.key);
        match change.change {
            Change::Put(value) => {
                self.0.insert(
                    key,
                    StateValue {
                        value: Some(value),
                        deltas: Vec::new(),
                    },
                );
            }
            Change::Delta(delta) => self.0.entry(key).or_default().deltas.push(delta),
            Change::Delete => {
                self.0.remove(&key);
            }
        }
    }
}

/// Visits the contents of a space: the values, then the deltas.
pub(crate) fn visit_space(state: &KeyedState, space: StateSpace, visit: &mut dyn FnMut(StateItem<'_>)) {
    let of_space = || state.0.iter().filter(|((of, _), _)| *of == space);
    for ((_, key), kept) in of_space() {
        if let Some(value) = &kept.value {
            visit(StateItem::Value { key, value });
        }
    }
    for ((_, key), kept) in of_space() {
        for delta in &kept.deltas {
            visit(StateItem::Delta { key, delta });
        }
    }
}
