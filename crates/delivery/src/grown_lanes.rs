//! Logs of a dispatcher that may have grown. A dispatcher over a topic has as many logs as the topic has
//! partitions: it checks those reported as grown, or all of them if there was no report.

use smallvec::SmallVec;

/// Bound on separately remembered lanes; beyond it all are checked.
const LANES_MAX: usize = 64;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum GrownLanes {
    All,
    /// These lanes, without duplicates.
    These(SmallVec<[u32; 4]>),
}

impl GrownLanes {
    pub(super) fn none() -> Self {
        Self::These(SmallVec::new())
    }

    /// Records that a lane may have grown.
    pub(super) fn note(&mut self, lane: u32) {
        match self {
            Self::These(lanes) if lanes.contains(&lane) => {}
            Self::These(lanes) if lanes.len() < LANES_MAX => lanes.push(lane),
            Self::These(_) | Self::All => *self = Self::All,
        }
    }

    /// Returns the lanes to check, and clears them.
    pub(super) fn take(&mut self) -> Self {
        std::mem::replace(self, Self::none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_are_remembered_once_until_they_are_too_many() {
        let mut grown = GrownLanes::none();
        assert_eq!(grown.take(), GrownLanes::none());
        for lane in [3, 1, 3] {
            grown.note(lane);
        }
        assert_eq!(grown.take(), GrownLanes::These(SmallVec::from_slice(&[3, 1])));
        assert_eq!(grown.take(), GrownLanes::none());
        (0..64).for_each(|lane| grown.note(lane));
        assert!(matches!(&grown, GrownLanes::These(lanes) if lanes.len() == 64));
        grown.note(7);
        assert!(matches!(grown, GrownLanes::These(_)), "it is among them");
        grown.note(64);
        assert_eq!(grown.take(), GrownLanes::All);
    }
}
