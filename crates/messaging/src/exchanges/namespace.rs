//! One namespace: its exchanges and bindings behind a lock, and the router for publishing.
//!
//! A change is planned, staged in the journal, applied and published under one lock: so the journal has the
//! changes in order, and conflicting changes are decided once. Publishing does not take that lock.
//!
//! An exchange or queue with very many bindings is removed at once, and its bindings follow in steps, each
//! with its own lock: other tasks get their turns, and no message uses a binding that is still to be removed.
//! A crash leaves dangling bindings, which the next start removes; so the name is not reused before the last
//! of them is gone.

use std::sync::Arc;

use bytes::Bytes;
use stafett_journal::{Frame, Journal};
use stafett_model::{Lock, LockGuard, NAME_BYTES_MAX, Namespace, NamespaceId, SharedLock};
use stafett_routing::{HeaderMatch, Router};
use stafett_store::{NotStored, Progress, Stored, spaces, stage, stage_unwatched};
use tokio_util::sync::CancellationToken;

use super::binding::{Binding, Destination};
use super::counts::ExchangesTraffic;
use super::error::{BindError, DeclareError, DeleteError, UnbindError};
use super::exchange::{Exchange, NewExchange};
use super::tables::{FILTERS_MAX, RemovalSet, Tables};
use super::target::Target;

/// Bindings removed in one step.
pub(crate) const STEP: usize = 256;

#[derive(Debug)]
pub(crate) struct NamespaceRouting {
    pub(crate) name: Namespace,
    pub(crate) id: NamespaceId,
    description: Lock<Arc<str>>,
    /// Cancelled when the namespace is closed.
    pub(crate) closed: CancellationToken,
    journal: Arc<dyn Journal>,
    tables: Lock<Tables>,
    /// Current router of `tables`; a clone never changes.
    router: SharedLock<Router<Target>>,
    progress: Arc<Progress>,
    pub(crate) traffic: ExchangesTraffic,
}

/// Parameters of a new binding.
#[derive(Debug, Clone)]
pub struct NewBinding {
    pub source: Arc<str>,
    pub destination: Destination,
    pub key: Bytes,
    pub headers: HeaderMatch,
    /// Opaque, but part of the identity.
    pub arguments: Bytes,
}

/// Identity of a binding to remove.
#[derive(Debug, Clone, Copy)]
pub struct Unbind<'a> {
    pub source: &'a str,
    pub destination: &'a Destination,
    pub key: &'a [u8],
    pub arguments: &'a [u8],
}

impl NamespaceRouting {
    pub(crate) fn new(name: Namespace, id: NamespaceId, journal: Arc<dyn Journal>) -> Self {
        let tables = Tables::default();
        Self {
            name,
            id,
            description: Lock::new("".into()),
            closed: CancellationToken::new(),
            journal,
            router: SharedLock::new(tables.router().clone()),
            tables: Lock::new(tables),
            progress: Arc::default(),
            traffic: ExchangesTraffic::default(),
        }
    }

    pub(crate) fn description(&self) -> Arc<str> {
        Arc::clone(&self.description.lock())
    }

    pub(crate) fn describe(&self, description: &str) {
        *self.description.lock() = description.into();
    }

    /// Returns the current router for publishing.
    pub(crate) fn router(&self) -> Router<Target> {
        self.router.read().clone()
    }

    pub(crate) fn read<R>(&self, read: impl FnOnce(&Tables) -> R) -> R {
        read(&self.lock())
    }

    /// Adds loaded items.
    pub(crate) fn load(&self, fill: impl FnOnce(&mut Tables)) {
        let mut tables = self.lock();
        fill(&mut tables);
        drop(self.show(&tables));
    }

