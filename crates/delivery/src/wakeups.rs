//! Tasks that resume dispatchers when their logs grew or their consumers can go on, each for a part of the
//! dispatchers.

use std::sync::{Arc, Weak};

use stafett_journal::{Journal, Watch};
use stafett_model::{Lock, LogId};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::dispatcher::Dispatcher;
use super::lanes::LogOwnership;

/// Token of a watched lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token(u32);

#[derive(Debug)]
pub(super) struct Wakeups {
    wakeups: Box<[Arc<Shard>]>,
}

#[derive(Debug)]
pub(super) struct Shard {
    watch: Watch,
    dispatchers: Lock<Watched>,
    woken: Lock<Vec<Arc<Dispatcher>>>,
    wake: Notify,
}

/// Dispatchers and their lanes, by token in the watch.
#[derive(Debug, Default)]
struct Watched {
    dispatchers: Vec<(Weak<Dispatcher>, u32)>,
    free: Vec<u32>,
}

impl Wakeups {
    pub(super) fn new(journal: &dyn Journal, count: usize) -> Self {
        let shard = |_| {
            Arc::new(Shard {
                watch: journal.watch(),
                dispatchers: Lock::default(),
                woken: Lock::default(),
                wake: Notify::new(),
            })
        };
        Self {
            wakeups: (0..count.max(1)).map(shard).collect(),
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Shard>> {
        self.wakeups.iter()
    }

    /// Notifies a dispatcher when the log of one of its lanes grows. Returns the token of the lane, valid
    /// until [`Self::forget`].
    pub(super) fn watch(
        &self,
        journal: &dyn Journal,
        dispatcher: &Arc<Dispatcher>,
        lane: u32,
        log: LogId,
    ) -> Option<Token> {
        let shard = self.of(dispatcher)?;
        let token = shard.lock_queues().add(dispatcher, lane);
        let watch = match dispatcher.ownership {
            // The topic's logs outlive the dispatcher.
            LogOwnership::Topic => dispatcher.topic_watch.get_or_init(|| shard.watch.part()),
            LogOwnership::Own => &shard.watch,
        };
        journal.watch_log(watch, log, token);
        Some(Token(token))
    }

    /// Frees the tokens of a dispatcher that has ended. Growth that is reported later may wake another one.
    pub(super) fn forget(&self, dispatcher: &Dispatcher, tokens: impl Iterator<Item = Token>) {
        let Some(shard) = self.of(dispatcher) else { return };
        let mut watched = shard.lock_queues();
        for Token(token) in tokens {
            watched.remove(token);
        }
    }

    /// Schedules a hand-out of a dispatcher.
    pub(super) fn wake(&self, dispatcher: &Arc<Dispatcher>) {
        let Some(shard) = self.of(dispatcher) else { return };
        shard.woken.lock().push(Arc::clone(dispatcher));
        shard.wake.notify_one();
    }

    fn of(&self, dispatcher: &Dispatcher) -> Option<&Arc<Shard>> {
        // Ids are consecutive: neighbours are in different wakeups.
        let at = usize::try_from(dispatcher.id).unwrap_or(0) % self.wakeups.len().max(1);
        self.wakeups.get(at)
    }
}

impl Watched {
    fn add(&mut self, dispatcher: &Arc<Dispatcher>, lane: u32) -> u32 {
        let dispatcher = (Arc::downgrade(dispatcher), lane);
        if let Some(token) = self.free.pop()
            && let Some(slot) = usize::try_from(token)
                .ok()
                .and_then(|at| self.dispatchers.get_mut(at))
        {
            *slot = dispatcher;
            return token;
        }
        self.dispatchers.push(dispatcher);
        u32::try_from(self.dispatchers.len() - 1).unwrap_or(u32::MAX)
    }

    fn get(&self, token: u32) -> Option<(Arc<Dispatcher>, u32)> {
        let (dispatcher, lane) = self.dispatchers.get(usize::try_from(token).ok()?)?;
        Some((dispatcher.upgrade()?, *lane))
    }

    /// Frees a token, and the weak reference: it keeps the memory of its dispatcher.
    fn remove(&mut self, token: u32) {
        let slot = usize::try_from(token).ok();
        if let Some(slot) = slot.and_then(|at| self.dispatchers.get_mut(at)) {
            *slot = (Weak::new(), 0);
            self.free.push(token);
        }
        if self.free.len() == self.dispatchers.len() {
            *self = Self::default();
        }
    }
}

impl Shard {
    fn lock_queues(&self) -> stafett_model::LockGuard<'_, Watched> {
        self.dispatchers.lock()
    }

    fn take_woken(&self) -> Vec<Arc<Dispatcher>> {
        std::mem::take(&mut *self.woken.lock())
    }
}

/// Runs until it is stopped.
pub(super) async fn run(shard: Arc<Shard>, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = shard.watch.grown() => {}
            () = shard.wake.notified() => {}
        }
        for token in shard.watch.take() {
            let grown = shard.lock_queues().get(token);
            if let Some((dispatcher, lane)) = grown {
                dispatcher.dispatch_grown(lane);
            }
        }
        for dispatcher in shard.take_woken() {
            dispatcher.dispatch();
        }
        tokio::task::yield_now().await;
    }
}
