//! Exchanges and bindings: declaration, storage, look-up and routing, by namespace.
//!
//! Durable items are keyed state in the journal: namespaces and exchanges in space 7, bindings in space 8. A
//! change is in force when the call returns and durable when its [`Stored`] resolves, so that a connection
//! can make many changes and wait once.
//!
//! - `namespace`: one namespace; every change is planned, staged and applied under its lock
//! - `tables`: the contents of a namespace, in the orders of the look-ups
//! - `target`, `resolver`: targets of routing, by name
//! - `routed_message`: a message as exchanges see it
//! - `exchange`, `binding`: definitions and their stored formats; `load`: loading them
//! - `namespace_removal`: deletion of namespaces
//! - `counts`: counters of one exchange
//! - `error`, `metrics`

mod binding;
mod counts;
mod error;
mod exchange;
mod load;
mod metrics;
pub(crate) mod namespace;
mod namespace_removal;
pub(crate) mod resolver;
pub(crate) mod routed_message;
mod tables;
mod target;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use stafett_counters::Sampler;
use stafett_journal::{Change, Frame, Journal};
use stafett_model::codec::put_text;
use stafett_model::{NAME_BYTES_MAX, Namespace, NamespaceId, SharedLock};
use stafett_store::{Progress, spaces, stage};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use metrics::ExchangeMetrics;
use namespace::NamespaceRouting;
use namespace_removal::{RemovingNamespaces, there};
use stafett_routing::AttributeReaders;

pub use binding::{Binding, Destination};
pub use counts::{ExchangeCounts, ExchangeTraffic};
pub use error::{BindError, DeclareError, DeleteError, NamespaceError, UnbindError};
pub use exchange::{Difference, Exchange, NewExchange};
pub use namespace::{NewBinding, Unbind};
pub use stafett_routing::ReadAttributes;
pub use stafett_store::Stored;
pub(crate) use target::Target;

/// Bound on the bytes of the description of a namespace.
const DESCRIPTION_BYTES_MAX: usize = 1024;

#[derive(Debug)]
pub struct Exchanges {
    journal: Arc<dyn Journal>,
    spaces: SharedLock<HashMap<Namespace, Arc<NamespaceRouting>>>,
    /// Checked under the lock of `spaces` when a namespace is created.
    closing: RemovingNamespaces,
    facts: AttributeReaders,
    pub(crate) metrics: ExchangeMetrics,
    pub(crate) sampler: Sampler<ExchangeTraffic>,
    /// Progress of storing changes of namespaces.
    progress: Arc<Progress>,
    /// Deletions in progress.
    tasks: TaskTracker,
    elsewhere: Elsewhere,
}

type IsElsewhere = Box<dyn Fn(&Namespace) -> bool + Send + Sync>;

/// Tells which namespaces another broker of the cluster keeps; none if it is not set.
#[derive(Default)]
pub(crate) struct Elsewhere(OnceLock<IsElsewhere>);

impl fmt::Debug for Elsewhere {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Elsewhere")
    }
}

impl Exchanges {
    /// Sets the function that tells which namespaces another broker of the cluster keeps: they are not
    /// created here. Called once, at the start.
    pub fn set_elsewhere(&self, is_elsewhere: impl Fn(&Namespace) -> bool + Send + Sync + 'static) {
        let _ = self.elsewhere.0.set(Box::new(is_elsewhere));
    }

    /// Returns true if another broker of the cluster keeps a namespace.
    pub fn is_elsewhere(&self, namespace: &Namespace) -> bool {
        self.elsewhere
            .0
            .get()
            .is_some_and(|is_elsewhere| is_elsewhere(namespace))
    }

    /// Returns the namespaces, by name. One that another broker keeps is none of this one, such as the
    /// default one, which each has.
    pub fn namespaces(&self) -> Vec<Namespace> {
        let spaces = self.spaces.read();
        let own = spaces.keys().filter(|name| !self.is_elsewhere(name));
        let mut names: Vec<_> = own.cloned().collect();
        names.sort_unstable();
        names
    }

