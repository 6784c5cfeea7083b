//! Bindings by headers.
//!
//! A binding that requires any of its pairs is indexed under each of them. One that requires all is indexed
//! under one of them, the least used, and the others are compared. So a message meets only bindings of which
//! it has at least one pair, however many others there are.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use bytes::Bytes;

use crate::hash_trie::HashTrie;
use crate::hops::{Hop, Hops, Target};
use crate::message_view::{HeaderValue, MessageView};
use crate::routes::Routes;
use crate::spec::{HeaderMatch, Mode};

/// A header name and the required value, if any.
type Pair = (Bytes, Option<HeaderValue>);

#[derive(Debug, Clone)]
pub(crate) struct Headers<T> {
    /// Bindings that require all of no pairs.
    always: Hops<T>,
    names: HashTrie<Arc<NameIndex<T>>>,
    /// Random per process, so that clients cannot choose colliding pairs.
    hash: RandomState,
}

/// Bindings indexed under pairs of one name.
#[derive(Debug, Clone)]
struct NameIndex<T> {
    name: Bytes,
    /// Pairs that accept any value.
    present: Bucket<T>,
    values: HashTrie<Arc<ValueIndex<T>>>,
}

#[derive(Debug, Clone)]
struct ValueIndex<T> {
    value: HeaderValue,
    bucket: Bucket<T>,
}

/// Bindings indexed under one pair.
#[derive(Debug, Clone)]
struct Bucket<T> {
    any: Hops<T>,
    all: HashTrie<Arc<AllPairs<T>>>,
}

/// Bindings that require all of the same pairs.
#[derive(Debug, Clone)]
struct AllPairs<T> {
    /// Sorted.
    pairs: Arc<[Pair]>,
    hops: Hops<T>,
}

impl<T> Default for Headers<T> {
    fn default() -> Self {
        Self {
            always: Hops::None,
            names: HashTrie::default(),
            hash: RandomState::new(),
        }
    }
}

impl<T> Default for Bucket<T> {
    fn default() -> Self {
        Self {
            any: Hops::None,
            all: HashTrie::default(),
        }
    }
}

impl<T: Target> Headers<T> {
    pub(crate) fn bind(&mut self, wanted: &HeaderMatch, hop: Hop<T>) {
        let pairs = sorted(&wanted.pairs);
        match wanted.mode {
            Mode::Any => {
                for pair in &*pairs {
                    self.change_or_new(pair, |bucket| bucket.any.add(hop.clone()));
                }
            }
            Mode::All => {
                let hash = self.hash.hash_one(&pairs);
                let already = |pair: &&Pair| {
                    self.bucket(pair)
                        .is_some_and(|bucket| bucket.all.get(hash, |all| all.pairs == pairs).is_some())
                };
                let others = |pair: &&Pair| self.bucket(pair).map_or(0, |bucket| bucket.all.len());
                let under = pairs
                    .iter()
                    .find(already)
                    .or_else(|| pairs.iter().min_by_key(others));
                match under {
                    None => self.always.add(hop),
                    Some(pair) => self.change_or_new(pair, |bucket| bucket.add(hash, &pairs, hop)),
                }
            }
        }
    }

    pub(crate) fn unbind(&mut self, wanted: &HeaderMatch, hop: &Hop<T>) -> bool {
        let pairs = sorted(&wanted.pairs);
        match wanted.mode {
            Mode::Any => {
                // A binding without pairs matches nothing and is not indexed.
                let mut found = pairs.is_empty();
                for pair in &*pairs {
                    found |= self.change(pair, |bucket| bucket.any.remove(hop));
                }
                found
            }
            Mode::All if pairs.is_empty() => self.always.remove(hop),
            Mode::All => {
                let hash = self.hash.hash_one(&pairs);
                pairs
                    .iter()
                    .any(|pair| self.change(pair, |bucket| bucket.remove(hash, &pairs, hop)))
            }
        }
    }

