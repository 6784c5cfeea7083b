//! All exchanges of one namespace, and routing through them.

use std::sync::Arc;

use imbl::OrdMap;

use crate::hops::{Hop, Target};
use crate::message_view::MessageView;
use crate::routes::{DependsOn, Routes};
use crate::spec::{BadPattern, ExchangeKind, NoSuchExchange, Pattern, Spec};
use crate::tables::Table;

/// Number of messages whose memory is prefetched together.
pub const PREFETCH_MAX: usize = 16;

/// Exchanges and their bindings. A clone copies a few pointers and is immutable.
#[derive(Debug, Clone)]
pub struct Router<T> {
    exchanges: OrdMap<Arc<str>, Arc<Exchange<T>>>,
}

#[derive(Debug, Clone)]
struct Exchange<T> {
    kind: ExchangeKind,
    delays: bool,
    internal: bool,
    alternate: Option<Arc<str>>,
    table: Table<T>,
}

/// Resolver of targets by name, for exchanges that have no bindings.
pub trait Names<T> {
    fn named(&self, name: &[u8]) -> Option<T>;
}

impl<T, F: Fn(&[u8]) -> Option<T>> Names<T> for F {
    fn named(&self, name: &[u8]) -> Option<T> {
        self(name)
    }
}

impl<T> Default for Router<T> {
    fn default() -> Self {
        Self {
            exchanges: OrdMap::new(),
        }
    }
}

impl<T: Target> Router<T> {
    /// Adds an exchange without bindings. Replaces one of the same name, with its bindings.
    pub fn add_exchange(&mut self, name: Arc<str>, spec: Spec) {
        let table = Table::of(&spec.kind);
        let exchange = Exchange {
            kind: spec.kind,
            delays: spec.delays,
            internal: spec.internal,
            alternate: spec.alternate,
            table,
        };
        self.exchanges.insert(name, Arc::new(exchange));
    }

    /// Removes an exchange with its bindings. Bindings to it stay, without effect.
    pub fn remove_exchange(&mut self, name: &str) -> bool {
        self.exchanges.remove(name).is_some()
    }

    /// Adds a binding. A binding added twice has to be removed twice.
    pub fn bind(&mut self, source: &str, pattern: &Pattern, hop: Hop<T>) -> Result<(), BindError> {
        let exchange = self.exchanges.get_mut(source).ok_or(NoSuchExchange)?;
        Ok(Arc::make_mut(exchange).table.bind(pattern, hop)?)
    }

    /// Checks whether an exchange accepts a binding.
    pub fn check(&self, source: &str, pattern: &Pattern, hop: &Hop<T>) -> Result<(), BindError> {
        let exchange = self.exchanges.get(source).ok_or(NoSuchExchange)?;
        Ok(exchange.table.check(pattern, hop)?)
    }

    /// Removes a binding. False if there was none.
    pub fn unbind(&mut self, source: &str, pattern: &Pattern, hop: &Hop<T>) -> bool {
        self.exchanges
            .get_mut(source)
            .is_some_and(|exchange| Arc::make_mut(exchange).table.unbind(pattern, hop))
    }

    /// Returns true if an exchange accepts messages from other exchanges only; `None` if it does not exist.
    pub fn is_internal(&self, name: &str) -> Option<bool> {
        self.exchanges.get(name).map(|exchange| exchange.internal)
    }

    /// Prefetches the memory that messages with these keys read first, for up to [`PREFETCH_MAX`] messages
    /// before they are routed. No other effect.
    pub fn prefetch<'k>(&self, exchange: &str, keys: impl Iterator<Item = &'k [u8]>) {
        if let Some(exchange) = self.exchanges.get(exchange) {
            exchange.table.prefetch(keys);
        }
    }

    /// Routes a message published to an exchange. Each exchange on the way is visited once, so cycles end. An
    /// exchange without a match passes the message to its alternate exchange, if that exists.
    pub fn route(
        &self,
        exchange: &str,
        message: &dyn MessageView,
        names: &dyn Names<T>,
        routes: &mut Routes<T>,
    ) -> Result<(), NoSuchExchange> {
        let (name, first) = self.exchanges.get_key_value(exchange).ok_or(NoSuchExchange)?;
        routes.clear();
        routes.add_exchange(name);
        first.pass(name, message, names, routes);
        let mut next = 1;
        while let Some(name) = routes.exchange(next) {
            if let Some(exchange) = self.exchanges.get(&name) {
                exchange.pass(&name, message, names, routes);
            }
            next += 1;
        }
        routes.finish();
        Ok(())
    }
}

impl<T: Target> Exchange<T> {
    /// Adds the destinations of this exchange, named `name`.
    fn pass(&self, name: &Arc<str>, message: &dyn MessageView, names: &dyn Names<T>, routes: &mut Routes<T>) {
        if self.delays {
            routes.depend(DependsOn::Message);
            if message.is_delayed() {
                routes.wait_at(name);
                return;
            }
        }
        let before = routes.added();
        self.table.route(&self.kind, message, names, routes);
        routes.ask_filters(message);
        if routes.added() == before
            && let Some(alternate) = &self.alternate
        {
            routes.add_exchange(alternate);
        }
    }
}

/// Reason why a binding was not added.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    #[error(transparent)]
    NoSuchExchange(#[from] NoSuchExchange),
    #[error(transparent)]
    BadPattern(#[from] BadPattern),
}