    pub fn has_namespace(&self, namespace: &Namespace) -> bool {
        self.space(namespace).is_some()
    }

    /// Returns a token that is cancelled when the namespace is deleted; cancelled already if it does not
    /// exist.
    pub fn closed(&self, namespace: &Namespace) -> CancellationToken {
        let closed = self.space(namespace).map(|space| space.closed.clone());
        closed.unwrap_or_else(|| {
            let closed = CancellationToken::new();
            closed.cancel();
            closed
        })
    }

    /// Creates a namespace. Returns false if it exists.
    pub fn create_namespace(&self, namespace: &Namespace) -> Result<(bool, Stored), NamespaceError> {
        if namespace.as_str().is_empty() || namespace.as_str().len() > NAME_BYTES_MAX {
            return Err(NamespaceError::BadName);
        }
        if self.is_elsewhere(namespace) {
            return Err(NamespaceError::Elsewhere);
        }
        let mut spaces = self.spaces.write();
        if self.closing.has(namespace) {
            return Err(NamespaceError::Closing);
        }
        let exists = spaces.contains_key(namespace);
        if exists && (self.progress.is_durable() || namespace.as_str() == Namespace::DEFAULT) {
            return Ok((false, Stored::nothing(&self.progress)));
        }
        let id = spaces.get(namespace).map_or_else(new_id, |space| space.id);
        let description = spaces.get(namespace).map(|space| space.description());
        let put = Change::Put(there(id, description.as_deref().unwrap_or_default()));
        let put = namespace_frame(namespace, put);
        let stored = stage(&*self.journal, &self.progress, vec![put])?;
        if !exists {
            let space = NamespaceRouting::new(namespace.clone(), id, Arc::clone(&self.journal));
            spaces.insert(namespace.clone(), Arc::new(space));
        }
        Ok((!exists, stored))
    }

    /// Returns the description of a namespace; empty if it has none.
    pub fn description(&self, namespace: &Namespace) -> Arc<str> {
        let space = self.space(namespace);
        space.map_or_else(|| "".into(), |space| space.description())
    }

    /// Changes the description of a namespace.
    pub fn describe_namespace(
        &self,
        namespace: &Namespace,
        description: &str,
    ) -> Result<Stored, NamespaceError> {
        if description.len() > DESCRIPTION_BYTES_MAX {
            return Err(NamespaceError::LongDescription);
        }
        // A deletion takes the namespace out under this lock.
        let spaces = self.spaces.write();
        let space = spaces.get(namespace).ok_or(NamespaceError::NoSuchNamespace)?;
        if *space.description() == *description && self.progress.is_durable() {
            return Ok(Stored::nothing(&self.progress));
        }
        let put = namespace_frame(namespace, Change::Put(there(space.id, description)));
        let stored = stage(&*self.journal, &self.progress, vec![put])?;
        space.describe(description);
        Ok(stored)
    }

    /// Declares an exchange. An existing one with the same definition is returned.
    pub fn declare(
        &self,
        namespace: &Namespace,
        name: &str,
        new: NewExchange,
    ) -> Result<(Arc<Exchange>, Stored), DeclareError> {
        let space = self.space(namespace).ok_or(DeclareError::NoSuchNamespace)?;
        space.declare(name, new)
    }

    /// Binds a queue, an exchange or a topic to an exchange; idempotent.
    pub(crate) fn bind(
        &self,
        namespace: &Namespace,
        new: NewBinding,
        durable: bool,
    ) -> Result<Stored, BindError> {
        let space = self.space(namespace).ok_or(BindError::NoSuchNamespace)?;
        space.bind(new, durable)
    }

    /// Removes all bindings to a destination.
    pub(crate) fn forget(&self, namespace: &Namespace, destination: &Destination) {
        if let Some(space) = self.space(namespace) {
            space.forget(destination);
        }
    }

