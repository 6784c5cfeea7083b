//! Faults and pauses that a test chooses while a node runs, and statements that land after their answers.

use std::fmt;

use super::{FakeDatabase, FakeNode, Pending, Tables};
use crate::database::DatabaseError;

/// Kind of a call of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    Claim,
    Commit,
    Publish,
    Put,
    Delete,
    Other,
}

/// Course of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Answered,
    /// It is done, or not, and there is no answer.
    Unanswered {
        is_done: bool,
    },
    /// The node dies in it.
    Death {
        is_done: bool,
    },
    /// A commit that lands later, and has no answer.
    Late,
    /// A commit that is answered, and of which a copy lands later.
    Twice,
}

/// Chooses the course of each call of a node. It may take its time: then other nodes go on meanwhile.
pub trait Weather: Send + Sync + fmt::Debug {
    fn fate(&self, call: Call) -> Fate;
    /// Comes between the snapshot of a commit and its end.
    fn under_way(&self);
}

impl FakeDatabase {
    /// Returns the number of commits that are late.
    pub fn late_commits(&self) -> usize {
        self.0.lock().late_commits.len()
    }

    /// Ends one of the commits that are late.
    pub fn land_late_commit(&self, index: usize) {
        let mut tables = self.0.lock();
        if index < tables.late_commits.len() {
            let pending = tables.late_commits.remove(index);
            tables.land(&pending);
        }
    }

    /// Returns true if the bytes of an object count.
    pub fn needs(&self, object: &str) -> bool {
        self.0.lock().needs(object)
    }

    /// Returns what must not happen and did: objects that were deleted while they counted, for instance.
    pub fn violations(&self) -> Vec<String> {
        self.0.lock().violations.clone()
    }
}

impl FakeNode {
    /// Ends the process of the node: no later call reaches the database.
    pub fn die(&self) {
        self.calls.lock().is_dead = true;
    }

    pub fn is_dead(&self) -> bool {
        self.calls.lock().is_dead
    }

    pub(super) fn fate(&self, call: Call) -> Fate {
        match &self.weather {
            Some(weather) if !self.is_dead() => weather.fate(call),
            Some(_) | None => Fate::Answered,
        }
    }

    /// Commits a row; its snapshot is from before, and `under_way` comes between.
    pub(super) fn commit_in(&self, begin: impl Fn(&Tables) -> Pending) -> Result<bool, DatabaseError> {
        let Some(weather) = &self.weather else {
            return self.call(|tables| {
                let pending = begin(tables);
                tables.land(&pending)
            });
        };
        let fate = self.fate(Call::Commit);
        let pending = self.call(|tables| begin(tables))?;
        weather.under_way();
        match fate {
            Fate::Late => self.call_as(Fate::Unanswered { is_done: true }, |tables| {
                tables.late_commits.push(pending);
                false
            }),
            Fate::Twice => self.call_as(Fate::Answered, |tables| {
                let has_landed = tables.land(&pending);
                tables.late_commits.push(pending);
                has_landed
            }),
            Fate::Answered | Fate::Unanswered { .. } | Fate::Death { .. } => {
                self.call_as(fate, |tables| tables.land(&pending))
            }
        }
    }

    /// Does a call that has a fate.
    pub(super) fn call_as<R>(
        &self,
        fate: Fate,
        work: impl FnOnce(&mut Tables) -> R,
    ) -> Result<R, DatabaseError> {
        if self.is_dead() {
            return Err(dead());
        }
        match fate {
            Fate::Answered | Fate::Late | Fate::Twice => self.call(work),
            Fate::Unanswered { is_done } => {
                if is_done {
                    self.call(work)?;
                }
                Err(DatabaseError::Unreachable("no answer".to_owned()))
            }
            Fate::Death { is_done } => {
                if is_done {
                    self.call(work)?;
                }
                self.die();
                Err(dead())
            }
        }
    }
}

impl Tables {
    /// Notes what must not happen. A panic of a thread might be taken for an error of the store.
    pub(super) fn violate(&mut self, why: String) {
        self.violations.push(why);
    }

    /// Returns true if the bytes of an object count.
    pub(super) fn needs(&self, object: &str) -> bool {
        // A late copy of a row that was removed has no reader.
        let rows = self.rows.iter().filter(|(seq, _)| !self.copies.contains(seq));
        let of_rows = rows.filter_map(|(_, row)| row.object.as_ref());
        let of_files = self.parts.values().flat_map(|(_, parts)| parts);
        of_rows.chain(of_files).any(|part| part.object == object)
    }
}

pub(super) fn dead() -> DatabaseError {
    DatabaseError::Refused("the node is dead".to_owned())
}
