//! Bindings by headers.
//!
//! A binding that asks for any of its pairs lies under each of them; one that asks for all lies under one of them, the one
//! that the fewest others lie under, and the rest is compared. So a message meets only bindings of which it has at
//! least one pair, however many others there are.

use std::sync::Arc;

use bytes::Bytes;
use imbl::OrdMap;

use crate::hops::{Hop, Hops, Target};
use crate::routes::Routes;
use crate::spec::{HeaderMatch, Mode};
use crate::view::{HeaderValue, View};

/// A name and the value that it has to have, if that matters.
type Pair = (Bytes, Option<HeaderValue>);

#[derive(Debug, Clone)]
pub(crate) struct Headers<T> {
    /// Bindings that ask for all of no pairs.
    always: Hops<T>,
    names: OrdMap<Bytes, Named<T>>,
}

/// What lies under the pairs of one name.
#[derive(Debug, Clone)]
struct Named<T> {
    /// Any value will do.
    present: Bucket<T>,
    values: OrdMap<HeaderValue, Bucket<T>>,
}

/// What lies under one pair.
#[derive(Debug, Clone)]
struct Bucket<T> {
    any: Hops<T>,
    /// By all the pairs that are asked for, sorted.
    all: OrdMap<Arc<[Pair]>, Hops<T>>,
}

impl<T> Default for Headers<T> {
    fn default() -> Self {
        Self {
            always: Hops::None,
            names: OrdMap::new(),
        }
    }
}

impl<T> Default for Named<T> {
    fn default() -> Self {
        Self {
            present: Bucket::default(),
            values: OrdMap::new(),
        }
    }
}

impl<T> Default for Bucket<T> {
    fn default() -> Self {
        Self {
            any: Hops::None,
            all: OrdMap::new(),
        }
    }
}

impl<T: Target> Headers<T> {
    pub(crate) fn bind(&mut self, wanted: &HeaderMatch, hop: Hop<T>) {
        let pairs = sorted(&wanted.pairs);
        match wanted.mode {
            Mode::Any => {
                for pair in &*pairs {
                    self.bucket_or_new(pair).any.add(hop.clone());
                }
            }
            Mode::All => {
                let already = |pair: &&Pair| {
                    self.bucket(pair)
                        .is_some_and(|bucket| bucket.all.contains_key(&pairs))
                };
                let others = |pair: &&Pair| self.bucket(pair).map_or(0, |bucket| bucket.all.len());
                let under = pairs
                    .iter()
                    .find(already)
                    .or_else(|| pairs.iter().min_by_key(others));
                match under {
                    None => self.always.add(hop),
                    Some(pair) => self
                        .bucket_or_new(pair)
                        .all
                        .entry(Arc::clone(&pairs))
                        .or_default()
                        .add(hop),
                }
            }
        }
    }

    pub(crate) fn unbind(&mut self, wanted: &HeaderMatch, hop: &Hop<T>) -> bool {
        let pairs = sorted(&wanted.pairs);
        match wanted.mode {
            Mode::Any => {
                // One without pairs lies nowhere, as it matches nothing.
                let mut found = pairs.is_empty();
                for pair in &*pairs {
                    found |= self.change(pair, |bucket| bucket.any.remove(hop));
                }
                found
            }
            Mode::All if pairs.is_empty() => self.always.remove(hop),
            Mode::All => pairs.iter().any(|pair| {
                self.change(pair, |bucket| {
                    let Some(hops) = bucket.all.get_mut(&pairs) else {
                        return false;
                    };
                    let found = hops.remove(hop);
                    if hops.is_empty() {
                        bucket.all.remove(&pairs);
                    }
                    found
                })
            }),
        }
    }

    pub(crate) fn route(&self, message: &dyn View, routes: &mut Routes<T>) {
        routes.add(&self.always);
        if self.names.is_empty() {
            return;
        }
        let mut given: Vec<(Vec<u8>, HeaderValue)> = Vec::new();
        message.headers(&mut |name, value| given.push((name.to_vec(), value)));
        given.sort_unstable();
        given.dedup_by(|a, b| a.0 == b.0);
        let has = |(name, value): &Pair| {
            let at = given.binary_search_by(|(given, _)| given[..].cmp(name));
            let given = at.ok().and_then(|at| given.get(at));
            given.is_some_and(|(_, given)| value.as_ref().is_none_or(|value| value == given))
        };
        for (name, value) in &given {
            let Some(named) = self.names.get(&name[..]) else {
                continue;
            };
            for bucket in [Some(&named.present), named.values.get(value)]
                .into_iter()
                .flatten()
            {
                routes.add(&bucket.any);
                for (pairs, hops) in &bucket.all {
                    if pairs.iter().all(has) {
                        routes.add(hops);
                    }
                }
            }
        }
    }

    fn bucket(&self, (name, value): &Pair) -> Option<&Bucket<T>> {
        let named = self.names.get(name)?;
        match value {
            None => Some(&named.present),
            Some(value) => named.values.get(value),
        }
    }

    fn bucket_or_new(&mut self, (name, value): &Pair) -> &mut Bucket<T> {
        let named = self.names.entry(name.clone()).or_default();
        match value {
            None => &mut named.present,
            Some(value) => named.values.entry(value.clone()).or_default(),
        }
    }

    /// Takes something out of a bucket, and the bucket away if nothing is left in it.
    fn change(&mut self, (name, value): &Pair, take: impl FnOnce(&mut Bucket<T>) -> bool) -> bool {
        let Some(named) = self.names.get_mut(name) else {
            return false;
        };
        let bucket = match value {
            None => Some(&mut named.present),
            Some(value) => named.values.get_mut(value),
        };
        let Some(bucket) = bucket else { return false };
        let found = take(bucket);
        if bucket.is_empty()
            && let Some(value) = value
        {
            named.values.remove(value);
        }
        if named.present.is_empty() && named.values.is_empty() {
            self.names.remove(name);
        }
        found
    }
}

impl<T: Target> Bucket<T> {
    fn is_empty(&self) -> bool {
        self.any.is_empty() && self.all.is_empty()
    }
}

fn sorted(pairs: &[Pair]) -> Arc<[Pair]> {
    let mut pairs = pairs.to_vec();
    pairs.sort_unstable();
    pairs.dedup();
    pairs.into()
}
