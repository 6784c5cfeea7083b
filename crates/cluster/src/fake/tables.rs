//! The tables in memory, and the effects of statements on them.

use super::{Pending, StoredRow, Tables};
use crate::database::{BLOCK_BYTES, Body, ChangedFile, Reference, Row};
use crate::objects::Part;

impl Tables {
    pub(super) fn use_name(&mut self, name: &str) {
        assert!(self.names.insert(name.to_owned()), "{name} was used");
    }

    pub(super) fn references(&self) -> Vec<Reference> {
        let of = |part: &Part| Reference {
            object: part.object.clone(),
            bytes: part.bytes.into(),
            is_garbage: false,
        };
        let rows = self.rows.values().filter_map(|row| row.object.as_ref()).map(of);
        let parts = self.parts.values().flat_map(|(_, parts)| parts).map(of);
        let garbage = self.garbage.iter().map(|(object, (bytes, _))| Reference {
            object: object.clone(),
            bytes: *bytes,
            is_garbage: true,
        });
        rows.chain(parts).chain(garbage).collect()
    }

    pub(super) fn begin(&self, row: &Row<'_>) -> Pending {
        let before = row.link.seq.checked_sub(1).and_then(|seq| self.rows.get(&seq));
        Pending {
            seq: row.link.seq,
            row: StoredRow {
                epoch: row.epoch,
                nonce: row.link.nonce,
                name: row.name.map(str::to_owned),
                at: row.at,
                body: match row.body {
                    Body::Inline(body) => body.to_vec(),
                    Body::Object(_) => Vec::new(),
                },
                object: match row.body {
                    Body::Inline(_) => None,
                    Body::Object(part) => Some(part.clone()),
                },
            },
            holds: self.owner.epoch == row.epoch && before.is_some_and(|before| before.nonce == row.previous),
        }
    }

    pub(super) fn land(&mut self, pending: &Pending) -> bool {
        if !pending.holds || self.rows.contains_key(&pending.seq) {
            return false;
        }
        let before = self.nonces.insert(pending.seq, pending.row.nonce);
        if before.is_some_and(|nonce| nonce != pending.row.nonce) {
            self.violate(format!("there are two rows at {}", pending.seq));
        }
        if before.is_some() {
            self.copies.insert(pending.seq);
        }
        // The objects of some tests are elsewhere, and those of a row that was removed are garbage.
        if let Some(part) = pending.row.object.as_ref().filter(|_| !self.names.is_empty())
            && before.is_none()
            && !self.objects.contains_key(&part.object)
        {
            self.violate(format!("{} is named before it is put", part.object));
        }
        self.rows.insert(pending.seq, pending.row.clone());
        true
    }

    /// Removes everything of a name; its objects are garbage but for those that are kept.
    pub(super) fn remove(&mut self, name: &str, kept: &[Part]) {
        let newest = self.rows.last_key_value().map(|(seq, _)| *seq);
        let mut gone: Vec<Part> = Vec::new();
        self.rows.retain(|seq, row| {
            let stays = row.name.as_deref() != Some(name) || Some(*seq) == newest;
            if !stays {
                gone.extend(row.object.clone());
            }
            stays
        });
        self.files.remove(name);
        gone.extend(
            self.parts
                .remove(name)
                .map(|(_, parts)| parts)
                .unwrap_or_default(),
        );
        for part in gone {
            if !kept.iter().any(|it| it.object == part.object) {
                self.garbage.insert(part.object, (part.bytes.into(), self.now));
            }
        }
    }

    pub(super) fn put(&mut self, file: &ChangedFile) {
        if let Some(parts) = &file.parts {
            self.remove(&file.name, parts);
            self.parts.insert(file.name.clone(), (file.bytes, parts.clone()));
            return;
        }
        let (bytes, blocks) = self.files.entry(file.name.clone()).or_default();
        if file.is_new {
            blocks.clear();
        }
        *bytes = file.bytes;
        blocks.extend(file.blocks.iter().cloned());
        let end = file.bytes.div_ceil(BLOCK_BYTES as u64);
        blocks.retain(|number, _| u64::from(*number) < end);
    }
}
