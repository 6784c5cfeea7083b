//! A file whose changes stay in memory.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::sync::Arc;

use redb::StorageBackend;
use stafett_model::Lock;

use crate::disk::storage::StorageFile;

const BLOCK_BYTES: u64 = 4096;

/// Contents of a file with changes that are not stored, for a file that is opened on a full disk.
#[derive(Debug)]
pub(super) struct Unstored {
    file: Arc<dyn StorageFile>,
    changed: Lock<ChangedFile>,
}

#[derive(Debug)]
struct ChangedFile {
    len: u64,
    /// Changed blocks, by number.
    blocks: BTreeMap<u64, Vec<u8>>,
}

impl Unstored {
    pub(super) fn over(file: Arc<dyn StorageFile>) -> io::Result<Self> {
        let changed = ChangedFile {
            len: file.bytes()?,
            blocks: BTreeMap::new(),
        };
        Ok(Self {
            file,
            changed: Lock::new(changed),
        })
    }

    /// Returns a block of the file, with zeros behind the file's end.
    fn stored_block(&self, number: u64) -> io::Result<Vec<u8>> {
        let mut block = vec![0; usize::try_from(BLOCK_BYTES).unwrap_or_default()];
        self.file.read_at(&mut block, number * BLOCK_BYTES)?;
        Ok(block)
    }
}

/// Returns the parts of a range: the block, the first byte in it, and the number of bytes.
fn parts(offset: u64, bytes: usize) -> impl Iterator<Item = (u64, usize, usize)> {
    let (mut at, end) = (offset, offset + bytes as u64);
    std::iter::from_fn(move || {
        let number = at / BLOCK_BYTES;
        let next = ((number + 1) * BLOCK_BYTES).min(end);
        let part = (
            number,
            usize::try_from(at % BLOCK_BYTES).ok()?,
            usize::try_from(next - at).ok()?,
        );
        (std::mem::replace(&mut at, next) < end).then_some(part)
    })
}

impl StorageBackend for Unstored {
    fn len(&self) -> io::Result<u64> {
        Ok(self.changed.lock().len)
    }

    fn read(&self, offset: u64, mut out: &mut [u8]) -> io::Result<()> {
        let changed = self.changed.lock();
        if offset + out.len() as u64 > changed.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        for (number, first, bytes) in parts(offset, out.len()) {
            let (part, rest) = out.split_at_mut(bytes);
            match changed.blocks.get(&number) {
                Some(block) => part.copy_from_slice(block.get(first..first + bytes).unwrap_or_default()),
                None => part.copy_from_slice(
                    self.stored_block(number)?
                        .get(first..first + bytes)
                        .unwrap_or_default(),
                ),
            }
            out = rest;
        }
        Ok(())
    }

    /// Shortens or extends the file. Bytes behind a new end do not come back.
    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut changed = self.changed.lock();
        for number in len / BLOCK_BYTES..changed.len.div_ceil(BLOCK_BYTES) {
            let mut block = match changed.blocks.remove(&number) {
                Some(block) => block,
                None => self.stored_block(number)?,
            };
            let kept = usize::try_from(len.saturating_sub(number * BLOCK_BYTES)).unwrap_or(usize::MAX);
            block.iter_mut().skip(kept).for_each(|byte| *byte = 0);
            changed.blocks.insert(number, block);
        }
        changed.len = len;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, mut data: &[u8]) -> io::Result<()> {
        let mut changed = self.changed.lock();
        changed.len = changed.len.max(offset + data.len() as u64);
        for (number, first, bytes) in parts(offset, data.len()) {
            let (part, rest) = data.split_at(bytes);
            let block = match changed.blocks.entry(number) {
                Entry::Occupied(block) => block.into_mut(),
                Entry::Vacant(place) => place.insert(self.stored_block(number)?),
            };
            if let Some(into) = block.get_mut(first..first + bytes) {
                into.copy_from_slice(part);
            }
            data = rest;
        }
        Ok(())
    }
}
