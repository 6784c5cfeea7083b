//! Bindings by patterns of words, as a trie.
//!
//! Patterns and routing keys consist of words separated by dots; the empty text has no word, `a.` has two.
//! `*` matches one word, `#` any number of words, including none. The trie has one step per word of the
//! pattern, up to the point where a pattern is alone: from there on it is a leaf, which holds the rest as
//! text.
//!
//! ```text
//! a.*          root ─a.*─> ■ hops
//! a.*, a.b.c   root ─a─> ○ ─*─> ● hops
//!                        ○ ─b.c─> ■ hops
//! a.#.b        root ─a─> ○ ─#─> ⟲ ─b─> ■ hops
//! ```
//!
//! A key is followed word by word with the set of all nodes that its words so far lead to, each once. The
//! cost is at most words x nodes that match a part of the key, whatever the patterns are. (Trying one way
//! after the other would take exponential time for `#.a.#.a.#.a`.) Before insertion, a run of `#` and `*` in
//! a pattern is normalised to its stars followed by one `#`, which matches the same keys; so only words
//! follow a `#`. A leaf begins with a word and has `#` at its end only, so it is compared in one pass.
//!
//! Words are found by hash. The shape of the trie depends only on the current patterns, not on their history.
//!
//! Length: one trie; insertion, removal and matching share its invariants.

use std::cell::OnceCell;
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use smallvec::SmallVec;

use super::keyed::{Text, TextHops};
use crate::cache_prefetch;
use crate::hash_trie::{HashTrie, PrefetchedSlot};
use crate::hops::{Hop, Hops, Target};
use crate::routes::Routes;

#[derive(Debug, Clone)]
pub(crate) struct Topic<T> {
    root: Node<T>,
    /// Random per process, so that clients cannot choose colliding words.
    hash: RandomState,
}

#[derive(Debug, Clone)]
struct Node<T> {
    /// Hops of patterns that end here.
    hops: Hops<T>,
    words: Words<T>,
    /// Node behind `*`.
    any: Option<Arc<Self>>,
    /// Node behind `#`.
    rest: Option<Arc<Self>>,
}

/// Children by word. Most nodes have one or none.
#[derive(Debug, Clone)]
enum Words<T> {
    None,
    One(Child<T>),
    Many(HashTrie<Child<T>>),
}

/// Patterns that begin with one word.
#[derive(Debug, Clone)]
pub(super) enum Child<T> {
    /// One pattern: the word and all that follows.
    Leaf(Arc<TextHops<T>>),
    Node(Arc<Continuation<T>>),
}

/// Patterns that continue behind a word.
#[derive(Debug, Clone)]
pub(super) struct Continuation<T> {
    word: Text,
    node: Node<T>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PatternWord<'a> {
    Word(&'a [u8]),
    Any,
    Rest,
}

type PatternWords<'a> = SmallVec<[PatternWord<'a>; 16]>;

impl<T> Default for Topic<T> {
    fn default() -> Self {
        Self {
            root: Node::default(),
            hash: RandomState::new(),
        }
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
        self.root.bind(&steps(pattern), hop, &self.hash);
    }

    pub(crate) fn unbind(&mut self, pattern: &[u8], hop: &Hop<T>) -> bool {
        self.root.unbind(&steps(pattern), hop, &self.hash)
    }

    /// Prefetches the first look-up of a key that is in a large table; `None` if there is none.
    pub(super) fn prefetch(&self, key: &[u8]) -> Option<PrefetchedSlot<'_, Child<T>>> {
        let mut node = &self.root;
        for word in key.split(|byte| *byte == b'.') {
            match &node.words {
                Words::One(Child::Node(next)) if *next.word == *word => node = &next.node,
                Words::Many(many) => return many.prefetch(self.hash.hash_one(word)),
                Words::One(_) | Words::None => return None,
            }
        }
        None
    }

    /// Adds the hops of all patterns that match a key.
    pub(crate) fn route(&self, key: &[u8], routes: &mut Routes<T>) {
        let mut here = ActiveNodes::default();
        here.reach(&self.root);
        let mut left = (!key.is_empty()).then_some(key);
        while let Some(text) = left {
            let mut parts = text.splitn(2, |byte| *byte == b'.');
            let word = Word {
                text: parts.next().unwrap_or_default(),
                and_behind: text,
                hash: OnceCell::new(),
                by: &self.hash,
            };
            here.follow(&word, routes);
            if here.is_empty() {
                return;
            }
            left = parts.next();
        }
        for node in here.nodes.iter().chain(&here.staying) {
            routes.add(&node.hops);
        }
    }
}

