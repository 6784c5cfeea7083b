//! Topics in the order of their names, for lists: a page of them is found without a look at the others.

use std::collections::BTreeMap;
use std::sync::Arc;

use stafett_model::{ByName, NameRange};

use crate::topic::{Topic, TopicKind, is_internal};

/// Choice of a page of topics.
#[derive(Debug, Clone, Copy, Default)]
pub struct TopicRange<'a> {
    pub names: NameRange<'a>,
    /// `None` for all kinds.
    pub kind: Option<TopicKind>,
    /// With the broker's own topics.
    pub with_internal: bool,
    pub count: usize,
}

/// A page of topics.
#[derive(Debug, Default)]
pub struct TopicPage {
    pub topics: Vec<Arc<Topic>>,
    /// True if there are topics behind the page.
    pub has_more: bool,
    /// Number of topics with the prefix.
    pub matched: usize,
    /// Number of topics of the kind.
    pub total: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Ordered {
    names: ByName<Arc<Topic>>,
    /// Numbers of topics by kind; internal ones are counted apart.
    counts: BTreeMap<(TopicKind, bool), usize>,
}

fn class(topic: &Topic) -> (TopicKind, bool) {
    (topic.kind(), is_internal(&topic.name))
}

impl TopicRange<'_> {
    /// Returns true for a topic of the kind that is wanted, whatever its name.
    #[must_use]
    pub fn wants(&self, topic: &Topic) -> bool {
        self.wants_class(class(topic))
    }

    fn wants_class(&self, (kind, is_internal): (TopicKind, bool)) -> bool {
        self.kind.is_none_or(|wanted| wanted == kind) && (self.with_internal || !is_internal)
    }
}

impl Ordered {
    /// Adds a topic whose name is not there.
    pub(crate) fn insert(&mut self, topic: Arc<Topic>) {
        *self.counts.entry(class(&topic)).or_default() += 1;
        self.names.insert(topic);
    }

    pub(crate) fn remove(&mut self, name: &str) {
        if let Some(topic) = self.names.remove(name)
            && let Some(count) = self.counts.get_mut(&class(&topic))
        {
            *count -= 1;
        }
    }

    pub(crate) fn all(&self) -> Vec<Arc<Topic>> {
        self.names.iter().cloned().collect()
    }

    pub(crate) fn page(&self, range: &TopicRange<'_>) -> TopicPage {
        let counted = self.counts.iter().filter(|(class, _)| range.wants_class(**class));
        let mut page = TopicPage {
            total: counted.map(|(_, count)| count).sum(),
            ..TopicPage::default()
        };
        let prefix = range.names.prefix;
        page.matched = if prefix.is_empty() {
            page.total
        } else {
            let with_prefix = NameRange {
                prefix,
                ..NameRange::default()
            };
            let found = self.names.range(with_prefix);
            found.filter(|topic| range.wants(topic)).count()
        };
        for topic in self.names.range(range.names).filter(|topic| range.wants(topic)) {
            if page.topics.len() >= range.count {
                page.has_more = true;
                break;
            }
            page.topics.push(Arc::clone(topic));
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use stafett_model::LogId;

    use super::*;
    use crate::TopicId;

    #[test]
    fn topics_that_go_and_come_are_counted_by_kind() {
        let mut all = Ordered::default();
        let topic = |id: u128, name: &str| {
            Arc::new(Topic::new(TopicId(id), name.into(), LogId(1), 1, Arc::default()))
        };
        for (id, name) in [(1, "a.one"), (2, "b"), (3, "a.two"), (4, crate::AUDIT_TOPIC)] {
            all.insert(topic(id, name));
        }
        all.insert(Arc::new(Topic::new(
            TopicId::of_queue(7),
            "queue.x".into(),
            LogId(1),
            1,
            Arc::default(),
        )));
        let page = |range: TopicRange<'_>| {
            let page = all.page(&range);
            let names: Vec<String> = page.topics.iter().map(|topic| topic.name.to_string()).collect();
            (names.join(" "), page.has_more, page.matched, page.total)
        };
        let of = |prefix, after, descends| NameRange {
            prefix,
            after,
            descends,
        };
        let range = |names, kind, with_internal, count| TopicRange {
            names,
            kind,
            with_internal,
            count,
        };
        let found = page(range(of("", None, false), None, false, 2));
        assert_eq!(found, ("a.one a.two".to_owned(), true, 4, 4));
        let found = page(range(of("", Some("a.two"), false), None, false, 2));
        assert_eq!(found, ("b queue.x".to_owned(), false, 4, 4));
        let found = page(range(of("a.", None, true), Some(TopicKind::Stored), false, 9));
        assert_eq!(found, ("a.two a.one".to_owned(), false, 2, 3));
        let found = page(range(of("", None, false), Some(TopicKind::Queue), true, 0));
        assert_eq!(found, (String::new(), true, 1, 1));
        let found = page(range(of("s", None, false), None, true, 9));
        assert_eq!(found, (crate::AUDIT_TOPIC.to_owned(), false, 1, 5));
        all.remove("b");
        all.remove("none");
        assert_eq!(all.page(&TopicRange::default()).total, 3);
        assert_eq!(all.all().len(), 4);
    }
}