    /// Removes all bindings to a deleted topic.
    pub(crate) fn forget_topic(&self, name: &str) {
        let topic = Destination::Topic(name.into());
        for namespace in self.namespaces() {
            self.forget(&namespace, &topic);
        }
    }

    pub fn get(&self, namespace: &Namespace, name: &str) -> Option<Arc<Exchange>> {
        self.space(namespace)?
            .read(|tables| tables.exchange(name).cloned())
    }

    /// Returns the counts of publications to an exchange; `None` if nothing was.
    pub fn traffic(&self, namespace: &Namespace, name: &str) -> Option<Arc<ExchangeTraffic>> {
        self.space(namespace)?.traffic.get(name)
    }

    pub fn sampler(&self) -> &Sampler<ExchangeTraffic> {
        &self.sampler
    }

    /// Deletes an exchange and the bindings from and to it. Routing through it stops before this returns.
    /// Many bindings are removed in steps; the returned future resolves after the last one. Must be called
    /// within a Tokio runtime.
    pub fn delete(&self, namespace: &Namespace, name: &str, if_unused: bool) -> Result<Stored, DeleteError> {
        let space = self.space(namespace).ok_or(DeleteError::NoSuchNamespace)?;
        let (stored, has_more) = space.delete(name, if_unused)?;
        if !has_more {
            return Ok(stored);
        }
        let name = name.to_owned();
        Ok(stored.and(self.tasks.spawn(async move {
            while space.remove_step_of(&name)? {
                tokio::task::yield_now().await;
            }
            Ok(())
        })))
    }

    pub fn unbind(&self, namespace: &Namespace, which: &Unbind<'_>) -> Result<Stored, UnbindError> {
        let space = self.space(namespace).ok_or(UnbindError::NoSuchNamespace)?;
        space.unbind(which)
    }

    /// Returns the exchanges of a namespace, by name.
    pub fn list(&self, namespace: &Namespace) -> Vec<Arc<Exchange>> {
        let all = |space: Arc<NamespaceRouting>| space.read(|tables| tables.exchanges().cloned().collect());
        self.space(namespace).map(all).unwrap_or_default()
    }

    /// Returns the bindings of a namespace, by source.
    pub fn bindings(&self, namespace: &Namespace) -> Vec<Arc<Binding>> {
        let all = |space: Arc<NamespaceRouting>| space.read(|tables| tables.bindings().cloned().collect());
        self.space(namespace).map(all).unwrap_or_default()
    }

    pub fn bindings_from(&self, namespace: &Namespace, source: &str) -> Vec<Arc<Binding>> {
        let from = |space: Arc<NamespaceRouting>| {
            space.read(|tables| tables.bindings_from(source).cloned().collect())
        };
        self.space(namespace).map(from).unwrap_or_default()
    }

    pub fn bindings_to(&self, namespace: &Namespace, destination: &Destination) -> Vec<Arc<Binding>> {
        let to = |space: Arc<NamespaceRouting>| {
            space.read(|tables| tables.bindings_to(destination).cloned().collect())
        };
        self.space(namespace).map(to).unwrap_or_default()
    }

    /// Waits until all deletions have ended.
    pub(crate) async fn finish(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    pub(crate) fn facts(&self) -> &AttributeReaders {
        &self.facts
    }

    pub(crate) fn space(&self, namespace: &Namespace) -> Option<Arc<NamespaceRouting>> {
        let spaces = self.spaces.read();
        spaces.get(namespace).cloned()
    }
}

fn namespace_frame(namespace: &Namespace, change: Change) -> Frame {
    let mut key = Vec::new();
    put_text(namespace.as_str(), &mut key);
    spaces::NAMESPACES.change(key, change)
}

/// Returns a new random id of a namespace.
fn new_id() -> NamespaceId {
    NamespaceId(uuid::Uuid::new_v4().as_u64_pair().0.max(1))
}