/// A word of a key.
struct Word<'a> {
    text: &'a [u8],
    /// The key from this word on.
    and_behind: &'a [u8],
    /// Computed once, and only if a node has many words.
    hash: OnceCell<u64>,
    by: &'a RandomState,
}

impl<'a> Word<'a> {
    fn of(text: &'a [u8], by: &'a RandomState) -> Self {
        Self {
            text,
            and_behind: text,
            hash: OnceCell::new(),
            by,
        }
    }

    fn hash(&self) -> u64 {
        *self.hash.get_or_init(|| self.by.hash_one(self.text))
    }
}

/// Nodes that the words so far lead to.
struct ActiveNodes<'a, T> {
    nodes: SmallVec<[&'a Node<T>; 16]>,
    /// Nodes behind a `#`: they stay for every further word.
    staying: SmallVec<[&'a Node<T>; 8]>,
    /// The staying nodes as a set, once there are too many to compare.
    known: HashSet<*const Node<T>>,
}

const LOOKED_THROUGH_MAX: usize = 32;

impl<T> Default for ActiveNodes<'_, T> {
    fn default() -> Self {
        Self {
            nodes: SmallVec::new(),
            staying: SmallVec::new(),
            known: HashSet::new(),
        }
    }
}

impl<'a, T: Target> ActiveNodes<'a, T> {
    fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.staying.is_empty()
    }

    /// Takes every step that a word allows.
    fn follow(&mut self, word: &Word<'_>, routes: &mut Routes<T>) {
        let nodes = std::mem::take(&mut self.nodes);
        let staying = self.staying.len();
        for node in nodes {
            self.step(node, word, routes);
        }
        for index in 0..staying {
            if let Some(node) = self.staying.get(index).copied() {
                self.step(node, word, routes);
            }
        }
    }

    fn step(&mut self, node: &'a Node<T>, word: &Word<'_>, routes: &mut Routes<T>) {
        match node.words.get(word) {
            Some(Child::Leaf(leaf)) if matches(&leaf.text, word.and_behind) => routes.add(&leaf.hops),
            Some(Child::Leaf(_)) | None => {}
            Some(Child::Node(next)) => self.reach(&next.node),
        }
        if let Some(next) = &node.any {
            self.reach(next);
        }
    }

    /// Adds a node. Each node has one parent, so it is reached once per word; only staying nodes can be
    /// present already.
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
    fn bind(&mut self, steps: &[PatternWord<'_>], hop: Hop<T>, hash: &RandomState) {
        let mut node = self;
        let mut steps = steps;
        while let Some((step, behind)) = steps.split_first() {
            node = match step {
                PatternWord::Any => Arc::make_mut(node.any.get_or_insert_default()),
                PatternWord::Rest => Arc::make_mut(node.rest.get_or_insert_default()),
                PatternWord::Word(word) => {
                    let word = Word::of(word, hash);
                    if node.words.get(&word).is_none() {
                        if is_leaf(steps) {
                            let (text, hops) = (text(steps), Hops::One(hop));
                            node.words
                                .insert(Child::Leaf(Arc::new(TextHops { text, hops })), hash);
                            return;
                        }
                        node.words.insert(Child::behind(&word, Self::default()), hash);
                    }
                    let Some(child) = node.words.get_mut(&word) else {
                        return;
                    };
                    if let Child::Leaf(leaf) = child {
                        if leaf.text == text(steps) {
                            return Arc::make_mut(leaf).hops.add(hop);
                        }
                        // The pattern is no longer alone.
                        let node = Self::of_leaf(leaf);
                        *child = Child::behind(&word, node);
                    }
                    match child {
                        Child::Node(next) => &mut Arc::make_mut(next).node,
                        Child::Leaf(_) => return,
                    }
                }
            };
            steps = behind;
        }
        node.hops.add(hop);
    }

    /// Builds the node behind the word of a leaf.
    fn of_leaf(leaf: &TextHops<T>) -> Self {
        let steps = steps(&leaf.text);
        Self::of(steps.get(1..).unwrap_or_default(), leaf.hops.clone())
    }

    /// Builds a node with one pattern.
    fn of(steps: &[PatternWord<'_>], hops: Hops<T>) -> Self {
        let mut node = Self::default();
        match steps.split_first() {
            None => node.hops = hops,
            Some((PatternWord::Any, behind)) => node.any = Some(Arc::new(Self::of(behind, hops))),
            Some((PatternWord::Rest, behind)) => node.rest = Some(Arc::new(Self::of(behind, hops))),
            Some((PatternWord::Word(_), _)) => {
                let text = text(steps);
                node.words = Words::One(Child::Leaf(Arc::new(TextHops { text, hops })));
            }
        }
        node
    }

    /// Removes a binding, and the nodes that become empty.
    fn unbind(&mut self, steps: &[PatternWord<'_>], hop: &Hop<T>, hash: &RandomState) -> bool {
        let Some((step, behind)) = steps.split_first() else {
            return self.hops.remove(hop);
        };
        match step {
            PatternWord::Any => unbind_behind(&mut self.any, behind, hop, hash),
            PatternWord::Rest => unbind_behind(&mut self.rest, behind, hop, hash),
            PatternWord::Word(word) => {
                let word = Word::of(word, hash);
                let Some(child) = self.words.get_mut(&word) else {
                    return false;
                };
                let (found, is_empty) = match child {
                    Child::Leaf(leaf) if leaf.text == text(steps) => {
                        let hops = &mut Arc::make_mut(leaf).hops;
                        (hops.remove(hop), hops.is_empty())
                    }
                    Child::Leaf(_) => (false, false),
                    Child::Node(next) => {
                        let node = &mut Arc::make_mut(next).node;
                        (node.unbind(behind, hop, hash), node.is_empty())
                    }
                };
                if is_empty {
                    self.words.remove(&word);
                } else if found {
                    child.shrink();
                }
                found
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.hops.is_empty() && matches!(self.words, Words::None) && self.any.is_none() && self.rest.is_none()
    }

    /// Returns the text, from a dot on, and the hops of the only pattern, if it may be the end of a leaf.
    fn sole(&self) -> Option<(Text, &Hops<T>)> {
        let step = |step: &[u8], behind: &[u8]| [b".", step, behind].concat().into();
        match (&self.words, &self.any, &self.rest) {
            (Words::None, None, None) => Some((Text::new(), &self.hops)),
            _ if !self.hops.is_empty() => None,
            (Words::One(Child::Leaf(leaf)), None, None) => Some((step(&leaf.text, b""), &leaf.hops)),
            (Words::None, Some(any), None) => {
                let (behind, hops) = any.sole()?;
                Some((step(b"*", &behind), hops))
            }
            (Words::None, None, Some(rest)) => {
                let (behind, hops) = rest.sole()?;
                behind.is_empty().then(|| (step(b"#", b""), hops))
            }
            _ => None,
        }
    }
}

fn unbind_behind<T: Target>(
    next: &mut Option<Arc<Node<T>>>,
    steps: &[PatternWord<'_>],
    hop: &Hop<T>,
    hash: &RandomState,
) -> bool {
    let Some(node) = next else { return false };
    let node = Arc::make_mut(node);
    let found = node.unbind(steps, hop, hash);
    if node.is_empty() {
        *next = None;
    }
    found
}

impl<T> Child<T> {
    /// Prefetches the node or leaf behind it.
    pub(super) fn prefetch(&self) {
        match self {
            Self::Leaf(leaf) => cache_prefetch::prefetch(&**leaf),
            Self::Node(behind) => cache_prefetch::prefetch(&**behind),
        }
    }
}

impl<T: Target> Child<T> {
    fn behind(word: &Word<'_>, node: Node<T>) -> Self {
        let word = Text::from_slice(word.text);
        Self::Node(Arc::new(Continuation { word, node }))
    }

    fn word(&self) -> &[u8] {
        match self {
            Self::Leaf(leaf) => leaf.text.split(|byte| *byte == b'.').next().unwrap_or_default(),
            Self::Node(behind) => &behind.word,
        }
    }

    /// Turns it into a leaf if one pattern is left that can be one.
    fn shrink(&mut self) {
        let Self::Node(behind) = self else { return };
        let Some((tail, hops)) = behind.node.sole() else {
            return;
        };
        let mut text = behind.word.clone();
        text.extend_from_slice(&tail);
        let hops = hops.clone();
        *self = Self::Leaf(Arc::new(TextHops { text, hops }));
    }
}

impl<T: Target> Words<T> {
    fn get(&self, word: &Word<'_>) -> Option<&Child<T>> {
        match self {
            Self::None => None,
            Self::One(only) => (only.word() == word.text).then_some(only),
            Self::Many(many) => many.get(word.hash(), |child| child.word() == word.text),
        }
    }

    fn get_mut(&mut self, word: &Word<'_>) -> Option<&mut Child<T>> {
        match self {
            Self::None => None,
            Self::One(only) => (only.word() == word.text).then_some(only),
            Self::Many(many) => many.get_mut(word.hash(), |child| child.word() == word.text),
        }
    }

    /// Adds a child whose word is not present yet.
    fn insert(&mut self, child: Child<T>, hash: &RandomState) {
        let hash_of = |child: &Child<T>| hash.hash_one(child.word());
        match self {
            Self::None => *self = Self::One(child),
            Self::One(only) => {
                let mut many = HashTrie::default();
                many.insert(hash_of(only), only.clone());
                many.insert(hash_of(&child), child);
                *self = Self::Many(many);
            }
            Self::Many(many) => many.insert(hash_of(&child), child),
        }
    }

    fn remove(&mut self, word: &Word<'_>) {
        match self {
            Self::None => {}
            Self::One(only) => {
                if only.word() == word.text {
                    *self = Self::None;
                }
            }
            Self::Many(many) => {
                many.remove(word.hash(), |child| child.word() == word.text);
                if let (1, Some(only)) = (many.len(), many.any()) {
                    *self = Self::One(only.clone());
                }
            }
        }
    }
}

/// Returns true if a leaf matches a key; both begin with the same word.
fn matches(leaf: &[u8], key: &[u8]) -> bool {
    let mut words = key.split(|byte| *byte == b'.');
    for step in leaf.split(|byte| *byte == b'.') {
        match (step, words.next()) {
            // `#` is the last word of a leaf.
            (b"#", _) => return true,
            (b"*", Some(_)) => {}
            (step, Some(word)) if step == word => {}
            _ => return false,
        }
    }
    words.next().is_none()
}

/// Returns true if these steps, the first of which is a word, can be a leaf.
fn is_leaf(steps: &[PatternWord<'_>]) -> bool {
    let before_last = steps.split_last().map(|(_, before)| before);
    !before_last.unwrap_or_default().contains(&PatternWord::Rest)
}

/// Joins steps to a text that parses to the same steps.
fn text(steps: &[PatternWord<'_>]) -> Text {
    let mut text = Text::new();
    for (index, step) in steps.iter().enumerate() {
        if index > 0 {
            text.push(b'.');
        }
        text.extend_from_slice(match step {
            PatternWord::Word(word) => word,
            PatternWord::Any => b"*",
            PatternWord::Rest => b"#",
        });
    }
    text
}

/// Iterates over the words of a text. The empty text has none.
fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let words = (!text.is_empty()).then(|| text.split(|byte| *byte == b'.'));
    words.into_iter().flatten()
}

/// Returns the steps of a pattern through the trie.
fn steps(pattern: &[u8]) -> PatternWords<'_> {
    let mut steps = PatternWords::new();
    let mut rest = false;
    for word in words(pattern) {
        match word {
            b"#" => rest = true,
            b"*" => steps.push(PatternWord::Any),
            _ => {
                if std::mem::take(&mut rest) {
                    steps.push(PatternWord::Rest);
                }
                steps.push(PatternWord::Word(word));
            }
        }
    }
    if rest {
        steps.push(PatternWord::Rest);
    }
    steps
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Prints the whole trie, to compare shapes.
    fn shape(node: &Node<u32>) -> String {
        let mut words = Vec::new();
        let mut word = |child: &Child<u32>| {
            words.push(match child {
                Child::Leaf(leaf) => format!("{}={:?}", String::from_utf8_lossy(&leaf.text), leaf.hops),
                Child::Node(next) => format!("{}{}", String::from_utf8_lossy(&next.word), shape(&next.node)),
            });
        };
        match &node.words {
            Words::None => {}
            Words::One(only) => word(only),
            Words::Many(many) => many.each(&mut |child| word(child)),
        }
        words.sort_unstable();
        let behind = |next: &Option<Arc<Node<u32>>>| next.as_deref().map(shape).unwrap_or_default();
        let (any, rest) = (behind(&node.any), behind(&node.rest));
        format!("({:?} [{}] *{any} #{rest})", node.hops, words.join(", "))
    }

    fn pattern() -> impl Strategy<Value = String> {
        let word = prop::sample::select(vec!["a", "b", "", "*", "#", "c"]);
        prop::collection::vec(word, 0..6).prop_map(|words| words.join("."))
    }

    proptest! {
        #[test]
        fn what_came_and_went_leaves_no_trace(
            stays in prop::collection::vec((pattern(), 0u32..4), 0..12),
            goes in prop::collection::vec((pattern(), 0u32..4), 0..12),
            goes_first: bool,
        ) {
            let mut table = Topic::default();
            let mut untouched = Topic::default();
            let lists = if goes_first { [&goes, &stays] } else { [&stays, &goes] };
            for (pattern, target) in lists.into_iter().flatten() {
                table.bind(pattern.as_bytes(), Hop::Target(*target));
            }
            for (pattern, target) in &goes {
                prop_assert!(table.unbind(pattern.as_bytes(), &Hop::Target(*target)));
            }
            for (pattern, target) in &stays {
                untouched.bind(pattern.as_bytes(), Hop::Target(*target));
            }
            prop_assert_eq!(shape(&table.root), shape(&untouched.root));
        }
    }

    #[test]
    fn a_pattern_that_is_alone_is_one_leaf() {
        let mut table = Topic::default();
        table.bind(b"device.7.*.#.*", Hop::Target(1));
        assert_eq!(shape(&table.root), "(0 hops [device.7.*.*.#=1 hops] * #)");
        table.bind(b"device.8", Hop::Target(1));
        assert_eq!(
            shape(&table.root),
            "(0 hops [device(0 hops [7.*.*.#=1 hops, 8=1 hops] * #)] * #)"
        );
    }

    #[test]
    fn a_leaf_matches_what_its_steps_say() {
        for (leaf, key, expected) in [
            ("a", "a", true),
            ("a", "a.", false),
            ("a.", "a.", true),
            ("a.*", "a.", true),
            ("a.*", "a", false),
            ("a.#", "a", true),
            ("a.#", "a..", true),
            ("a.*.#", "a", false),
            ("a.*.#", "a.b", true),
            (".b", ".b", true),
            ("a.b", "a.c", false),
            ("a.b.c", "a.b", false),
        ] {
            assert_eq!(matches(leaf.as_bytes(), key.as_bytes()), expected, "{leaf} {key}");
        }
    }
}
