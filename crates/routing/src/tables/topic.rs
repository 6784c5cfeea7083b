//! Bindings by patterns of words, as a trie.
//!
//! A pattern and a routing key are words between dots; the empty text has no word, `a.` has two. `*` is one word,
//! `#` is any number of words, also none. The trie has one step per word of the pattern:
//!
//! ```text
//! a.*      root ─a─> ○ ─*─> ● hops
//! a.b      root ─a─> ○ ─b─> ● hops
//! a.#.b    root ─a─> ○ ─#─> ⟲ ─b─> ● hops
//! ```
//!
//! A key is followed word by word with the set of all nodes that its words so far can lead to, each once: so the cost is
//! at most words x nodes that match a part of the key, whatever the patterns are. (Trying one way after the other would
//! take exponential time for `#.a.#.a.#.a`.) Before it enters the trie, a run of `#` and `*` in a pattern is ordered
//! to stars first and one `#` behind them, which matches the same keys; so behind a `#` only words follow.

use std::collections::HashSet;
use std::sync::Arc;

use imbl::OrdMap;
use smallvec::SmallVec;

use crate::hops::{Hop, Hops, Target};
use crate::routes::Routes;

#[derive(Debug, Clone)]
pub(crate) struct Topic<T> {
    root: Arc<Node<T>>,
}

#[derive(Debug, Clone)]
struct Node<T> {
    /// Of patterns that end here.
    hops: Hops<T>,
    words: Words<T>,
    /// Behind `*`.
    any: Option<Arc<Self>>,
    /// Behind `#`.
    rest: Option<Arc<Self>>,
}

/// The steps by words. Most nodes have one or none.
#[derive(Debug, Clone)]
enum Words<T> {
    None,
    One(Arc<[u8]>, Arc<Node<T>>),
    Many(OrdMap<Arc<[u8]>, Arc<Node<T>>>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step<'a> {
    Word(&'a [u8]),
    Any,
    Rest,
}

type Steps<'a> = SmallVec<[Step<'a>; 16]>;

impl<T> Default for Topic<T> {
    fn default() -> Self {
        Self { root: Arc::default() }
    }
}

impl<T> Default for Node<T> {
    fn default() -> Self {
        Self {
            hops: Hops::None,
            words: Words::None,
            any: None,
            rest: None,
        }
    }
}

impl<T: Target> Topic<T> {
    pub(crate) fn bind(&mut self, pattern: &[u8], hop: Hop<T>) {
        let mut node = &mut self.root;
        for step in steps(pattern) {
            node = Arc::make_mut(node).step_or_new(step);
        }
        Arc::make_mut(node).hops.add(hop);
    }

    pub(crate) fn unbind(&mut self, pattern: &[u8], hop: &Hop<T>) -> bool {
        remove(&mut self.root, &steps(pattern), hop)
    }

    /// Adds the hops of all patterns that match a key.
    pub(crate) fn route(&self, key: &[u8], routes: &mut Routes<T>) {
        let mut here = Here::default();
        here.reach(&self.root);
        for word in words(key) {
            here.follow(word);
            if here.is_empty() {
                return;
            }
        }
        for node in here.nodes.iter().chain(&here.staying) {
            routes.add(&node.hops);
        }
    }
}

/// The nodes that the words so far can lead to.
struct Here<'a, T> {
    nodes: SmallVec<[&'a Node<T>; 16]>,
    /// Those behind a `#`: whatever word comes, they stay.
    staying: SmallVec<[&'a Node<T>; 8]>,
    /// The same as a set, once they are too many to look through.
    known: HashSet<*const Node<T>>,
}

const LOOKED_THROUGH_MAX: usize = 32;

impl<T> Default for Here<'_, T> {
    fn default() -> Self {
        Self {
            nodes: SmallVec::new(),
            staying: SmallVec::new(),
            known: HashSet::new(),
        }
    }
}

impl<'a, T: Target> Here<'a, T> {
    fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.staying.is_empty()
    }

    /// Takes every way that a word allows.
    fn follow(&mut self, word: &[u8]) {
        let nodes = std::mem::take(&mut self.nodes);
        let staying = self.staying.len();
        for node in nodes {
            self.step(node, word);
        }
        for index in 0..staying {
            if let Some(node) = self.staying.get(index).copied() {
                self.step(node, word);
            }
        }
    }

