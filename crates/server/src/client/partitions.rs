//! A topic with some of its partitions, as in `orders:0,2-4`.

use std::collections::BTreeSet;

use stafett_kafka_client::Topic;
use stafett_model::TopicName;

/// A topic and the chosen partitions; `None` means all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chosen {
    pub(crate) topic: String,
    pub(crate) partitions: Option<BTreeSet<i32>>,
}

/// Maximum number of partitions in a list.
const LISTED_MAX: usize = 100_000;

pub(crate) fn read(text: &str) -> Result<Chosen, String> {
    let (topic, list) = match text.split_once(':') {
        Some((topic, list)) => (topic, Some(list)),
        None => (text, None),
    };
    TopicName::check(topic).map_err(|error| error.to_string())?;
    let partitions = match list {
        None => None,
        Some(list) => Some(numbers(list).ok_or("expected TOPIC or TOPIC:PARTITIONS, such as orders:0,2-4")?),
    };
    Ok(Chosen {
        topic: topic.to_owned(),
        partitions,
    })
}

fn numbers(list: &str) -> Option<BTreeSet<i32>> {
    let mut numbers = BTreeSet::new();
    for part in list.split(',') {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        let (low, high): (i32, i32) = (low.parse().ok()?, high.parse().ok()?);
        let many = usize::try_from(high.checked_sub(low)?).ok()?;
        if low < 0 || many + numbers.len() > LISTED_MAX {
            return None;
        }
        numbers.extend(low..=high);
    }
    Some(numbers)
}

impl Chosen {
    /// Returns the topic with only the chosen partitions. Fails if one of them does not exist.
    pub(crate) fn of(&self, mut topic: Topic) -> anyhow::Result<Topic> {
        let Some(chosen) = &self.partitions else {
            return Ok(topic);
        };
        let count = topic.partitions.len();
        topic
            .partitions
            .retain(|partition| chosen.contains(&partition.index));
        let there = |number: &&i32| {
            !topic
                .partitions
                .iter()
                .any(|partition| partition.index == **number)
        };
        match chosen.iter().find(there) {
            None => Ok(topic),
            Some(number) => Err(anyhow::anyhow!(
                "topic `{}` has no partition {number}; it has {count}, from 0 on",
                self.topic
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_ranges_are_read() {
        assert_eq!(read("a").unwrap().partitions, None);
        assert_eq!(read("a:3").unwrap().partitions, Some([3].into()));
        assert_eq!(read("a:0,2-4,2").unwrap().partitions, Some([0, 2, 3, 4].into()));
        for text in ["", "a b", "a:", "a:x", "a:-1", "a:4-2", "a:0-2147483647", ":1"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