    pub(crate) fn route(&self, message: &dyn MessageView, routes: &mut Routes<T>) {
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
            let Some(named) = self.named(name) else {
                continue;
            };
            for bucket in [Some(&named.present), named.valued(value, &self.hash)]
                .into_iter()
                .flatten()
            {
                routes.add(&bucket.any);
                bucket.all.each(&mut |all| {
                    if all.pairs.iter().all(has) {
                        routes.add(&all.hops);
                    }
                });
            }
        }
    }

    fn named(&self, name: &[u8]) -> Option<&NameIndex<T>> {
        let named = self
            .names
            .get(self.hash.hash_one(name), |named| named.name == *name);
        named.map(|named| &**named)
    }

    fn bucket(&self, (name, value): &Pair) -> Option<&Bucket<T>> {
        let named = self.named(name)?;
        match value {
            None => Some(&named.present),
            Some(value) => named.valued(value, &self.hash),
        }
    }

    fn change_or_new(&mut self, (name, value): &Pair, put: impl FnOnce(&mut Bucket<T>)) {
        let hash = self.hash.hash_one(&**name);
        let is = |named: &Arc<NameIndex<T>>| named.name == *name;
        if self.names.get(hash, is).is_none() {
            self.names.insert(
                hash,
                Arc::new(NameIndex {
                    name: name.clone(),
                    present: Bucket::default(),
                    values: HashTrie::default(),
                }),
            );
        }
        let Some(named) = self.names.get_mut(hash, is).map(Arc::make_mut) else {
            return;
        };
        let Some(value) = value else {
            return put(&mut named.present);
        };
        let hash = self.hash.hash_one(value);
        if let Some(valued) = named.values.get_mut(hash, |valued| valued.value == *value) {
            return put(&mut Arc::make_mut(valued).bucket);
        }
        let mut bucket = Bucket::default();
        put(&mut bucket);
        let value = value.clone();
        named.values.insert(hash, Arc::new(ValueIndex { value, bucket }));
    }

    /// Removes from a bucket, and removes the bucket if it is empty then.
    fn change(&mut self, (name, value): &Pair, take: impl FnOnce(&mut Bucket<T>) -> bool) -> bool {
        let hash = self.hash.hash_one(&**name);
        let is = |named: &Arc<NameIndex<T>>| named.name == *name;
        let Some(named) = self.names.get_mut(hash, is).map(Arc::make_mut) else {
            return false;
        };
        let found = match value {
            None => take(&mut named.present),
            Some(value) => {
                let hash = self.hash.hash_one(value);
                let is = |valued: &Arc<ValueIndex<T>>| valued.value == *value;
                let Some(valued) = named.values.get_mut(hash, is).map(Arc::make_mut) else {
                    return false;
                };
                let found = take(&mut valued.bucket);
                if valued.bucket.is_empty() {
                    named.values.remove(hash, is);
                }
                found
            }
        };
        if named.present.is_empty() && named.values.is_empty() {
            self.names.remove(hash, is);
        }
        found
    }
}

impl<T: Target> NameIndex<T> {
    fn valued(&self, value: &HeaderValue, hash: &RandomState) -> Option<&Bucket<T>> {
        if self.values.is_empty() {
            return None;
        }
        let valued = self
            .values
            .get(hash.hash_one(value), |valued| valued.value == *value);
        valued.map(|valued| &valued.bucket)
    }
}

impl<T: Target> Bucket<T> {
    fn is_empty(&self) -> bool {
        self.any.is_empty() && self.all.is_empty()
    }

    /// Adds a binding that requires all of `pairs`; `hash` is their hash.
    fn add(&mut self, hash: u64, pairs: &Arc<[Pair]>, hop: Hop<T>) {
        match self.all.get_mut(hash, |all| all.pairs == *pairs) {
            Some(all) => Arc::make_mut(all).hops.add(hop),
            None => self.all.insert(
                hash,
                Arc::new(AllPairs {
                    pairs: Arc::clone(pairs),
                    hops: Hops::One(hop),
                }),
            ),
        }
    }

    fn remove(&mut self, hash: u64, pairs: &Arc<[Pair]>, hop: &Hop<T>) -> bool {
        let is = |all: &Arc<AllPairs<T>>| all.pairs == *pairs;
        let Some(all) = self.all.get_mut(hash, is) else {
            return false;
        };
        let hops = &mut Arc::make_mut(all).hops;
        let found = hops.remove(hop);
        if hops.is_empty() {
            self.all.remove(hash, is);
        }
        found
    }
}

fn sorted(pairs: &[Pair]) -> Arc<[Pair]> {
    let mut pairs = pairs.to_vec();
    pairs.sort_unstable();
    pairs.dedup();
    pairs.into()
}
