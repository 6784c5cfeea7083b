//! Courses of the calls of a node of a seed, drawn from random numbers of its own.

use std::fmt;
use std::sync::{Mutex, Weak};

use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use stafett_cluster::fake::{Call, Fate, Weather};

use super::world::World;

/// The calls of a node, which has random numbers of its own.
pub(super) struct NodeWeather {
    world: Weak<World>,
    pub(super) number: usize,
    random: Mutex<SmallRng>,
}

impl NodeWeather {
    pub(super) fn new(world: Weak<World>, number: usize, seed: u64) -> Self {
        let random = Mutex::new(SmallRng::seed_from_u64(seed));
        Self {
            world,
            number,
            random,
        }
    }

    pub(super) fn draw(&self, range: std::ops::Range<u64>) -> u64 {
        let mut random = self.random.lock().unwrap();
        random.random_range(range)
    }

    pub(super) fn course(&self, call: Call) -> Fate {
        let (kind, is_done) = (self.draw(0..1000), self.draw(0..2) == 0);
        match (kind, call) {
            (0..2, Call::Delete | Call::Other)
            | (0..10, Call::Claim | Call::Commit | Call::Publish | Call::Put) => Fate::Death { is_done },
            (10..40, _) => Fate::Unanswered { is_done },
            (40..70, Call::Commit) => Fate::Late,
            (70..120, Call::Commit) => Fate::Twice,
            _ => Fate::Answered,
        }
    }
}

impl fmt::Debug for NodeWeather {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "weather of node {}", self.number)
    }
}

impl Weather for NodeWeather {
    fn fate(&self, call: Call) -> Fate {
        let Some(world) = self.world.upgrade() else {
            return Fate::Answered;
        };
        world.pause(self, call);
        world.fate(self, call)
    }

    fn under_way(&self) {
        if let Some(world) = self.world.upgrade() {
            world.pause(self, Call::Commit);
        }
    }
}
