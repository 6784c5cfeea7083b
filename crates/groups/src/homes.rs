//! Cells of groups, where a cluster has several: groups whose names the settings give are spread over the
//! cells by name, and all others are in the first one.

use std::collections::BTreeSet;

use stafett_model::SharedLock;
use stafett_topics::{Cells, cell_of_name};

use super::error::GroupError;
use super::registry::Groups;

/// Bits of the places of commits below those of the epoch.
const ORDERS_OF_EPOCH: u32 = 40;

/// Names of groups: whole ones, and prefixes, which end with `*`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct GroupNames(BTreeSet<Box<str>>);

/// Cells of all groups.
#[derive(Debug)]
pub(super) struct GroupHomes {
    spread: SharedLock<GroupNames>,
    cells: Cells,
}

impl GroupNames {
    /// Returns true if a name is among them.
    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|known| match known.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => **known == *name,
        })
    }
}

impl GroupHomes {
    fn cell_of(&self, name: &str) -> u32 {
        if self.spread.read().has(name) {
            cell_of_name(name, self.cells.count)
        } else {
            0
        }
    }
}

impl Groups {
    /// Has groups be those of a cell of a cluster. Called once, before any is created. `epoch` is that of the
    /// owner of this cell: each has a larger one.
    pub fn join_cells(&self, cells: Cells, epoch: u64) {
        if cells.count > 1 {
            // Commits that wait for the end of a transaction are in another cell, and not seen here. Those
            // that earlier owners let there come before all that are made now.
            self.order_after(epoch << ORDERS_OF_EPOCH);
            self.homes.get_or_init(|| GroupHomes {
                spread: SharedLock::default(),
                cells,
            });
        }
    }

    /// Spreads the groups of some names over the cells from now on, beside those of earlier names. A broker
    /// without other cells ignores them.
    pub fn spread(&self, names: impl IntoIterator<Item = impl Into<Box<str>>>) {
        let Some(homes) = self.homes.get() else { return };
        let mut all = homes.spread.read().clone();
        all.0.extend(names.into_iter().map(Into::into));
        if all != *homes.spread.read() {
            *homes.spread.write() = all;
        }
    }

    /// Returns true if some groups are spread over cells.
    pub fn are_spread(&self) -> bool {
        let homes = self.homes.get();
        homes.is_some_and(|homes| !homes.spread.read().0.is_empty())
    }

    /// Returns the cell of a group. One that is in the first cell stays there, whatever its name: it was
    /// there before groups of its name were spread.
    pub fn cell_of(&self, name: &str) -> u32 {
        let Some(homes) = self.homes.get() else { return 0 };
        let cell = homes.cell_of(name);
        let is_kept = cell != 0 && homes.cells.own == 0 && self.with_group(name, |group| group.is_some());
        if is_kept { 0 } else { cell }
    }

    /// Checks that a new group of this name may be here.
    pub(super) fn check_new(&self, name: &str) -> Result<(), GroupError> {
        let homes = self.homes.get();
        if homes.is_some_and(|homes| homes.cell_of(name) != homes.cells.own) {
            return Err(GroupError::Elsewhere);
        }
        if self.len() >= self.settings.groups_max {
            return Err(GroupError::TooManyGroups);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_whole_or_prefixes() {
        let names = GroupNames(["billing", "web-*"].map(Into::into).into());
        for (name, is_there) in [
            ("billing", true),
            ("billing2", false),
            ("web-", true),
            ("web-1", true),
            ("web", false),
            ("", false),
        ] {
            assert_eq!(names.has(name), is_there, "{name}");
        }
        assert!(GroupNames(["*".into()].into()).has("anything"));
    }
}
