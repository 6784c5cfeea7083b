//! Faults of the disk: armed at a later change, and noticed.

use stafett_journal::simulated::{Effect, Fault};

use super::{Broken, Death, World};
use crate::steps::DiskFault;

impl DiskFault {
    pub(super) fn at(self, change: u64) -> Fault {
        let effect = match self {
            Self::Power(_) => Effect::PowerLoss,
            Self::Kill(seed) => Effect::Kill { seed },
            Self::Error => Effect::Error,
            Self::Broken => Effect::Broken,
        };
        Fault { change, effect }
    }
}

impl World {
    /// Arms a fault at a later change of the disk.
    pub(super) fn arm(&mut self, after: u64, fault: DiskFault) {
        if self.has_failed() && matches!(self.fault, Some((_, DiskFault::Broken))) {
            // A broken disk stays broken.
            return;
        }
        let change = self.disk.changes() + after;
        self.disk.set_fault(Some(fault.at(change)));
        self.fault = Some((change, fault));
    }

    /// True if the armed fault has happened.
    pub fn has_failed(&self) -> bool {
        self.fault
            .is_some_and(|(change, _)| self.disk.changes() >= change)
    }

    /// Ends the life if the fault was a kill or a loss of power that has happened.
    pub(super) fn fired(&mut self) -> Result<(), Broken> {
        let Some((change, fault)) = self.fault.filter(|(change, _)| self.disk.changes() >= *change) else {
            return Ok(());
        };
        let what = self.disk.change(change);
        match fault {
            DiskFault::Kill(_) | DiskFault::Power(_) => self.faults += 1,
            DiskFault::Error | DiskFault::Broken => return Ok(()),
        }
        self.trace.note(|| format!("{fault:?} at {what:?}"));
        Err(Broken::Died(match fault {
            DiskFault::Power(seed) => Death::Power(seed),
            DiskFault::Kill(_) | DiskFault::Error | DiskFault::Broken => Death::Killed,
        }))
    }
}
