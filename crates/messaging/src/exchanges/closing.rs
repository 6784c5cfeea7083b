//! A namespace that is being deleted: at once nobody finds it any more, and what is stored of it goes step by
//! step, so that others have their turns in between.
//!
//! First it is marked, which decides it; the mark goes last. So a crash in between leaves a marked namespace:
//! the next start takes nothing of it in, and finishes. Until then nobody makes one of that name.

use std::sync::{Arc, MutexGuard};

use bytes::Bytes;
use stafett_journal::Change;
use stafett_model::{Lock, Namespace};
use stafett_store::{NotStored, Stored, stage};

use super::error::NamespaceError;
use super::space::{Space, SpaceId};
use super::tables::Tables;
use super::{Exchanges, namespace_frame};

/// What is stored of a namespace that is there: this, and its id as u64, little-endian, which earlier
/// versions did not give.
const THERE: u8 = 1;
/// What is stored of one that is being deleted.
const CLOSING: u8 = 2;

/// How a namespace is stored that is there.
pub(super) fn there(id: SpaceId) -> Bytes {
    let mut value = vec![THERE];
    value.extend_from_slice(&id.0.to_le_bytes());
    value.into()
}

/// What is stored of a namespace.
pub(super) enum Mark {
    There(SpaceId),
    Closing,
}

impl Mark {
    pub(super) fn decode(value: &[u8]) -> Option<Self> {
        match value {
            [CLOSING] => Some(Self::Closing),
            [THERE] => Some(Self::There(SpaceId::default())),
            [THERE, id @ ..] => {
                let id = u64::from_le_bytes(id.try_into().ok()?);
                Some(Self::There(SpaceId(id)))
            }
            _ => None,
        }
    }
}

/// The namespaces that are being deleted.
#[derive(Debug, Default)]
pub(super) struct Closing(Lock<Vec<Namespace>>);

/// What was in a namespace that is closed.
#[derive(Debug)]
pub struct Closed {
    space: Arc<Space>,
    tables: Tables,
}

impl Closing {
    pub(super) fn new(namespaces: Vec<Namespace>) -> Self {
        Self(Lock::new(namespaces))
    }

    pub(super) fn has(&self, namespace: &Namespace) -> bool {
        self.lock().contains(namespace)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Namespace>> {
        self.0.lock()
    }
}

impl Exchanges {
    /// The namespaces that are being deleted.
    pub fn closing(&self) -> Vec<Namespace> {
        self.closing.lock().clone()
    }

    /// Begins to delete a namespace: from now on nobody finds it.
    pub fn close_namespace(&self, namespace: &Namespace) -> Result<(Stored, Closed), NamespaceError> {
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
        let closed = Closed {
            tables: space.close(),
            space: Arc::clone(space),
        };
        self.closing.lock().push(namespace.clone());
        if let Some(space) = spaces.remove(namespace) {
            space.closed.cancel();
        }
        Ok((stored, closed))
    }

    /// Ends the deletion of a namespace of which nothing is left.
    pub async fn forget_namespace(&self, namespace: &Namespace) -> Result<(), NotStored> {
        let frame = namespace_frame(namespace, Change::Delete);
        stage(&*self.journal, &self.progress, vec![frame])?.await?;
        self.closing.lock().retain(|closing| closing != namespace);
        Ok(())
    }
}

impl Closed {
    /// Deletes what was in the namespace, a step at a time: each is stored before the next is begun, so that
    /// what others store does not wait behind all of them.
    pub async fn forget(self) -> Result<(), NotStored> {
        let Self { space, mut tables } = self;
        while let Some(stored) = space.forget_step_of(&mut tables)? {
            stored.await?;
            tokio::task::yield_now().await;
        }
        Ok(())
    }
}
