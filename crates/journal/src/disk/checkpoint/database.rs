//! The checkpoint's database: its file is created and opened. While the disk has no space for it, another one
//! in memory takes its place.

mod unstored;

use std::io::{self, IoSlice};
use std::sync::Arc;

use redb::backends::InMemoryBackend;
use redb::{Builder, Database, StorageBackend};

use self::unstored::Unstored;
use super::{CheckpointError, DELTAS, FILE, LOGS, LOST, META, SEGMENTS, STATE, failed};
use crate::disk::segment::FileRole;
use crate::disk::storage::{Storage, StorageFile, is_full, read_exact_at};

const NEW_FILE: &str = "checkpoint.redb.tmp";
/// Page cache of the database.
const CACHE_BYTES: usize = 4 << 20;

#[derive(Debug)]
pub(super) struct OpenDatabase {
    pub(super) database: Database,
    /// False if the disk has no space for changes of the file: they stay in memory.
    pub(super) is_stored: bool,
}

/// Opens the database. A missing one is created. If the disk is full, changes stay in memory, those that
/// opening a file makes too.
pub(super) fn open_database(storage: &Arc<dyn Storage>) -> Result<OpenDatabase, CheckpointError> {
    match open_or_create(storage) {
        Err(CreateError::Full(error)) => {
            tracing::error!(%error, "the disk is full: there is no space for a checkpoint yet");
            let names = storage.list().map_err(failed)?;
            let database = if names.iter().any(|name| name == FILE) {
                let file = storage.open(FILE).map_err(failed)?;
                let backend = Unstored::over(file).map_err(failed)?;
                builder().create_with_backend(backend).map_err(failed)?
            } else {
                let database = builder().create_with_backend(InMemoryBackend::new());
                let database = database.map_err(failed)?;
                create_tables(&database, false).map_err(failed)?;
                database
            };
            Ok(OpenDatabase {
                database,
                is_stored: false,
            })
        }
        opened => Ok(opened?),
    }
}

/// Opens the database; a missing one is created.
pub(super) fn open_stored(storage: &Arc<dyn Storage>) -> Result<OpenDatabase, CheckpointError> {
    Ok(open_or_create(storage)?)
}

/// Error: the database could not be created or opened.
enum CreateError {
    /// The disk has no space for a new one, or to repair this one.
    Full(CheckpointError),
    Other(CheckpointError),
}

impl From<CreateError> for CheckpointError {
    fn from(error: CreateError) -> Self {
        match error {
            CreateError::Full(error) | CreateError::Other(error) => error,
        }
    }
}

impl From<redb::Error> for CreateError {
    fn from(error: redb::Error) -> Self {
        let is_full = matches!(&error, redb::Error::Io(cause) if is_full(cause));
        let error = failed(error);
        if is_full {
            Self::Full(error)
        } else {
            Self::Other(error)
        }
    }
}

fn open_or_create(storage: &Arc<dyn Storage>) -> Result<OpenDatabase, CreateError> {
    let other = |error| CreateError::Other(failed(error));
    let names = storage.list().map_err(other)?;
    if !names.iter().any(|name| name == FILE) {
        if names.iter().any(|name| name == NEW_FILE) {
            storage.remove(NEW_FILE).map_err(other)?;
        }
        let is_segment = |name: &String| matches!(FileRole::of(name), Some(FileRole::Segment(..)));
        let is_lost = names.iter().any(is_segment);
        if let Err(error) = create_database(storage, is_lost) {
            let error = CreateError::from(error);
            // Its space may be that of a segment.
            if matches!(error, CreateError::Full(_)) && storage.remove(NEW_FILE).is_err() {
                tracing::debug!("the unfinished checkpoint could not be removed");
            }
            return Err(error);
        }
    }
    let file = storage.open(FILE).map_err(other)?;
    // The database must read the data on disk: pages left in memory by a failed sync would be lost with a
    // loss of power.
    file.forget_unsynced().map_err(other)?;
    let opened = builder().create_with_backend(Backend { file });
    let database = opened.map_err(redb::Error::from)?;
    Ok(OpenDatabase {
        database,
        is_stored: true,
    })
}

/// Creates the database under a temporary name: a file under the final name is complete. One that is created
/// in place of a lost one says so until a checkpoint is stored.
fn create_database(storage: &Arc<dyn Storage>, is_lost: bool) -> Result<(), redb::Error> {
    let file = storage.create(NEW_FILE)?;
    let backend = Backend {
        file: Arc::clone(&file),
    };
    let database = builder().create_with_backend(backend)?;
    create_tables(&database, is_lost)?;
    drop(database);
    file.sync()?;
    storage.rename(NEW_FILE, FILE)?;
    Ok(storage.sync_names()?)
}

/// Creates all tables: reading one that was never written is an error.
fn create_tables(database: &Database, is_lost: bool) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    for table in [STATE, DELTAS] {
        transaction.open_table(table)?;
    }
    let mut meta = transaction.open_table(META)?;
    if is_lost {
        meta.insert(LOST, [].as_slice())?;
    }
    drop(meta);
    transaction.open_table(LOGS)?;
    transaction.open_table(SEGMENTS)?;
    Ok(transaction.commit()?)
}

fn builder() -> Builder {
    let mut builder = Database::builder();
    builder
        .set_cache_size(CACHE_BYTES)
        // Otherwise a damaged file may be trusted, or make the database panic.
        .set_check_integrity_on_open(true);
    builder
}

/// File of the database, on the same storage as the segments.
#[derive(Debug)]
struct Backend {
    file: Arc<dyn StorageFile>,
}

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.file.bytes()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        read_exact_at(&*self.file, out, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_bytes(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_at(&mut [IoSlice::new(data)], offset)
    }
}