    pub(crate) fn declare(
        &self,
        name: &str,
        new: NewExchange,
    ) -> Result<(Arc<Exchange>, Stored), DeclareError> {
        if name.len() > NAME_BYTES_MAX {
            return Err(DeclareError::NameTooLong);
        }
        let mut tables = self.lock();
        while tables.is_leaving(name) {
            drop(tables);
            self.remove_step_of(name)?;
            tables = self.lock();
        }
        if tables.is_closed() {
            return Err(DeclareError::NoSuchNamespace);
        }
        if let Some(exchange) = tables.exchange(name) {
            if let Some(difference) = exchange.is.difference(&new) {
                return Err(DeclareError::Differs {
                    exchange: Arc::clone(exchange),
                    difference,
                });
            }
            let frames = self.unless_durable(exchange.is.durable && !name.is_empty(), || {
                self.put_exchange(exchange)
            });
            return Ok((Arc::clone(exchange), self.stage(frames)?));
        }
        let exchange = Arc::new(Exchange {
            name: name.into(),
            is: new,
        });
        let frames = exchange.is.durable.then(|| self.put_exchange(&exchange));
        let stored = self.stage(frames.into_iter().collect())?;
        tables.add_exchange(Arc::clone(&exchange));
        self.traffic.forget(name);
        drop(self.show(&tables));
        Ok((exchange, stored))
    }

    /// Deletes an exchange. True if some of its bindings are left, for [`NamespaceRouting::remove_step_of`].
    pub(crate) fn delete(&self, name: &str, if_unused: bool) -> Result<(Stored, bool), DeleteError> {
        let mut tables = self.lock();
        if name.is_empty() {
            return Err(DeleteError::IsDefault);
        }
        let exchange = Arc::clone(tables.exchange(name).ok_or(DeleteError::NoSuchExchange)?);
        if if_unused && tables.bindings_from(name).next().is_some() {
            return Err(DeleteError::InUse);
        }
        if tables.some_bindings_of(name, STEP + 1).len() <= STEP {
            let removal = tables.plan_removal([], Some(name));
            return Ok((self.remove(&mut tables, &removal)?, false));
        }
        let frame = exchange.is.durable.then(|| self.delete_exchange(&exchange));
        let stored = self.stage(frame.into_iter().collect())?;
        tables.detach_exchange(&exchange.name);
        self.traffic.forget(&exchange.name);
        let before = self.show(&tables);
        drop(tables);
        // This may drop the last reference to the exchange's whole table.
        drop(before);
        Ok((stored, true))
    }

    /// Removes some remaining bindings of a deleted exchange. False if they were the last.
    pub(crate) fn remove_step_of(&self, name: &str) -> Result<bool, NotStored> {
        let mut tables = self.lock();
        if !tables.is_leaving(name) {
            return Ok(false);
        }
        let bindings = tables.some_bindings_of(name, STEP);
        let is_last = bindings.len() < STEP;
        self.remove_unwatched(&mut tables, bindings)?;
        if is_last {
            tables.finish_removal(name);
        }
        Ok(!is_last)
    }

    /// Adds a binding. `durable` is the durability of its destination, unless that is an exchange.
    pub(crate) fn bind(&self, new: NewBinding, durable: bool) -> Result<Stored, BindError> {
        if new.key.len() > NAME_BYTES_MAX {
            return Err(BindError::KeyTooLong);
        }
        let mut tables = self.lock();
        let source = tables.exchange(&new.source).ok_or(BindError::NoSuchExchange)?;
        let mut durable = source.is.durable && durable;
        if let Destination::Exchange(name) = &new.destination {
            let exchange = tables.exchange(name).ok_or(BindError::NoSuchDestination)?;
            if name.is_empty() {
                return Err(BindError::IsDefault);
            }
            durable &= exchange.is.durable;
        }
        let binding = Arc::new(Binding {
            source: Arc::clone(&source.name),
            destination: tables.shared(&new.destination),
            key: new.key,
            arguments: new.arguments,
            headers: (new.headers != HeaderMatch::default()).then(|| Box::new(new.headers)),
            durable,
        });
        if let Some(same) = tables.same(&binding) {
            let frames = self.unless_durable(same.durable, || self.put_binding(same));
            return Ok(self.stage(frames)?);
        }
        if !tables.has_room_for_filter_of(&binding) {
            let max = FILTERS_MAX;
            return Err(BindError::TooManyFilters { max });
        }
        let hop = binding.destination.hop();
        tables.router().check(&binding.source, &binding.pattern(), &hop)?;
        let frames = durable.then(|| self.put_binding(&binding));
        let stored = self.stage(frames.into_iter().collect())?;
        let binding = Arc::unwrap_or_clone(binding);
        tables.add_binding(binding)?;
        drop(self.show(&tables));
        Ok(stored)
    }

