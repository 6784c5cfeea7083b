//! The naive model: a list of bindings.

use bytes::Bytes;
use stafett_routing::{
    ExchangeKind, HeaderMatch, HeaderValue, Hop, MessageView, Mode, Pattern, Property, Router, Routes, Spec,
};

pub(crate) const EXCHANGE: &str = "exchange";

/// A message of the tests.
#[derive(Debug, Clone, Default)]
pub(crate) struct Given {
    pub(crate) key: Vec<u8>,
    pub(crate) headers: Vec<(Vec<u8>, HeaderValue)>,
    pub(crate) delayed: bool,
}

impl MessageView for Given {
    fn key(&self) -> &[u8] {
        &self.key
    }

    fn headers(&self, visit: &mut dyn FnMut(&[u8], HeaderValue)) {
        for (name, value) in &self.headers {
            visit(name, value.clone());
        }
    }

    fn property(&self, _: Property) -> Option<Bytes> {
        None
    }

    fn is_delayed(&self) -> bool {
        self.delayed
    }
}

/// One exchange with its bindings, twice: as a router and as a list.
#[derive(Debug, Clone)]
pub(crate) struct Twice {
    router: Router<u32>,
    list: Vec<(Pattern, u32)>,
}

impl Twice {
    pub(crate) fn new(kind: ExchangeKind) -> Self {
        let mut router = Router::default();
        router.add_exchange(EXCHANGE.into(), Spec::new(kind));
        Self {
            router,
            list: Vec::new(),
        }
    }

    pub(crate) fn bind(&mut self, pattern: Pattern, target: u32) {
        self.router.bind(EXCHANGE, &pattern, Hop::Target(target)).unwrap();
        self.list.push((pattern, target));
    }

    /// Removes the binding at an index of the list, modulo its length.
    pub(crate) fn unbind(&mut self, at: usize) {
        if self.list.is_empty() {
            return;
        }
        let (pattern, target) = self.list.swap_remove(at % self.list.len());
        assert!(self.router.unbind(EXCHANGE, &pattern, &Hop::Target(target)));
    }

    /// Routes by both, compares the results, and returns them.
    pub(crate) fn route(&self, message: &Given, matches: impl Fn(&Pattern) -> bool) -> Vec<u32> {
        let mut expected: Vec<u32> = self
            .list
            .iter()
            .filter(|(pattern, _)| matches(pattern))
            .map(|(_, target)| *target)
            .collect();
        expected.sort_unstable();
        expected.dedup();
        let mut found = routed(&self.router, EXCHANGE, message);
        found.sort_unstable();
        assert_eq!(found, expected, "{message:?} among {:?}", self.list);
        found
    }
}

pub(crate) fn routed(router: &Router<u32>, exchange: &str, message: &Given) -> Vec<u32> {
    let mut found = Routes::default();
    let nobody = |_: &[u8]| None;
    router.route(exchange, message, &nobody, &mut found).unwrap();
    found.targets().to_vec()
}

/// Returns true if a pattern of words matches a key: directly from the definition of `*` and `#`.
pub(crate) fn words_match(pattern: &[&[u8]], key: &[&[u8]]) -> bool {
    let Some((first, behind)) = pattern.split_first() else {
        return key.is_empty();
    };
    if *first == b"#" {
        let mut left = (0..=key.len()).filter_map(|skipped| key.get(skipped..));
        return left.any(|left| words_match(behind, left));
    }
    let Some((word, rest)) = key.split_first() else {
        return false;
    };
    (*first == b"*" || first == word) && words_match(behind, rest)
}

pub(crate) fn words(text: &[u8]) -> Vec<&[u8]> {
    if text.is_empty() {
        Vec::new()
    } else {
        text.split(|byte| *byte == b'.').collect()
    }
}

pub(crate) fn headers_match(wanted: &HeaderMatch, message: &Given) -> bool {
    let has = |(name, value): &(Bytes, Option<HeaderValue>)| {
        message
            .headers
            .iter()
            .any(|(given, is)| given == name && value.as_ref().is_none_or(|value| value == is))
    };
    match wanted.mode {
        Mode::All => wanted.pairs.iter().all(has),
        Mode::Any => wanted.pairs.iter().any(has),
    }
}
