//! The grid: every combination of the values, in an order that is shuffled and can be repeated.
//!
//! A repetition of all points is a block: none begins before the one before it has ended, so that slow
//! changes of a machine meet all points alike. Within a block the systems come in a random order, and
//! each system's points too, those with the same settings of the system together: a broker is not started
//! more often than need be.

use std::collections::BTreeMap;

use rand::seq::SliceRandom as _;
use rand::{SeedableRng as _, rngs::SmallRng};

use crate::results::Planned;

/// Values of settings by their paths, such as `roles.producers.batch`.
pub type Parameters = BTreeMap<String, serde_json::Value>;

/// Lists of them.
pub type Grid = BTreeMap<String, Vec<serde_json::Value>>;

/// Every combination of the lists, the last one running fastest. No lists: one combination of nothing.
pub fn combinations(lists: &Grid) -> Vec<Parameters> {
    let mut all = vec![Parameters::new()];
    for (path, values) in lists {
        all = all
            .iter()
            .flat_map(|before| {
                values.iter().map(|value| {
                    let mut with = before.clone();
                    with.insert(path.clone(), value.clone());
                    with
                })
            })
            .collect();
    }
    all
}

/// All points of a run in the order in which they are measured.
pub fn order(systems: &[String], points: &[Parameters], repetitions: u32, seed: u64) -> Vec<Planned> {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut order = Vec::new();
    let mut number = 0;
    for repetition in 1..=repetitions {
        // By system, then by the system's own settings.
        let mut groups: Vec<Vec<Planned>> = Vec::new();
        for system in systems {
            let mut by_settings: BTreeMap<String, Vec<Planned>> = BTreeMap::new();
            for parameters in points {
                number += 1;
                by_settings
                    .entry(of_system(system, parameters))
                    .or_default()
                    .push(Planned {
                        number,
                        system: system.clone(),
                        parameters: parameters.clone(),
                        repetition,
                    });
            }
            groups.extend(by_settings.into_values());
        }
        groups.shuffle(&mut random);
        for mut group in groups {
            group.shuffle(&mut random);
            order.extend(group);
        }
    }
    order
}

/// The part of the parameters for which a system has to be started anew. Levels of durability are its
/// topics'.
fn of_system(system: &str, parameters: &Parameters) -> String {
    let prefix = format!("system.{system}.");
    let own: Parameters = parameters
        .iter()
        .filter(|(path, _)| path.starts_with(&prefix))
        .map(|(path, value)| (path.clone(), value.clone()))
        .collect();
    format!("{own:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists() -> BTreeMap<String, Vec<serde_json::Value>> {
        BTreeMap::from([
            ("roles.a.size".to_owned(), vec![1.into(), 2.into(), 3.into()]),
            ("system.kafka.heap".to_owned(), vec!["1g".into(), "2g".into()]),
        ])
    }

    #[test]
    fn every_combination_is_there_once() {
        let all = combinations(&lists());
        assert_eq!(all.len(), 6);
        let mut texts: Vec<String> = all.iter().map(|values| format!("{values:?}")).collect();
        texts.sort();
        texts.dedup();
        assert_eq!(texts.len(), 6);
        assert_eq!(combinations(&BTreeMap::new()), [Parameters::new()]);
    }

    #[test]
    fn points_are_shuffled_within_blocks_and_stay_with_their_system() {
        let systems = ["stafett".to_owned(), "kafka".to_owned()];
        let points = combinations(&lists());
        let planned = order(&systems, &points, 3, 7);
        assert_eq!(
            planned,
            order(&systems, &points, 3, 7),
            "the same seed gives the same order"
        );
        assert_ne!(planned, order(&systems, &points, 3, 8));
        assert_eq!(planned.len(), 36);
        assert!(planned.is_sorted_by_key(|planned| planned.repetition));
        let mut numbers: Vec<u32> = planned.iter().map(|planned| planned.number).collect();
        numbers.sort_unstable();
        assert!(numbers.iter().copied().eq(1..=36));
        // Two settings of one of two systems: within a block no more than three starts.
        for block in planned.chunks(12) {
            let starts = block.chunk_by(|a, b| {
                let of = |planned: &Planned| of_system(&planned.system, &planned.parameters);
                a.system == b.system && of(a) == of(b)
            });
            assert!(starts.count() <= 3);
        }
    }
}
