//! Deletion of a namespace: it becomes invisible at once, and its stored state is deleted in steps, so that
//! other tasks get their turns.
//!
//! First a mark is stored, which decides the deletion; it is deleted last. So a crash leaves a marked
//! namespace: the next start does not load it, and completes the deletion. Until then the name cannot be
//! reused.

use std::sync::Arc;

use bytes::Bytes;
use stafett_journal::Change;
use stafett_model::{Lock, LockGuard, Namespace, NamespaceId};
use stafett_store::{NotStored, Stored, stage};

use super::error::NamespaceError;
use super::namespace::NamespaceRouting;
use super::tables::Tables;
use super::{Exchanges, namespace_frame};

/// Tag of the mark of an existing namespace. Its id follows, as u64 little-endian, and its description, UTF-8
/// to the end; earlier versions stored neither.
const THERE: u8 = 1;
/// Record of a namespace that is being deleted.
const CLOSING: u8 = 2;

/// Returns the mark of an existing namespace.
pub(super) fn there(id: NamespaceId, description: &str) -> Bytes {
    let mut value = vec![THERE];
    value.extend_from_slice(&id.0.to_le_bytes());
    value.extend_from_slice(description.as_bytes());
    value.into()
}

/// Stored mark of a namespace.
pub(super) enum NamespaceRecord<'a> {
    There(NamespaceId, &'a str),
    Closing,
}

impl<'a> NamespaceRecord<'a> {
    pub(super) fn decode(value: &'a [u8]) -> Option<Self> {
        match value {
            [CLOSING] => Some(Self::Closing),
            [THERE] => Some(Self::There(NamespaceId::default(), "")),
            [THERE, rest @ ..] => {
                let (id, description) = rest.split_first_chunk()?;
                let id = NamespaceId(u64::from_le_bytes(*id));
                Some(Self::There(id, std::str::from_utf8(description).ok()?))
            }
            _ => None,
        }
    }
}

/// Namespaces that are being deleted.
#[derive(Debug, Default)]
pub(super) struct RemovingNamespaces(Lock<Vec<Namespace>>);

/// Contents of a closed namespace.
#[derive(Debug)]
pub struct RemovedNamespace {
    space: Arc<NamespaceRouting>,
    tables: Tables,
}

impl RemovingNamespaces {
    pub(super) fn new(namespaces: Vec<Namespace>) -> Self {
        Self(Lock::new(namespaces))
    }

    pub(super) fn has(&self, namespace: &Namespace) -> bool {
        self.lock().contains(namespace)
    }

    fn lock(&self) -> LockGuard<'_, Vec<Namespace>> {
        self.0.lock()
    }
}

impl Exchanges {
    /// Returns the namespaces that are being deleted.
    pub fn closing(&self) -> Vec<Namespace> {
        self.closing.lock().clone()
    }

    /// Begins the deletion of a namespace, which is invisible from now on.
    pub fn close_namespace(
        &self,
        namespace: &Namespace,
    ) -> Result<(Stored, RemovedNamespace), NamespaceError> {
        if namespace.as_str() == Namespace::DEFAULT {
            return Err(NamespaceError::IsDefault);
        }
        let mut spaces = self.spaces.write();
        if self.closing.has(namespace) {
            return Err(NamespaceError::Closing);
        }
        let space = spaces.get(namespace).ok_or(NamespaceError::NoSuchNamespace)?;
        let mark = namespace_frame(namespace, Change::Put(Bytes::from_static(&[CLOSING])));
        let stored = stage(&*self.journal, &self.progress, vec![mark])?;
        let closed = RemovedNamespace {
            tables: space.close(),
            space: Arc::clone(space),
        };
        self.closing.lock().push(namespace.clone());
        if let Some(space) = spaces.remove(namespace) {
            space.closed.cancel();
        }
        Ok((stored, closed))
    }

    /// Completes the deletion of an empty namespace.
    pub async fn forget_namespace(&self, namespace: &Namespace) -> Result<(), NotStored> {
        let frame = namespace_frame(namespace, Change::Delete);
        stage(&*self.journal, &self.progress, vec![frame])?.await?;
        self.closing.lock().retain(|closing| closing != namespace);
        Ok(())
    }
}

impl RemovedNamespace {
    /// Deletes the contents of the namespace in steps. Each is stored before the next begins, so that other
    /// appends do not wait behind all of them.
    pub async fn forget(self) -> Result<(), NotStored> {
        let Self { space, mut tables } = self;
        while let Some(stored) = space.forget_step_of(&mut tables)? {
            stored.await?;
            tokio::task::yield_now().await;
        }
        Ok(())
    }
}
