//! Tables of keyed state: the only way from owners of state to rows in the journal.

use bytes::Bytes;
use stafett_journal::{Change, Frame, Journal, StateChange, StateItem, StateSpace, StateUnreadable};

/// Rows of one kind: a space of the journal, or the rows of a space whose keys begin with a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Table {
    space: StateSpace,
    tag: Option<u8>,
    /// Name of a row, for errors.
    row: &'static str,
}

impl Table {
    pub(crate) const fn new(space: u16, row: &'static str) -> Self {
        let space = StateSpace(space);
        let tag = None;
        Self { space, tag, row }
    }

    pub(crate) const fn tagged(space: u16, tag: u8, row: &'static str) -> Self {
        let space = StateSpace(space);
        let tag = Some(tag);
        Self { space, tag, row }
    }

    pub(crate) fn number_and_tag(self) -> (u16, Option<u8>) {
        (self.space.0, self.tag)
    }

    /// Gives each row to `visit`, in the order in which rows were stored. Keys come without the tag. Called
    /// before anything is appended.
    ///
    /// # Errors
    ///
    /// If the journal cannot read the rows, or `visit` returns `None`: this version of the program does not
    /// know the row's format.
    pub fn load(
        self,
        journal: &dyn Journal,
        mut visit: impl FnMut(StateItem<'_>) -> Option<()>,
    ) -> Result<(), StateUnreadable> {
        load_together(journal, &mut [(self, &mut visit)])
    }

    /// As [`Table::load`], for tables whose rows are stored as a whole, without deltas.
    pub fn load_values(
        self,
        journal: &dyn Journal,
        mut visit: impl FnMut(&[u8], &[u8]) -> Option<()>,
    ) -> Result<(), StateUnreadable> {
        self.load(journal, |item| match item {
            StateItem::Value { key, value } => visit(key, value),
            StateItem::Delta { .. } => None,
        })
    }

    /// Frame that changes a row.
    pub fn change(self, key: impl Into<Bytes>, change: Change) -> Frame {
        let mut key = key.into();
        if let Some(tag) = self.tag {
            key = [&[tag], &*key].concat().into();
        }
        let space = self.space;
        Frame::State(StateChange { space, key, change })
    }

    /// Frame that stores a row as a whole.
    pub fn put(self, key: impl Into<Bytes>, value: impl Into<Bytes>) -> Frame {
        self.change(key, Change::Put(value.into()))
    }

    /// Frame that deletes a row.
    pub fn delete(self, key: impl Into<Bytes>) -> Frame {
        self.change(key, Change::Delete)
    }

    /// The key without the tag; `None` if the row is of another table.
    fn own_key(self, key: &[u8]) -> Option<&[u8]> {
        match self.tag {
            None => Some(key),
            Some(tag) => key
                .split_first()
                .filter(|(first, _)| **first == tag)
                .map(|(_, own)| own),
        }
    }
}

/// A table, and the visitor of its rows.
type Visited<'a> = (Table, &'a mut dyn FnMut(StateItem<'_>) -> Option<()>);

/// Loads tables that share a space, in one pass; see [`Table::load`].
pub(crate) fn load_together(
    journal: &dyn Journal,
    tables: &mut [Visited<'_>],
) -> Result<(), StateUnreadable> {
    let Some((Table { space, row, .. }, _)) = tables.first() else {
        return Ok(());
    };
    let (space, first_row) = (*space, *row);
    let mut unknown: Option<(&'static str, Vec<u8>)> = None;
    journal.load_state(space, &mut |item| {
        let (StateItem::Value { key, .. } | StateItem::Delta { key, .. }) = item;
        let owner = tables
            .iter_mut()
            .find_map(|(table, visit)| Some((table.row, table.own_key(key)?, visit)));
        let Some((row, own, visit)) = owner else {
            // A tag that no table has was stored by a later version.
            if !crate::spaces::has_tag(space, key.first().copied()) {
                unknown = Some((first_row, key.to_vec()));
            }
            return;
        };
        let known = visit(match item {
            StateItem::Value { value, .. } => StateItem::Value { key: own, value },
            StateItem::Delta { delta, .. } => StateItem::Delta { key: own, delta },
        });
        if known.is_none() {
            unknown = Some((row, own.to_vec()));
        }
    })?;
    let Some((row, key)) = unknown else { return Ok(()) };
    Err(StateUnreadable(format!(
        "{row} {} is of a format that this version does not know",
        key.escape_ascii()
    )))
}

/// One value under a fixed key.
#[derive(Debug, Clone, Copy)]
pub struct SingleValue {
    space: StateSpace,
    key: &'static [u8],
}

impl SingleValue {
    pub(crate) const fn new(space: u16, key: &'static [u8]) -> Self {
        let space = StateSpace(space);
        Self { space, key }
    }

    /// Reads the value. `None` if it was never stored. Called before anything is appended.
    pub fn load(self, journal: &dyn Journal) -> Result<Option<Vec<u8>>, StateUnreadable> {
        let mut found = None;
        journal.load_state(self.space, &mut |item| {
            if let StateItem::Value { key, value } = item
                && key == self.key
            {
                found = Some(value.to_vec());
            }
        })?;
        Ok(found)
    }

    /// Frame that stores the value.
    pub fn put(self, value: impl Into<Bytes>) -> Frame {
        Frame::State(StateChange {
            space: self.space,
            key: Bytes::from_static(self.key),
            change: Change::Put(value.into()),
        })
    }
}

#[cfg(test)]
mod tests {
    use stafett_journal::{Append, MemoryJournal, StateWait};

    use super::*;
    use crate::spaces::{BUCKETS, EXCHANGES, NAMESPACES, load_routing};

    async fn stored(frames: impl IntoIterator<Item = Frame>) -> MemoryJournal {
        let journal = MemoryJournal::new();
        journal
            .append(vec![Append::state(frames, StateWait::Synced)])
            .await;
        journal.reopen()
    }

    fn keys(table: Table, journal: &MemoryJournal) -> Result<Vec<Vec<u8>>, StateUnreadable> {
        let mut keys = Vec::new();
        let loaded = table.load_values(journal, |key, _| {
            keys.push(key.to_vec());
            Some(())
        });
        loaded.map(|()| keys)
    }

    #[tokio::test]
    async fn a_table_has_the_rows_of_its_own_tag() {
        let journal = stored([EXCHANGES.put("name", "a"), BUCKETS.put("minute", "b")]).await;
        assert_eq!(keys(EXCHANGES, &journal), Ok(vec![b"name".to_vec()]));
        assert_eq!(keys(BUCKETS, &journal), Ok(vec![b"minute".to_vec()]));
    }

    #[tokio::test]
    async fn tables_of_one_space_are_loaded_in_one_pass() {
        let frames = [
            EXCHANGES.put("name", "a"),
            BUCKETS.put("minute", "b"),
            BUCKETS.change("minute", Change::Delta("c".into())),
            NAMESPACES.put("space", "d"),
        ];
        let journal = stored(frames).await;
        let mut rows = [Vec::new(), Vec::new(), Vec::new()];
        let [namespaces, exchanges, buckets] = &mut rows;
        let push = |rows: &mut Vec<String>, item: StateItem<'_>| {
            let (StateItem::Value { key, value: rest } | StateItem::Delta { key, delta: rest }) = item;
            rows.push(format!("{} {}", key.escape_ascii(), rest.escape_ascii()));
            Some(())
        };
        let loaded = load_routing(
            &journal,
            &mut |item| push(namespaces, item),
            &mut |item| push(exchanges, item),
            &mut |item| push(buckets, item),
        );
        assert_eq!(loaded, Ok(()));
        assert_eq!(
            rows,
            [vec!["space d"], vec!["name a"], vec!["minute b", "minute c"]]
        );
        let why = load_routing(&journal, &mut |_| Some(()), &mut |_| Some(()), &mut |_| None).unwrap_err();
        assert!(
            why.0.starts_with("the bucket of delayed messages minute"),
            "{why:?}"
        );
        let later = Table::tagged(7, 200, "a row of a later version");
        let journal = stored([later.put("key", "value")]).await;
        let all: &mut dyn FnMut(StateItem<'_>) -> Option<()> = &mut |_| Some(());
        assert!(load_routing(&journal, all, &mut |_| Some(()), &mut |_| Some(())).is_err());
    }

    #[tokio::test]
    async fn rows_of_a_later_version_are_an_error() {
        let later = Table::tagged(7, 200, "a row of a later version");
        let journal = stored([EXCHANGES.put("name", "a"), later.put("key", "value")]).await;
        assert!(keys(EXCHANGES, &journal).is_err(), "of a tag that no table has");
        let journal = stored([EXCHANGES.put("name", "a")]).await;
        let why = EXCHANGES.load_values(&journal, |_, _| None).unwrap_err();
        assert_eq!(
            why.0,
            "the exchange name is of a format that this version does not know"
        );
    }
}