    fn step(&mut self, node: &'a Node<T>, word: &[u8]) {
        if let Some(next) = node.words.get(word) {
            self.reach(next);
        }
        if let Some(next) = &node.any {
            self.reach(next);
        }
    }

    /// A node has one way that leads to it, so it is reached once per word; only what stays can be there already.
    fn reach(&mut self, node: &'a Node<T>) {
        self.nodes.push(node);
        if let Some(rest) = &node.rest
            && self.is_new(rest)
        {
            self.staying.push(rest);
        }
    }

    fn is_new(&mut self, rest: &'a Arc<Node<T>>) -> bool {
        let rest = Arc::as_ptr(rest);
        if self.staying.len() < LOOKED_THROUGH_MAX {
            return !self.staying.iter().any(|node| std::ptr::eq(*node, rest));
        }
        if self.known.is_empty() {
            self.known
                .extend(self.staying.iter().map(|node| std::ptr::from_ref(*node)));
        }
        self.known.insert(rest)
    }
}

impl<T: Target> Node<T> {
    fn step_or_new(&mut self, step: Step<'_>) -> &mut Arc<Self> {
        match step {
            Step::Word(word) => self.words.get_or_new(word),
            Step::Any => self.any.get_or_insert_default(),
            Step::Rest => self.rest.get_or_insert_default(),
        }
    }

    fn is_empty(&self) -> bool {
        self.hops.is_empty() && matches!(self.words, Words::None) && self.any.is_none() && self.rest.is_none()
    }
}

/// Removes a binding and the nodes that nothing needs any more.
fn remove<T: Target>(node: &mut Arc<Node<T>>, steps: &[Step<'_>], hop: &Hop<T>) -> bool {
    let node = Arc::make_mut(node);
    let Some((step, behind)) = steps.split_first() else {
        return node.hops.remove(hop);
    };
    let next = match step {
        Step::Word(word) => node.words.get_mut(word),
        Step::Any => node.any.as_mut(),
        Step::Rest => node.rest.as_mut(),
    };
    let Some(next) = next else { return false };
    let found = remove(next, behind, hop);
    if next.is_empty() {
        match step {
            Step::Word(word) => node.words.remove(word),
            Step::Any => node.any = None,
            Step::Rest => node.rest = None,
        }
    }
    found
}

impl<T: Target> Words<T> {
    fn get(&self, word: &[u8]) -> Option<&Arc<Node<T>>> {
        match self {
            Self::None => None,
            Self::One(only, node) => (**only == *word).then_some(node),
            Self::Many(many) => many.get(word),
        }
    }

    fn get_mut(&mut self, word: &[u8]) -> Option<&mut Arc<Node<T>>> {
        match self {
            Self::None => None,
            Self::One(only, node) => (**only == *word).then_some(node),
            Self::Many(many) => many.get_mut(word),
        }
    }

    fn get_or_new(&mut self, word: &[u8]) -> &mut Arc<Node<T>> {
        if let Self::None = self {
            *self = Self::One(Arc::from(word), Arc::default());
        } else if let Self::One(only, node) = self
            && **only != *word
        {
            *self = Self::Many(OrdMap::unit(Arc::clone(only), Arc::clone(node)));
        }
        match self {
            Self::None => unreachable!("there is a word by now"),
            Self::One(_, node) => node,
            Self::Many(many) => many.entry(Arc::from(word)).or_default(),
        }
    }

    fn remove(&mut self, word: &[u8]) {
        match self {
            Self::None => {}
            Self::One(only, _) => {
                if **only == *word {
                    *self = Self::None;
                }
            }
            Self::Many(many) => {
                many.remove(word);
                if let (1, Some((only, node))) = (many.len(), many.iter().next()) {
                    *self = Self::One(Arc::clone(only), Arc::clone(node));
                }
            }
        }
    }
}

/// The words of a text. The empty text has none.
fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let words = (!text.is_empty()).then(|| text.split(|byte| *byte == b'.'));
    words.into_iter().flatten()
}

/// The way of a pattern through the trie.
fn steps(pattern: &[u8]) -> Steps<'_> {
    let mut steps = Steps::new();
    let mut rest = false;
    for word in words(pattern) {
        match word {
            b"#" => rest = true,
            b"*" => steps.push(Step::Any),
            _ => {
                if std::mem::take(&mut rest) {
                    steps.push(Step::Rest);
                }
                steps.push(Step::Word(word));
            }
        }
    }
    if rest {
        steps.push(Step::Rest);
    }
    steps
}
