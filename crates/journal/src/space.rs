//! Whether space is short, as a subscription: who appends much can wait instead of being refused.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Whether space is short. Clones tell the same.
///
/// It is short from the moment when no more can be taken ahead, so before anything is refused: what is on its
/// way then still finds room, as long as nobody goes on. Deletions, settlements and other state are taken all
/// the while, out of what is kept back for them, of which half is for what frees space alone
/// ([`crate::Append::frees_space`]).
#[derive(Debug, Clone, Default)]
pub struct Space(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    is_short: AtomicBool,
    enough: Notify,
}

impl Space {
    pub fn is_short(&self) -> bool {
        self.0.is_short.load(Ordering::Acquire)
    }

    /// Returns when there is enough, at once if there is now.
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

    /// Tells whoever waits; whether that is news.
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
        let space = Space::default();
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
