//! One namespace: its exchanges and bindings behind a lock, and the router that publishes see.
//!
//! A change is planned, staged in the journal, applied and published under one lock: so the journal has the
//! changes in their order, and two that exclude each other are decided once. Publishing takes no part in that
//! lock.
//!
//! What goes with very many bindings is taken away at once, and they follow in steps, each under the lock by
//! itself: others have their turns in between, and no message takes the way of a binding that is still to be
//! removed. A crash in between leaves bindings that lead from or to nowhere, which the next start removes; so
//! nothing of that name is made before the last of them is gone.

use std::sync::{Arc, MutexGuard};

use bytes::Bytes;
use stafett_journal::{Frame, Journal};
use stafett_model::{Lock, NAME_BYTES_MAX, Namespace, SharedLock};
use stafett_routing::{HeaderMatch, Router};
use stafett_store::{NotStored, Progress, Stored, spaces, stage, stage_unwatched};
use tokio_util::sync::CancellationToken;

use super::binding::{Binding, Destination};
use super::error::{BindError, DeclareError, DeleteError, UnbindError};
use super::exchange::{Exchange, NewExchange};
use super::tables::{Going, Tables};
use super::target::Target;

/// Bindings that are removed together.
pub(crate) const STEP: usize = 256;

#[derive(Debug)]
pub(crate) struct Space {
    name: Namespace,
    pub(crate) id: SpaceId,
    /// Cancelled when it is closed.
    pub(crate) closed: CancellationToken,
    journal: Arc<dyn Journal>,
    tables: Lock<Tables>,
    /// As `tables` has it; a clone never changes.
    router: SharedLock<Router<Target>>,
    progress: Arc<Progress>,
}

/// Tells a namespace from others that had its name before. That which is always there has 0, as have those
/// that versions made which gave none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct SpaceId(pub(crate) u64);

impl SpaceId {
    /// One that no other namespace has.
    pub(crate) fn new() -> Self {
        Self(uuid::Uuid::new_v4().as_u64_pair().0.max(1))
    }
}

/// A binding to be made.
#[derive(Debug, Clone)]
pub struct NewBinding {
    pub source: Arc<str>,
    pub destination: Destination,
    pub key: Bytes,
    pub headers: HeaderMatch,
    /// Opaque; bindings that differ in it are different ones.
    pub arguments: Bytes,
}

/// Which binding to remove.
#[derive(Debug, Clone, Copy)]
pub struct Unbind<'a> {
    pub source: &'a str,
    pub destination: &'a Destination,
    pub key: &'a [u8],
    pub arguments: &'a [u8],
}

impl Space {
    pub(crate) fn new(name: Namespace, id: SpaceId, journal: Arc<dyn Journal>) -> Self {
        let tables = Tables::default();
        Self {
            name,
            id,
            closed: CancellationToken::new(),
            journal,
            router: SharedLock::new(tables.router().clone()),
            tables: Lock::new(tables),
            progress: Arc::default(),
        }
    }

    /// What publishes route against, as it is now.
    pub(crate) fn router(&self) -> Router<Target> {
        self.router.read().clone()
    }

    pub(crate) fn read<R>(&self, read: impl FnOnce(&Tables) -> R) -> R {
        read(&self.lock())
    }