    pub(crate) fn unbind(&self, which: &Unbind<'_>) -> Result<Stored, UnbindError> {
        let mut tables = self.lock();
        tables.exchange(which.source).ok_or(UnbindError::NoSuchExchange)?;
        let wanted = Arc::new(Binding {
            source: which.source.into(),
            destination: which.destination.clone(),
            key: Bytes::copy_from_slice(which.key),
            arguments: Bytes::copy_from_slice(which.arguments),
            headers: None,
            durable: false,
        });
        let binding = Arc::clone(tables.same(&wanted).ok_or(UnbindError::NoSuchBinding)?);
        let removal = tables.plan_removal([binding], None);
        Ok(self.remove(&mut tables, &removal)?)
    }

    /// Removes all bindings to a deleted destination. If this is not stored, the next start does it.
    pub(crate) fn forget(&self, destination: &Destination) {
        while self.forget_step(destination).unwrap_or(false) {}
    }

    /// Removes some bindings to a deleted destination. False if they were the last.
    pub(crate) fn forget_step(&self, destination: &Destination) -> Result<bool, NotStored> {
        let mut tables = self.lock();
        let bindings: Vec<_> = tables.bindings_to(destination).take(STEP).cloned().collect();
        let is_last = bindings.len() < STEP;
        self.remove_unwatched(&mut tables, bindings)?;
        Ok(!is_last)
    }

    /// Removes bindings to a destination that is being deleted, and auto-delete exchanges that lose their
    /// last binding. `append` stores this together with the caller's own frames, under the lock, so that
    /// nothing can be recreated in between. True if some are left, for [`NamespaceRouting::forget_step`].
    pub(crate) fn remove_bindings_with(
        &self,
        destination: &Destination,
        append: &mut dyn FnMut(Vec<Frame>),
    ) -> bool {
        let mut tables = self.lock();
        let mut bindings: Vec<_> = tables.bindings_to(destination).take(STEP + 1).cloned().collect();
        if bindings.is_empty() {
            append(Vec::new());
            return false;
        }
        let has_more = bindings.len() > STEP;
        bindings.truncate(STEP);
        let removal = tables.plan_removal(bindings, None);
        append(self.frames_of(&removal));
        self.remove_from(&mut tables, &removal);
        drop(self.show(&tables));
        has_more
    }

    /// Removes and returns everything; the namespace takes no more changes.
    pub(crate) fn close(&self) -> Tables {
        let mut tables = self.lock();
        let before = tables.close();
        self.traffic.forget_all();
        drop(self.show(&tables));
        before
    }

    /// Deletes some stored contents of the closed namespace. `None` if nothing was left.
    pub(crate) fn forget_step_of(&self, closed: &mut Tables) -> Result<Option<Stored>, NotStored> {
        let (exchanges, bindings) = closed.take_some(STEP);
        if exchanges.is_empty() && bindings.is_empty() {
            return Ok(None);
        }
        let stored = exchanges
            .iter()
            .filter(|exchange| exchange.is.durable && !exchange.name.is_empty());
        let mut frames: Vec<Frame> = stored.map(|exchange| self.delete_exchange(exchange)).collect();
        frames.extend(bindings.iter().filter_map(|binding| self.binding_frame(binding)));
        self.stage(frames).map(Some)
    }

