//! Subscriptions of members: topic names, and a pattern of names.
//!
//! Most members of a group want the same, so equal subscriptions are kept, and resolved to topics, once.

use std::collections::BTreeMap;

use regex::{Regex, RegexBuilder};
use stafett_topics::{TopicShape, TopicSource, is_internal};

/// Bound on the length of a pattern, in bytes.
pub(crate) const PATTERN_BYTES_MAX: usize = 4096;
/// Bound on the memory of a compiled pattern, in bytes.
const PATTERN_MEMORY_MAX: usize = 1 << 20;
/// Typical memory of a compiled pattern, in bytes.
const PATTERN_BYTES: usize = 64 << 10;
/// Bound on the nesting of a pattern.
const PATTERN_NESTING_MAX: u32 = 50;

/// Subscription of a member.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Subscription {
    /// Topic names, sorted, without duplicates.
    names: Box<[Box<str>]>,
    pattern: Option<Box<str>>,
}

/// Refusal of a pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    #[error("a pattern is {0} bytes long: at most {PATTERN_BYTES_MAX} are allowed")]
    TooLong(usize),
    #[error("{0}")]
    Malformed(Box<str>),
}

impl Subscription {
    /// Creates a subscription. An empty pattern counts as none.
    pub fn new(names: impl IntoIterator<Item = Box<str>>, pattern: Option<Box<str>>) -> Self {
        let mut names: Vec<_> = names.into_iter().collect();
        names.sort_unstable();
        names.dedup();
        Self {
            names: names.into(),
            pattern: pattern.filter(|pattern| !pattern.is_empty()),
        }
    }

    pub fn names(&self) -> &[Box<str>] {
        &self.names
    }

    pub fn pattern(&self) -> Option<&str> {
        self.pattern.as_deref()
    }

    /// Returns its approximate memory, in bytes.
    fn bytes(&self) -> usize {
        let names = self.names.iter().map(|name| name.len() + size_of::<Box<str>>());
        names.sum::<usize>() + self.pattern().map_or(0, |pattern| pattern.len() + PATTERN_BYTES)
    }
}

/// A subscription shared by members, with the topics that it resolves to.
#[derive(Debug)]
pub(crate) struct Interest {
    pub subscription: Subscription,
    regex: Option<Regex>,
    pub members: usize,
    /// Memory of the subscription, in bytes.
    subscription_bytes: usize,
    /// Matching topics, by name.
    pub topics: BTreeMap<Box<str>, TopicShape>,
}

impl Interest {
    /// Creates an interest, without topics yet.
    pub(super) fn new(subscription: Subscription) -> Result<Self, PatternError> {
        let regex = subscription.pattern().map(compile).transpose()?;
        Ok(Self {
            subscription_bytes: subscription.bytes(),
            subscription,
            regex,
            members: 0,
            topics: BTreeMap::new(),
        })
    }

    /// Resolves the whole subscription.
    pub(crate) fn resolve(&mut self, source: &dyn TopicSource) {
        self.topics.clear();
        if let Some(regex) = &self.regex {
            source.each(&mut |name, shape| {
                if !is_internal(name) && regex.is_match(name) {
                    self.topics.insert(name.into(), shape);
                }
            });
        }
        for name in &self.subscription.names {
            if let Some(shape) = source.named(name) {
                self.topics.insert(name.clone(), shape);
            }
        }
    }

    /// Updates one topic that changed. True if this changes the interest.
    pub(super) fn update(&mut self, name: &str, source: &dyn TopicSource) -> bool {
        if !self.wants(name) {
            return false;
        }
        let before = self.topics.get(name).copied();
        let now = source.named(name);
        match now {
            Some(shape) if before != now => {
                self.topics.insert(name.into(), shape);
            }
            Some(_) => {}
            None => {
                self.topics.remove(name);
            }
        }
        before != now
    }

