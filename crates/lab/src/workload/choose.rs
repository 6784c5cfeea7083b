//! The topic of a message: all alike, or by a Zipf distribution.

use std::sync::Arc;

use rand::RngExt as _;
use rand::rngs::SmallRng;

/// Chooses among topics. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Chooser {
    count: u32,
    /// Cumulated shares, if they differ.
    shares: Option<Arc<[f64]>>,
}

impl Chooser {
    /// Of `count` topics the n-th is chosen with a probability proportional to n^-`zipf`.
    pub fn new(count: u32, zipf: f64) -> Self {
        let shares = (zipf > 0.0 && count > 1).then(|| {
            let mut sum = 0.0;
            let mut shares: Vec<f64> = (1..=count)
                .map(|rank| {
                    sum += f64::from(rank).powf(-zipf);
                    sum
                })
                .collect();
            for share in &mut shares {
                *share /= sum;
            }
            shares.into()
        });
        Self { count, shares }
    }

    pub fn draw(&self, random: &mut SmallRng) -> u32 {
        match &self.shares {
            _ if self.count <= 1 => 0,
            None => random.random_range(0..self.count),
            Some(shares) => {
                let at: f64 = random.random();
                let place = shares.partition_point(|share| *share < at);
                u32::try_from(place).unwrap_or(0).min(self.count - 1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;

    #[test]
    fn popular_topics_are_chosen_as_often_as_zipf_says() {
        let mut random = SmallRng::seed_from_u64(1);
        let chooser = Chooser::new(1000, 1.0);
        let mut counts = vec![0_u32; 1000];
        for _ in 0..100_000 {
            counts[usize::try_from(chooser.draw(&mut random)).unwrap()] += 1;
        }
        // The harmonic number of 1000 is 7.4855.
        let first = f64::from(counts[0]) / 100_000.0;
        assert!((first * 7.4855 - 1.0).abs() < 0.05, "{first}");
        let tenth = f64::from(counts[9]) / 100_000.0;
        assert!((tenth * 74.855 - 1.0).abs() < 0.15, "{tenth}");
        assert_eq!(Chooser::new(1, 2.0).draw(&mut random), 0);
    }
}