    /// Removes auto-delete exchanges without bindings. If this is not stored, the next start does it.
    pub(crate) fn forget_unbound(&self, names: &[Arc<str>]) -> Result<(), NotStored> {
        let mut tables = self.lock();
        for name in names {
            let is_to_go = tables
                .exchange(name)
                .is_some_and(|exchange| exchange.is.auto_delete)
                && tables.bindings_from(name).next().is_none();
            if is_to_go {
                let removal = tables.plan_removal([], Some(name));
                stage_unwatched(&*self.journal, self.frames_of(&removal))?;
                self.remove_from(&mut tables, &removal);
            }
        }
        drop(self.show(&tables));
        Ok(())
    }

    fn remove_from(&self, tables: &mut Tables, removal: &RemovalSet) {
        tables.remove(removal);
        for name in removal.exchanges.keys() {
            self.traffic.forget(name);
        }
    }

    fn remove(&self, tables: &mut Tables, removal: &RemovalSet) -> Result<Stored, NotStored> {
        let stored = self.stage(self.frames_of(removal))?;
        self.remove_from(tables, removal);
        drop(self.show(tables));
        Ok(stored)
    }

    /// Removes bindings without waiting: if this is not stored, the next start removes them.
    fn remove_unwatched(&self, tables: &mut Tables, bindings: Vec<Arc<Binding>>) -> Result<(), NotStored> {
        if bindings.is_empty() {
            return Ok(());
        }
        let removal = tables.plan_removal(bindings, None);
        stage_unwatched(&*self.journal, self.frames_of(&removal))?;
        self.remove_from(tables, &removal);
        drop(self.show(tables));
        Ok(())
    }

    fn frames_of(&self, removal: &RemovalSet) -> Vec<Frame> {
        let bindings = removal
            .bindings()
            .filter_map(|binding| self.binding_frame(binding));
        self.exchange_frames(removal).chain(bindings).collect()
    }

    fn exchange_frames(&self, removal: &RemovalSet) -> impl Iterator<Item = Frame> {
        let exchanges = removal.exchanges.values().filter(|exchange| exchange.is.durable);
        exchanges.map(|exchange| self.delete_exchange(exchange))
    }

    fn delete_exchange(&self, exchange: &Exchange) -> Frame {
        let key = Exchange::key(&self.name, &exchange.name);
        spaces::EXCHANGES.delete(key)
    }

    fn binding_frame(&self, binding: &Binding) -> Option<Frame> {
        let key = binding.durable.then(|| binding.state_key(&self.name))?;
        Some(spaces::BINDINGS.delete(key))
    }

    /// Stores an existing item again if it may not be durable yet: a caller that is told that it exists may
    /// rely on it.
    fn unless_durable(&self, is_stored: bool, put: impl FnOnce() -> Frame) -> Vec<Frame> {
        if is_stored && !self.progress.is_durable() {
            vec![put()]
        } else {
            Vec::new()
        }
    }

    fn put_exchange(&self, exchange: &Exchange) -> Frame {
        let key = Exchange::key(&self.name, &exchange.name);
        spaces::EXCHANGES.put(key, exchange.encode())
    }

    fn put_binding(&self, binding: &Binding) -> Frame {
        let key = binding.state_key(&self.name);
        spaces::BINDINGS.put(key, binding.encode())
    }

    fn stage(&self, frames: Vec<Frame>) -> Result<Stored, NotStored> {
        stage(&*self.journal, &self.progress, frames)
    }

    /// Publishes the current router; returns the previous one, which may hold the last reference to a whole
    /// table.
    fn show(&self, tables: &Tables) -> Router<Target> {
        let now = tables.router().clone();
        let mut router = self.router.write();
        std::mem::replace(&mut *router, now)
    }

    fn lock(&self) -> LockGuard<'_, Tables> {
        self.tables.lock()
    }
}