    /// Returns its approximate memory, in bytes.
    pub(super) fn bytes(&self) -> usize {
        const TOPIC_BYTES: usize = 96;
        self.subscription_bytes + self.topics.len() * TOPIC_BYTES
    }

    /// Returns the number of look-ups to resolve it, or `None` if all topics have to be looked at.
    pub(super) fn lookups(&self) -> Option<usize> {
        match self.regex {
            Some(_) => None,
            None => Some(self.subscription.names.len()),
        }
    }

    /// Returns the subscribed names, existing or not, and the matching topics; possibly repeated.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        let there = self.topics.keys();
        self.subscription.names.iter().chain(there).map(|name| &**name)
    }

    fn wants(&self, name: &str) -> bool {
        let names = &self.subscription.names;
        names.binary_search_by(|known| (**known).cmp(name)).is_ok()
            || !is_internal(name) && self.regex.as_ref().is_some_and(|regex| regex.is_match(name))
    }
}

/// Compiles a pattern, which has to match a whole name.
fn compile(pattern: &str) -> Result<Regex, PatternError> {
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(PatternError::TooLong(pattern.len()));
    }
    let pattern = unquoted(pattern);
    // The pattern is compiled alone first, so that it cannot close the group that anchors it.
    build(&pattern)?;
    build(&format!(r"\A(?:{pattern})\z"))
}

fn build(pattern: &str) -> Result<Regex, PatternError> {
    RegexBuilder::new(pattern)
        .size_limit(PATTERN_MEMORY_MAX)
        .dfa_size_limit(PATTERN_MEMORY_MAX)
        .nest_limit(PATTERN_NESTING_MAX)
        .build()
        .map_err(|error| PatternError::Malformed(error.to_string().into()))
}

/// Replaces text between `\Q` and `\E` (supported by RE2, not by the regex library) by its escaped form.
fn unquoted(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut rest = pattern;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        out.push_str(before);
        if let Some(quoted) = escape.strip_prefix("\\Q") {
            let (text, behind) = quoted.split_once("\\E").unwrap_or((quoted, ""));
            out.push_str(&regex::escape(text));
            rest = behind;
        } else {
            // A backslash and the next character stay together.
            let end = escape.char_indices().nth(2).map_or(escape.len(), |(end, _)| end);
            let (pair, behind) = escape.split_at(end);
            out.push_str(pair);
            rest = behind;
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_whole_names() {
        let regex = compile("a|b.*").unwrap();
        for (name, expected) in [("a", true), ("ab", false), ("bcd", true), ("xb", false)] {
            assert_eq!(regex.is_match(name), expected, "{name}");
        }
    }

    #[test]
    fn quoted_text_stands_for_itself() {
        let regex = compile(r"\Qa.b\E\.c+").unwrap();
        assert!(regex.is_match("a.b.cc"));
        assert!(!regex.is_match("axb.cc"));
        assert!(compile(r"\\Q").unwrap().is_match(r"\Q"));
    }

    #[test]
    fn a_pattern_does_not_mean_the_topics_of_the_broker_and_a_name_does() {
        let none: [Box<str>; 0] = [];
        let all = Interest::new(Subscription::new(none, Some(".*".into()))).unwrap();
        assert!(all.wants("orders") && !all.wants("__consumer_offsets"));
        let named = Interest::new(Subscription::new(["__consumer_offsets".into()], None)).unwrap();
        assert!(named.wants("__consumer_offsets"));
    }

    #[test]
    fn malformed_and_monstrous_patterns_are_refused() {
        for pattern in ["(", "a)(b", "[", "(?<n", "x{1000}{1000}{1000}", &"(".repeat(200)] {
            assert!(compile(pattern).is_err(), "{pattern}");
        }
        let nested = format!("{}a{}", "(".repeat(60), ")".repeat(60));
        assert!(compile(&nested).is_err());
        assert_eq!(
            compile(&"a".repeat(5000)).unwrap_err(),
            PatternError::TooLong(5000)
        );
    }
}
