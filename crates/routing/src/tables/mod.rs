//! Bindings of one exchange, in the form in which its kind looks them up.

mod hashed;
mod headers;
mod keyed;
mod topic;

use std::sync::Arc;

use smallvec::SmallVec;

use crate::cache_prefetch;
use crate::hash_trie::PrefetchedSlot;
use crate::hops::{FilteredHop, Hop, Hops, Target};
use crate::message_view::MessageView;
use crate::router::Names;
use crate::router::PREFETCH_MAX;
use crate::routes::{DependsOn, Routes};
use crate::spec::{BadPattern, ExchangeKind, Pattern};
use hashed::Hashed;
use headers::Headers;
use keyed::ByKey;
use topic::{Child, Topic};

#[derive(Debug, Clone)]
pub(crate) enum Table<T> {
    ByName,
    Direct(ByKey<T>),
    FanOut(Hops<T>),
    Topic(Topic<T>),
    Headers(Headers<T>),
    Hashed(Hashed<T>),
}

impl<T: Target> Table<T> {
    pub(crate) fn of(kind: &ExchangeKind) -> Self {
        match kind {
            ExchangeKind::ByName => Self::ByName,
            ExchangeKind::Direct => Self::Direct(ByKey::default()),
            ExchangeKind::FanOut => Self::FanOut(Hops::None),
            ExchangeKind::Topic => Self::Topic(Topic::default()),
            ExchangeKind::Headers => Self::Headers(Headers::default()),
            ExchangeKind::Hashed(_) => Self::Hashed(Hashed::default()),
        }
    }

    pub(crate) fn check(&self, pattern: &Pattern, hop: &Hop<T>) -> Result<(), BadPattern> {
        match self {
            Self::ByName => Err(BadPattern::ByName),
            Self::Direct(_) | Self::FanOut(_) | Self::Topic(_) | Self::Headers(_) => Ok(()),
            Self::Hashed(hashed) => hashed.check(pattern, hop),
        }
    }

    pub(crate) fn bind(&mut self, pattern: &Pattern, hop: Hop<T>) -> Result<(), BadPattern> {
        self.check(pattern, &hop)?;
        let hop = filtered(pattern, hop);
        match self {
            Self::ByName => {}
            Self::Direct(keys) => keys.bind(&pattern.key, hop),
            Self::FanOut(hops) => hops.add(hop),
            Self::Topic(topic) => topic.bind(&pattern.key, hop),
            Self::Headers(headers) => headers.bind(&pattern.headers, hop),
            Self::Hashed(hashed) => hashed.bind(pattern, hop)?,
        }
        Ok(())
    }

    pub(crate) fn unbind(&mut self, pattern: &Pattern, hop: &Hop<T>) -> bool {
        let hop = &filtered(pattern, hop.clone());
        match self {
            Self::ByName => false,
            Self::Direct(keys) => keys.unbind(&pattern.key, hop),
            Self::FanOut(hops) => hops.remove(hop),
            Self::Topic(topic) => topic.unbind(&pattern.key, hop),
            Self::Headers(headers) => headers.unbind(&pattern.headers, hop),
            Self::Hashed(hashed) => hashed.unbind(pattern, hop),
        }
    }

    /// Prefetches the memory that look-ups of these keys will read, so that they wait for it together.
    pub(crate) fn prefetch<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) {
        match self {
            Self::Direct(table) => {
                let ahead = found(keys.map(|key| table.prefetch(key)));
                let known = ahead.iter().filter_map(PrefetchedSlot::value);
                known.for_each(|known| cache_prefetch::prefetch(&**known));
            }
            Self::Topic(topic) => {
                let ahead = found(keys.map(|key| topic.prefetch(key)));
                let children = ahead.iter().filter_map(PrefetchedSlot::value);
                children.for_each(Child::prefetch);
            }
            Self::ByName | Self::FanOut(_) | Self::Headers(_) | Self::Hashed(_) => {}
        }
    }

    pub(crate) fn route(
        &self,
        kind: &ExchangeKind,
        message: &dyn MessageView,
        names: &dyn Names<T>,
        routes: &mut Routes<T>,
    ) {
        match self {
            Self::ByName => {
                routes.depend(DependsOn::Keys);
                each_key(message, |key| {
                    if let Some(target) = names.named(key) {
                        routes.add_target(target);
                    }
                });
            }
            Self::Direct(keys) => {
                routes.depend(DependsOn::Keys);
                each_key(message, |key| {
                    if let Some(hops) = keys.get(key) {
                        routes.add(hops);
                    }
                });
            }
            Self::FanOut(hops) => routes.add(hops),
            Self::Topic(topic) => {
                routes.depend(DependsOn::Keys);
                each_key(message, |key| topic.route(key, routes));
            }
            Self::Headers(headers) => {
                routes.depend(DependsOn::Message);
                headers.route(message, routes);
            }
            Self::Hashed(hashed) => hashed.route(kind, message, routes),
        }
    }
}

/// Returns a hop with the filter of its binding, if there is one.
fn filtered<T>(pattern: &Pattern, hop: Hop<T>) -> Hop<T> {
    match &pattern.headers.filter {
        None => hop,
        Some(filter) => {
            let filter = Arc::clone(filter);
            Hop::Filtered(Arc::new(FilteredHop { filter, hop }))
        }
    }
}

/// Collects the prefetched slots of some look-ups. If the first has none, the others are skipped too.
fn found<'a, V>(
    look_ups: impl Iterator<Item = Option<PrefetchedSlot<'a, V>>>,
) -> SmallVec<[PrefetchedSlot<'a, V>; PREFETCH_MAX]> {
    let mut look_ups = look_ups.peekable();
    match look_ups.peek() {
        Some(Some(_)) => look_ups.flatten().collect(),
        Some(None) | None => SmallVec::new(),
    }
}

fn each_key(message: &dyn MessageView, mut visit: impl FnMut(&[u8])) {
    visit(message.key());
    for key in message.more_keys() {
        visit(key.as_bytes());
    }
}