    /// Adds what was stored.
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
        drop(self.show(&tables));
        Ok((exchange, stored))
    }

    /// Deletes an exchange. True if bindings of it are left, for [`Space::remove_step_of`].
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
            let going = tables.going([], Some(name));
            return Ok((self.remove(&mut tables, &going)?, false));
        }
        let frame = exchange.is.durable.then(|| self.delete_exchange(&exchange));
        let stored = self.stage(frame.into_iter().collect())?;
        tables.leave(&exchange.name);
        let before = self.show(&tables);
        drop(tables);
        // It may be the last that holds the whole table of the exchange.
        drop(before);
        Ok((stored, true))
    }

    /// Removes some of the bindings that an exchange has left. False if that were all.
    pub(crate) fn remove_step_of(&self, name: &str) -> Result<bool, NotStored> {
        let mut tables = self.lock();
        if !tables.is_leaving(name) {
            return Ok(false);
        }
        let bindings = tables.some_bindings_of(name, STEP);
        let is_last = bindings.len() < STEP;
        self.remove_unwatched(&mut tables, bindings)?;
        if is_last {
            tables.has_left(name);
        }
        Ok(!is_last)
    }

    /// Adds a binding; `durable` says whether its destination is, and is told nothing about exchanges.
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
        tables.router().check(&binding.source, &binding.pattern())?;
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
        let going = tables.going([binding], None);
        Ok(self.remove(&mut tables, &going)?)
    }

    /// Removes every binding to a destination that is gone. What is not stored of that, the next start
    /// removes.
    pub(crate) fn forget(&self, destination: &Destination) {
        while self.forget_step(destination).unwrap_or(false) {}
    }

    /// Removes some of the bindings to a destination that is gone. False if that were all.
    pub(crate) fn forget_step(&self, destination: &Destination) -> Result<bool, NotStored> {
        let mut tables = self.lock();
        let bindings: Vec<_> = tables.bindings_to(destination).take(STEP).cloned().collect();
        let is_last = bindings.len() < STEP;
        self.remove_unwatched(&mut tables, bindings)?;
        Ok(!is_last)
    }

    /// Removes bindings to a destination that is going, and exchanges that go with their last binding.
    /// `append` stores that together with what the caller does itself, while nobody can make any of it anew.
    /// True if more are left, for [`Space::forget_step`].
    pub(crate) fn forget_with(&self, destination: &Destination, append: &mut dyn FnMut(Vec<Frame>)) -> bool {
        let mut tables = self.lock();
        let mut bindings: Vec<_> = tables.bindings_to(destination).take(STEP + 1).cloned().collect();
        if bindings.is_empty() {
            append(Vec::new());
            return false;
        }
        let has_more = bindings.len() > STEP;
        bindings.truncate(STEP);
        let going = tables.going(bindings, None);
        append(self.frames_of(&going));
        tables.remove(&going);
        drop(self.show(&tables));
        has_more
    }

    /// Takes everything out of this namespace, as it is deleted; it takes no more changes.
    pub(crate) fn close(&self) -> Tables {
        let mut tables = self.lock();
        let before = tables.close();
        drop(self.show(&tables));
        before
    }

    /// Lets the journal forget some of what was in the namespace. `None` if there was nothing left.
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

    /// Removes exchanges that go with their last binding and have none left. What is not stored of that, the
    /// next start removes.
    pub(crate) fn forget_unbound(&self, names: &[Arc<str>]) -> Result<(), NotStored> {
        let mut tables = self.lock();
        for name in names {
            let is_to_go = tables
                .exchange(name)
                .is_some_and(|exchange| exchange.is.auto_delete)
                && tables.bindings_from(name).next().is_none();
            if is_to_go {
                let going = tables.going([], Some(name));
                stage_unwatched(&*self.journal, self.frames_of(&going))?;
                tables.remove(&going);
            }
        }
        drop(self.show(&tables));
        Ok(())
    }

    fn remove(&self, tables: &mut Tables, going: &Going) -> Result<Stored, NotStored> {
        let stored = self.stage(self.frames_of(going))?;
        tables.remove(going);
        drop(self.show(tables));
        Ok(stored)
    }

    /// Removes bindings of which a start would remove what is left of them.
    fn remove_unwatched(&self, tables: &mut Tables, bindings: Vec<Arc<Binding>>) -> Result<(), NotStored> {
        if bindings.is_empty() {
            return Ok(());
        }
        let going = tables.going(bindings, None);
        stage_unwatched(&*self.journal, self.frames_of(&going))?;
        tables.remove(&going);
        drop(self.show(tables));
        Ok(())
    }

    fn frames_of(&self, going: &Going) -> Vec<Frame> {
        let bindings = going.bindings().filter_map(|binding| self.binding_frame(binding));
        self.exchange_frames(going).chain(bindings).collect()
    }

    fn exchange_frames(&self, going: &Going) -> impl Iterator<Item = Frame> {
        let exchanges = going.exchanges.values().filter(|exchange| exchange.is.durable);
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

    /// What exists may have been declared a moment ago by somebody else, and not be durable yet: it is stored
    /// once more, as whoever hears that it exists may rely on it.
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

    /// Lets publishes see what there is now; gives what they saw before, which may be the last that holds a
    /// whole table.
    fn show(&self, tables: &Tables) -> Router<Target> {
        let now = tables.router().clone();
        let mut router = self.router.write();
        std::mem::replace(&mut *router, now)
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock()
    }
}
