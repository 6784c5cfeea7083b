//! Topics in the order of their names, for lists: a page of them is found without a look at the others.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap};
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

/// A topic that may be on a page.
struct Candidate<'a> {
    order: (u64, usize),
    topic: &'a Arc<Topic>,
}

impl PartialEq for Candidate<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl Eq for Candidate<'_> {}

impl PartialOrd for Candidate<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Candidate<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order.cmp(&other.order)
    }
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

    /// Returns the topics of a choice, in the order of their names.
    pub(crate) fn chosen(&self, wants: impl Fn(&Topic) -> bool) -> Vec<Arc<Topic>> {
        self.names.iter().filter(|topic| wants(topic)).cloned().collect()
    }

    fn total(&self, range: &TopicRange<'_>) -> usize {
        let counted = self.counts.iter().filter(|(class, _)| range.wants_class(**class));
        counted.map(|(_, count)| count).sum()
    }

    /// Returns a page in the order of a number, found in one pass; equal ones are in the order of their names.
    /// It begins behind `after`, a number and a name.
    pub(crate) fn page_by(
        &self,
        range: &TopicRange<'_>,
        after: Option<(u64, &str)>,
        number: impl Fn(&Topic) -> u64,
    ) -> TopicPage {
        // The smallest come first.
        let key = |number: u64| if range.names.descends { !number } else { number };
        let after = after.map(|(number, name)| (key(number), name));
        let mut first: BinaryHeap<Candidate<'_>> = BinaryHeap::new();
        for (place, topic) in self.names.iter().enumerate() {
            if !range.wants(topic) {
                continue;
            }
            let key = key(number(topic));
            if after.is_some_and(|after| (key, &*topic.name) <= after) {
                continue;
            }
            // One more than the page has tells whether there are more.
            if first.len() > range.count {
                if first.peek().is_some_and(|worst| worst.order <= (key, place)) {
                    continue;
                }
                first.pop();
            }
            let order = (key, place);
            first.push(Candidate { order, topic });
        }
        let mut topics: Vec<Arc<Topic>> = first
            .into_sorted_vec()
            .into_iter()
            .map(|it| Arc::clone(it.topic))
            .collect();
        let has_more = topics.len() > range.count;
        topics.truncate(range.count);
        let total = self.total(range);
        TopicPage {
            topics,
            has_more,
            matched: total,
            total,
        }
    }

    pub(crate) fn page(&self, range: &TopicRange<'_>) -> TopicPage {
        let mut page = TopicPage {
            total: self.total(range),
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
        assert_eq!(all.chosen(|_| true).len(), 4);
    }

    #[test]
    fn pages_by_a_number_are_those_of_a_sorted_list() {
        let mut all = Ordered::default();
        let numbers = [5, 0, 7, 5, 0, 9, 0, 5];
        for (id, number) in numbers.into_iter().enumerate() {
            let name = format!("t{id}.{number}");
            let id = TopicId(id as u128);
            all.insert(Arc::new(Topic::new(
                id,
                name.into(),
                LogId(number),
                1,
                Arc::default(),
            )));
        }
        let number = |topic: &Topic| topic.log(0).map_or(0, |log| log.0);
        for descends in [false, true] {
            let mut expected = all.chosen(|_| true);
            expected.sort_by_key(|topic| if descends { !number(topic) } else { number(topic) });
            for count in 1..=9 {
                let mut range = TopicRange {
                    count,
                    ..TopicRange::default()
                };
                range.names.descends = descends;
                let (mut found, mut after) = (Vec::new(), None);
                loop {
                    let from = after
                        .as_ref()
                        .map(|(number, name): &(u64, String)| (*number, name.as_str()));
                    let page = all.page_by(&range, from, number);
                    assert_eq!((page.matched, page.total), (8, 8));
                    found.extend(page.topics);
                    let last = found.last().unwrap();
                    after = Some((number(last), last.name.to_string()));
                    if !page.has_more {
                        break;
                    }
                }
                assert_eq!(found, expected, "{descends} {count}");
            }
        }
    }
}
