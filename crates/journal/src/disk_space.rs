//! Signal of disk space, so that callers with many appends can wait instead of being refused.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Signal that is set while space is short. Clones share it.
///
/// Space is short as soon as no spare can be made, so before anything is refused: appends in progress still
/// fit if no more follow. Deletions, settlements and other state are accepted all the time, from the reserved
/// space; half of it is only for appends that free space ([`crate::Append::frees_space`]).
#[derive(Debug, Clone, Default)]
pub struct DiskSpace(Arc<SpaceSignal>);

#[derive(Debug, Default)]
struct SpaceSignal {
    is_short: AtomicBool,
    enough: Notify,
}

impl DiskSpace {
    pub fn is_short(&self) -> bool {
        self.0.is_short.load(Ordering::Acquire)
    }

    /// Waits until there is enough space; returns at once if there is now.
    pub async fn enough(&self) {
        loop {
            let mut told = pin!(self.0.enough.notified());
            told.as_mut().enable();
            if !self.is_short() {
                return;
            }
            told.await;
        }
    }

    /// Sets the signal and notifies waiting callers; returns true if it changed.
    pub(crate) fn set_short(&self, is_short: bool) -> bool {
        let was_short = self.0.is_short.swap(is_short, Ordering::AcqRel);
        if was_short && !is_short {
            self.0.enough.notify_waiters();
        }
        was_short != is_short
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_waits_for_space_is_told_once_there_is_enough() {
        let space = DiskSpace::default();
        space.enough().await;
        assert!(space.set_short(true));
        assert!(!space.set_short(true));
        let mut waiting = std::pin::pin!(space.enough());
        tokio::select! {
            biased;
            () = &mut waiting => panic!("there is no space"),
            () = std::future::ready(()) => {}
        }
        assert!(space.set_short(false));
        waiting.await;
    }
}
