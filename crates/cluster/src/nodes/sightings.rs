//! Which nodes live: those whose beat has changed lately, by this node's clock.

use std::collections::HashMap;
use std::time::Duration;

use super::{Node, Roll, View};
use crate::database::Nonce;

/// Beats as this node has seen them.
#[derive(Debug)]
pub struct Sightings {
    /// A beat that stands still for longer is that of a dead node.
    silence_max: Duration,
    beats: HashMap<Nonce, (u64, Duration)>,
}

impl Sightings {
    pub fn new(silence_max: Duration) -> Self {
        Self {
            silence_max,
            beats: HashMap::new(),
        }
    }

    /// Notes a roll that was read at `now`, as node `own`.
    pub fn view(&mut self, own: u32, roll: Roll, now: Duration) -> View {
        let before = std::mem::take(&mut self.beats);
        let mut nodes = Vec::with_capacity(roll.entries.len());
        for entry in roll.entries {
            let incarnation = entry.facts.incarnation;
            let since = match before.get(&incarnation) {
                Some((beat, since)) if *beat == entry.beat => *since,
                Some(_) | None => now,
            };
            self.beats.insert(incarnation, (entry.beat, since));
            nodes.push(Node {
                number: entry.number,
                facts: entry.facts,
                is_alive: now.saturating_sub(since) <= self.silence_max,
                silent_ms: entry.silent_ms,
            });
        }
        let view = View {
            own,
            nodes,
            cells: roll.owners,
            spread_groups: roll.spread_groups,
            ..View::default()
        };
        view.of_cell(0)
    }

    /// Notes that nothing was seen up to `now`: nodes may have been alive meanwhile.
    pub fn miss(&mut self, now: Duration) {
        for (_, since) in self.beats.values_mut() {
            *since = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Entry, Key, NodeFacts};
    use super::*;
    use crate::database::Owner;

    fn roll(beats: &[(u8, u64)]) -> Roll {
        let entry = |(node, beat): &(u8, u64)| Entry {
            number: (*node).into(),
            facts: NodeFacts {
                name: node.to_string(),
                incarnation: [*node; 16],
                key: Key::random(),
                version: String::new(),
                addresses: Vec::new(),
            },
            beat: *beat,
            silent_ms: 0,
        };
        Roll {
            entries: beats.iter().map(entry).collect(),
            owners: vec![owner(3, 2), owner(5, 1)],
            is_registered: true,
            ..Roll::default()
        }
    }

    fn owner(epoch: u64, node: u8) -> Owner {
        Owner {
            epoch,
            node: Some([node; 16]),
            beat: 0,
        }
    }

    fn living(view: &View) -> Vec<u32> {
        let living = view.nodes.iter().filter(|node| node.is_alive);
        living.map(|node| node.number).collect()
    }

    #[test]
    fn a_node_whose_beat_stands_still_is_dead_until_it_beats_again() {
        let mut sightings = Sightings::new(Duration::from_secs(5));
        let mut at = |second, beats: &[(u8, u64)]| {
            let view = sightings.view(1, roll(beats), Duration::from_secs(second));
            living(&view)
        };
        assert_eq!(at(0, &[(1, 1), (2, 9)]), [1, 2], "seen for the first time");
        assert_eq!(at(5, &[(1, 2), (2, 9)]), [1, 2]);
        assert_eq!(at(6, &[(1, 3), (2, 9)]), [1]);
        assert_eq!(at(7, &[(1, 4), (2, 10)]), [1, 2]);
        assert_eq!(at(8, &[(1, 5)]), [1], "it has left");
    }

    #[test]
    fn time_without_answers_does_not_count() {
        let mut sightings = Sightings::new(Duration::from_secs(5));
        let second = Duration::from_secs;
        sightings.view(1, roll(&[(2, 9)]), second(0));
        sightings.miss(second(100));
        assert_eq!(living(&sightings.view(1, roll(&[(2, 9)]), second(104))), [2]);
        assert!(living(&sightings.view(1, roll(&[(2, 9)]), second(106))).is_empty());
    }

    #[test]
    fn the_owner_is_one_of_the_nodes() {
        let mut sightings = Sightings::new(Duration::from_secs(5));
        let view = sightings.view(1, roll(&[(1, 1), (2, 1), (3, 1)]), Duration::ZERO);
        assert_eq!(view.owner().map(|node| node.number), Some(2));
        assert_eq!(view.this().map(|node| node.number), Some(1));
        assert_eq!(view.others().map(|node| node.number).collect::<Vec<_>>(), [2, 3]);
        assert_eq!(view.epoch, 3);
        let other = view.of_cell(1);
        assert_eq!(other.owner().map(|node| node.number), Some(1));
        assert_eq!(other.epoch, 5);
        assert_eq!(view.of_cell(2).owner(), None, "there is no such cell");
    }
}
