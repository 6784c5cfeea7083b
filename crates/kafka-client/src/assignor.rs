//! Distribution of partitions among the members of a classic group, as Kafka's `RangeAssignor` and
//! `RoundRobinAssignor` do it: any member can lead, and the result is the same.

use std::collections::{BTreeMap, BTreeSet};

use stafett_kafka_wire::Str;

/// Subscribed topics by member.
pub type Wishes = BTreeMap<Str, BTreeSet<Str>>;
/// Assigned partitions by member and topic.
pub type Shares = BTreeMap<Str, BTreeMap<Str, Vec<i32>>>;

/// Assigns consecutive partitions of each topic to one member. The first members get one more if the count is
/// not divisible.
pub fn range(wishes: &Wishes, partitions: &BTreeMap<Str, i32>) -> Shares {
    let mut shares = nobody(wishes);
    for (topic, count) in partitions {
        let members: Vec<_> = wanting(wishes, topic).collect();
        let Ok(among) = i32::try_from(members.len()) else {
            continue;
        };
        if among == 0 {
            continue;
        }
        let (each, more) = (count / among, count % among);
        let mut next = 0;
        for (place, member) in (0..among).zip(members) {
            let end = next + each + i32::from(place < more);
            give(&mut shares, member, topic, next..end);
            next = end;
        }
    }
    shares
}

/// Assigns the partitions one by one to the members in turn.
pub fn round_robin(wishes: &Wishes, partitions: &BTreeMap<Str, i32>) -> Shares {
    let mut shares = nobody(wishes);
    let members: Vec<_> = wishes.keys().collect();
    let mut turn = members.iter().cycle();
    for (topic, count) in partitions {
        if wanting(wishes, topic).next().is_none() {
            continue;
        }
        for partition in 0..*count {
            let member =
                turn.find(|member| wishes.get(**member).is_some_and(|topics| topics.contains(topic)));
            if let Some(member) = member {
                give(&mut shares, member, topic, partition..partition + 1);
            }
        }
    }
    shares
}

fn nobody(wishes: &Wishes) -> Shares {
    wishes
        .keys()
        .map(|member| (member.clone(), BTreeMap::new()))
        .collect()
}

fn wanting<'a>(wishes: &'a Wishes, topic: &'a Str) -> impl Iterator<Item = &'a Str> {
    wishes
        .iter()
        .filter(move |(_, topics)| topics.contains(topic))
        .map(|(member, _)| member)
}

fn give(shares: &mut Shares, member: &Str, topic: &Str, partitions: std::ops::Range<i32>) {
    if partitions.is_empty() {
        return;
    }
    if let Some(share) = shares.get_mut(member) {
        share.entry(topic.clone()).or_default().extend(partitions);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wishes(rows: &[(&'static str, &[&'static str])]) -> Wishes {
        let topics = |names: &[&'static str]| names.iter().map(|name| Str::from_static(name)).collect();
        rows.iter()
            .map(|(member, names)| (Str::from_static(member), topics(names)))
            .collect()
    }

    fn partitions(rows: &[(&'static str, i32)]) -> BTreeMap<Str, i32> {
        rows.iter()
            .map(|(name, count)| (Str::from_static(name), *count))
            .collect()
    }

    fn shown(shares: &Shares) -> String {
        let share = |(member, topics): (&Str, &BTreeMap<Str, Vec<i32>>)| {
            let topics: Vec<_> = topics
                .iter()
                .map(|(topic, list)| format!("{topic}{list:?}"))
                .collect();
            format!("{member}: {}", topics.join(" "))
        };
        shares.iter().map(share).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn range_gives_neighbours_and_the_rest_to_the_first() {
        let shares = range(
            &wishes(&[("a", &["t", "u"]), ("b", &["t", "u"]), ("c", &["u"])]),
            &partitions(&[("t", 3), ("u", 4)]),
        );
        assert_eq!(shown(&shares), "a: t[0, 1] u[0, 1]; b: t[2] u[2]; c: u[3]");
    }

    #[test]
    fn round_robin_goes_on_where_the_last_topic_ended() {
        let shares = round_robin(
            &wishes(&[("a", &["t", "u"]), ("b", &["t", "u"])]),
            &partitions(&[("t", 3), ("u", 2)]),
        );
        assert_eq!(shown(&shares), "a: t[0, 2] u[1]; b: t[1] u[0]");
        let shares = round_robin(
            &wishes(&[("a", &["t"]), ("b", &["u"])]),
            &partitions(&[("t", 2), ("u", 2), ("v", 9)]),
        );
        assert_eq!(shown(&shares), "a: t[0, 1]; b: u[0, 1]");
    }
}
