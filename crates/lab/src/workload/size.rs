//! Sizes of messages.

use rand::RngExt as _;
use rand::rngs::SmallRng;

use super::message::HEADER_BYTES;
use crate::experiment::{Distribution, Size};

const BYTES_MAX: f64 = (64 << 20) as f64;

/// Draws the size of the next message; never smaller than the lab's own bytes.
pub fn draw(size: &Size, random: &mut SmallRng) -> u32 {
    let bytes = match size {
        Size::Fixed(bytes) => bytes.0,
        Size::Distributed(Distribution::Uniform([low, high])) => random.random_range(low.0..=high.0),
        Size::Distributed(Distribution::Lognormal([median, sigma])) => {
            let drawn = median * (sigma * normal(random)).exp();
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "between 0 and the bound"
            )]
            let bytes = drawn.round().clamp(0.0, BYTES_MAX) as u64;
            bytes
        }
    };
    u32::try_from(bytes.max(HEADER_BYTES as u64)).unwrap_or(u32::MAX)
}

/// Normally distributed, by the method of Box and Muller (1958).
fn normal(random: &mut SmallRng) -> f64 {
    let (u, v): (f64, f64) = (1.0 - random.random::<f64>(), random.random());
    (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;
    use crate::experiment::ByteCount;

    #[test]
    fn sizes_are_distributed_as_asked() {
        let mut random = SmallRng::seed_from_u64(1);
        assert_eq!(draw(&Size::Fixed(ByteCount(0)), &mut random), 24);
        assert_eq!(draw(&Size::Fixed(ByteCount(100)), &mut random), 100);
        let uniform = Size::Distributed(Distribution::Uniform([ByteCount(50), ByteCount(60)]));
        let mut drawn: Vec<u32> = (0..1000).map(|_| draw(&uniform, &mut random)).collect();
        drawn.sort_unstable();
        assert_eq!((drawn[0], drawn[999]), (50, 60));
        let lognormal = Size::Distributed(Distribution::Lognormal([1000.0, 0.5]));
        let mut drawn: Vec<u32> = (0..10_001).map(|_| draw(&lognormal, &mut random)).collect();
        drawn.sort_unstable();
        let median = drawn[5000];
        assert!((970..1030).contains(&median), "{median}");
        // One standard deviation up is the quantile 0.841.
        let upper = f64::from(drawn[8413]) / 1000.0;
        assert!((upper.ln() - 0.5).abs() < 0.05, "{upper}");
    }
}
