//! A bounded set of open files: a journal may have any number of segments.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use stafett_model::Lock;

use super::segment::FileRole;
use super::storage::{Storage, StorageFile};

/// Most segments and sidecars that are kept open for reading.
const OPEN_FILES_MAX: usize = 48;

#[derive(Debug)]
pub(crate) struct Files {
    storage: Arc<dyn Storage>,
    open: Lock<OpenFiles>,
}

#[derive(Debug, Default)]
struct OpenFiles {
    files: HashMap<String, (Arc<dyn StorageFile>, u64)>,
    uses: u64,
}

impl Files {
    pub(crate) fn new(storage: Arc<dyn Storage>) -> Self {
        Self {
            storage,
            open: Lock::default(),
        }
    }

    /// Returns the file of a role, which must exist.
    pub(crate) fn get(&self, role: FileRole) -> io::Result<Arc<dyn StorageFile>> {
        let name = role.name();
        let mut open = self.open.lock();
        open.uses += 1;
        let now = open.uses;
        if let Some((file, used)) = open.files.get_mut(&name) {
            *used = now;
            return Ok(Arc::clone(file));
        }
        drop(open);
        let file = self.storage.open(&name)?;
        self.put(name, Arc::clone(&file));
        Ok(file)
    }

    /// Drops a file that is about to be renamed or removed.
    pub(crate) fn forget(&self, role: FileRole) {
        self.open.lock().files.remove(&role.name());
    }

    fn put(&self, name: String, file: Arc<dyn StorageFile>) {
        let mut open = self.open.lock();
        if open.files.len() >= OPEN_FILES_MAX
            && let Some(oldest) = open
                .files
                .iter()
                .min_by_key(|(_, (_, used))| *used)
                .map(|(name, _)| name.clone())
        {
            open.files.remove(&oldest);
        }
        let now = open.uses;
        open.files.insert(name, (file, now));
    }
}
