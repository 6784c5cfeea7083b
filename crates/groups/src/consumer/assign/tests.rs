//! Guarantees of the assignors, on arbitrary tasks.

use proptest::prelude::*;
use stafett_topics::{TopicId, TopicShape};

use super::*;

fn topics(counts: &[u32]) -> Vec<TopicShape> {
    let shapes = (1..).zip(counts).map(|(id, partitions)| TopicShape {
        id: TopicId(id),
        partitions: *partitions,
    });
    shapes.collect()
}

fn same(topics: &[u32], members: usize) -> Vec<Arc<[u32]>> {
    let topics: Arc<[u32]> = topics.into();
    std::iter::repeat_n(topics, members).collect()
}

struct Case {
    topics: Vec<TopicShape>,
    wants: Vec<Arc<[u32]>>,
    before: Vec<Partitions>,
}

impl Case {
    fn run(&self, assignor: Assignor) -> Vec<Partitions> {
        let ids: Vec<String> = (0..self.wants.len())
            .map(|number| format!("m{number:03}"))
            .collect();
        let members = ids.iter().zip(&self.wants).zip(&self.before);
        let task = Task {
            // Topics that no member wants are not part of a task.
            topics: self
                .topics
                .iter()
                .zip(0..)
                .map(|(topic, index)| TopicShape {
                    partitions: if self.wants.iter().any(|wants| wants.contains(&index)) {
                        topic.partitions
                    } else {
                        0
                    },
                    ..*topic
                })
                .collect(),
            members: members
                .map(|((id, wants), before)| Applicant {
                    id,
                    instance: None,
                    wants: Arc::clone(wants),
                    before,
                })
                .collect(),
        };
        let shares = assign(assignor, &task);
        let mut seen = std::collections::HashSet::new();
        for (share, wants) in shares.iter().zip(&self.wants) {
            for partition in share.as_slice() {
                assert!(seen.insert(*partition), "{partition:?} twice");
                assert!(
                    wants
                        .iter()
                        .any(|topic| self.topics[*topic as usize].id == partition.topic)
                );
            }
        }
        let wanted = self
            .topics
            .iter()
            .zip(0..)
            .filter(|(_, index)| self.wants.iter().any(|wants| wants.contains(index)));
        let all: usize = wanted.map(|(topic, _)| topic.partitions as usize).sum();
        assert_eq!(seen.len(), all, "every wanted partition is with somebody");
        shares
    }
}

fn kept(before: &[Partitions], after: &[Partitions]) -> usize {
    let pairs = before.iter().zip(after);
    pairs
        .map(|(before, after)| {
            after
                .as_slice()
                .iter()
                .filter(|one| before.contains(**one))
                .count()
        })
        .sum()
}

#[test]
fn a_range_is_cut_alike_for_topics_with_as_many_partitions() {
    let case = Case {
        topics: topics(&[7, 7]),
        wants: same(&[0, 1], 3),
        before: vec![Partitions::default(); 3],
    };
    let shares = case.run(Assignor::Range);
    let found: Vec<Vec<(u128, u32)>> = shares
        .iter()
        .map(|share| {
            share
                .as_slice()
                .iter()
                .map(|one| (one.topic.0, one.index))
                .collect()
        })
        .collect();
    assert_eq!(found[0], [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)]);
    assert_eq!(found[1], [(1, 3), (1, 4), (2, 3), (2, 4)]);
    assert_eq!(found[2], [(1, 5), (1, 6), (2, 5), (2, 6)]);
}

#[test]
fn partitions_of_a_topic_spread_over_the_members() {
    let case = Case {
        topics: topics(&[2, 2, 2]),
        wants: same(&[0, 1, 2], 2),
        before: vec![Partitions::default(); 2],
    };
    for share in case.run(Assignor::Uniform) {
        let topics: Vec<_> = share.as_slice().iter().map(|one| one.topic.0).collect();
        assert_eq!(topics, [1, 2, 3]);
    }
}

fn wants(bits: &[u32], topics: usize) -> Vec<Arc<[u32]>> {
    let count = u32::try_from(topics).unwrap();
    bits.iter()
        .map(|bits| (0..count).filter(|topic| bits & (1 << topic) != 0).collect())
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn equal_wishes_are_met_evenly_with_the_fewest_moves(
        counts in prop::collection::vec(0..20u32, 1..6),
        first in 1..9usize,
        then in 1..9usize,
        grown in 0..5u32,
    ) {
        let all: Arc<[u32]> = (0..u32::try_from(counts.len()).unwrap()).collect();
        let mut case = Case {
            topics: topics(&counts),
            wants: vec![Arc::clone(&all); first],
            before: vec![Partitions::default(); first],
        };
        let before = case.run(Assignor::Uniform);
        case.topics[0].partitions += grown;
        case.wants = vec![all; then];
        case.before.clone_from(&before);
        case.before.resize(then, Partitions::default());
        let after = case.run(Assignor::Uniform);
        let loads = || after.iter().map(Partitions::len);
        let (least, most) = (loads().min().unwrap(), loads().max().unwrap());
        prop_assert!(most - least <= 1);
        // As many partitions stay as the balance permits.
        let total: usize = loads().sum();
        let (share, larger) = (total / then, total % then);
        let had: Vec<_> = case.before.iter().map(Partitions::len).collect();
        let possible = had.iter().map(|had| (*had).min(share)).sum::<usize>()
            + had.iter().filter(|had| **had > share).count().min(larger);
        prop_assert_eq!(kept(&case.before, &after), possible);
        case.before.clone_from(&after);
        prop_assert_eq!(case.run(Assignor::Uniform), after);
    }

    #[test]
    fn different_wishes_are_met_and_met_again_without_moves(
        counts in prop::collection::vec(0..12u32, 5),
        bits in prop::collection::vec(0..32u32, 1..8),
        other in prop::collection::vec(0..32u32, 1..8),
    ) {
        let mut case = Case {
            topics: topics(&counts),
            wants: wants(&bits, 5),
            before: vec![Partitions::default(); bits.len()],
        };
        let before = case.run(Assignor::Uniform);
        case.before.clone_from(&before);
        prop_assert_eq!(case.run(Assignor::Uniform), before.clone());
        case.wants = wants(&other, 5);
        case.before.resize(other.len(), Partitions::default());
        let after = case.run(Assignor::Uniform);
        for (giver, has) in after.iter().enumerate() {
            for (taker, wants) in case.wants.iter().enumerate() {
                if has.len() < after[taker].len() + 2 {
                    continue;
                }
                let could = has.as_slice().iter().any(|one| wants.contains(&u32::try_from(one.topic.0 - 1).unwrap()));
                prop_assert!(!could, "{giver} could give to {taker}");
            }
        }
        case.run(Assignor::Range);
    }
}
