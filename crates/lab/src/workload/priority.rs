//! Priorities of messages.

use rand::RngExt as _;
use rand::rngs::SmallRng;

use crate::experiment::{DrawnPriority, Priority};

/// Draws the priority of the next message; 0 where there are none.
pub(super) fn draw(priority: Option<&Priority>, random: &mut SmallRng) -> u8 {
    match priority {
        None => 0,
        Some(Priority::Fixed(priority)) => *priority,
        Some(Priority::Drawn(DrawnPriority::Uniform([low, high]))) => random.random_range(*low..=*high),
        Some(Priority::Drawn(DrawnPriority::Weights(weights))) => {
            let mut at = random.random::<f64>() * weights.iter().sum::<f64>();
            let mut heavier = (0..=u8::MAX).zip(weights).filter(|(_, weight)| **weight > 0.0);
            let found = heavier.find(|(_, weight)| {
                at -= **weight;
                at < 0.0
            });
            found.map_or(0, |(priority, _)| priority)
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;

    #[test]
    fn priorities_come_as_often_as_their_weights_say() {
        let weights = Priority::Drawn(DrawnPriority::Weights(vec![3.0, 0.0, 1.0]));
        let uniform = Priority::Drawn(DrawnPriority::Uniform([1, 2]));
        let mut random = SmallRng::seed_from_u64(1);
        let mut seen = [[0_u32; 3]; 2];
        for _ in 0..10_000 {
            seen[0][usize::from(draw(Some(&weights), &mut random))] += 1;
            seen[1][usize::from(draw(Some(&uniform), &mut random))] += 1;
        }
        assert!(seen[0][0].abs_diff(7500) < 200 && seen[0][1] == 0, "{seen:?}");
        assert!(seen[1][1].abs_diff(5000) < 200 && seen[1][0] == 0, "{seen:?}");
        assert_eq!((draw(None, &mut random), weights.max(), uniform.max()), (0, 2, 2));
    }
}
