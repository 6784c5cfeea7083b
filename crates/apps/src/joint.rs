//! Places of slices that are joined.
//!
//! Slices are at different places. The joined task begins at the first of them, and knows which slices are
//! ahead ([`Position::ahead`]), so no task waits and no record is done twice.

use std::sync::Arc;

use crate::entry::{Ahead, Position};
use crate::error::AppError;
use crate::slot::Slot;

/// Returns the position of all of the tasks together: the first of theirs, and the slices that are ahead.
pub(crate) fn joint_position(slots: &[Arc<Slot>]) -> Result<Position, AppError> {
    let mut positions = Vec::with_capacity(slots.len());
    for slot in slots {
        positions.push((
            slot.task.slice(),
            slot.with_state(|state| Ok(state.position.clone()))?,
        ));
    }
    let Some(((_, first), others)) = positions.split_first() else {
        return Ok(Position::default());
    };
    let mut joint = Position {
        ahead: Vec::new(),
        ..first.clone()
    };
    let lower = |one: &mut Vec<u64>, other: &[u64]| {
        for (one, other) in one.iter_mut().zip(other) {
            *one = (*one).min(*other);
        }
    };
    for (_, other) in others {
        joint.seq = joint.seq.max(other.seq);
        joint.time = joint.time.min(other.time);
        lower(&mut joint.next, &other.next);
        lower(&mut joint.safe, &other.safe);
    }
    // Of two that have a key, the first counts: slices within a slice stand before it. A slice ahead may be
    // older than the task, and wider: it says nothing about keys of others, nor about offsets that the task
    // has passed since.
    for (slice, position) in positions {
        for ahead in position.ahead {
            if let Some(shared) = ahead.slice.shared(slice) {
                joint.ahead.push(Ahead {
                    slice: shared,
                    next: raised(ahead.next, &position.next),
                    safe: raised(ahead.safe, &position.safe),
                });
            }
        }
        if position.next != joint.next || position.safe != joint.safe {
            joint.ahead.push(Ahead {
                slice,
                next: position.next,
                safe: position.safe,
            });
        }
    }
    Ok(joint)
}

/// Returns the higher of two offsets, per input.
fn raised(one: Vec<u64>, other: &[u64]) -> Vec<u64> {
    let pairs = one.into_iter().zip(other);
    pairs.map(|(one, other)| one.max(*other)).collect()
}

/// Returns the lower of two offsets, per input.
pub(crate) fn lowest(mut places: Vec<u64>, others: Vec<u64>) -> Vec<u64> {
    for (place, other) in places.iter_mut().zip(others) {
        *place = (*place).min(other);
    }
    places
}
