//! Tasks that resume queues when their logs grew or their consumers can go on, each for a part of the queues.

use std::sync::{Arc, Weak};

use stafett_journal::{Journal, Watch};
use stafett_model::{Lock, LogId};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::queue::Queue;

/// Number of watched lanes below which no sweep for deleted queues is needed.
const SWEEP_MIN: usize = 1024;

#[derive(Debug)]
pub(super) struct Shards {
    shards: Box<[Arc<Shard>]>,
}

#[derive(Debug)]
pub(super) struct Shard {
    watch: Watch,
    queues: Lock<Watched>,
    woken: Lock<Vec<Arc<Queue>>>,
    wake: Notify,
}

/// Queues and their lanes, by token in the watch.
#[derive(Debug, Default)]
struct Watched {
    queues: Vec<(Weak<Queue>, u32)>,
    free: Vec<u32>,
    /// Number of entries at which the next sweep is due.
    sweep_at: usize,
}

impl Shards {
    pub(super) fn new(journal: &dyn Journal, count: usize) -> Self {
        let shard = |_| {
            Arc::new(Shard {
                watch: journal.watch(),
                queues: Lock::default(),
                woken: Lock::default(),
                wake: Notify::new(),
            })
        };
        Self {
            shards: (0..count.max(1)).map(shard).collect(),
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Shard>> {
        self.shards.iter()
    }

    /// Notifies a queue when the log of one of its lanes grows.
    pub(super) fn watch(&self, journal: &dyn Journal, queue: &Arc<Queue>, lane: u32, log: LogId) {
        let Some(shard) = self.of(queue) else { return };
        let token = shard.lock_queues().add(queue, lane);
        let watch = match queue.over {
            // The topic's logs outlive the queue.
            Some(_) => queue.topic_watch.get_or_init(|| shard.watch.part()),
            None => &shard.watch,
        };
        journal.watch_log(watch, log, token);
    }

    /// Schedules a hand-out of a queue.
    pub(super) fn wake(&self, queue: &Arc<Queue>) {
        let Some(shard) = self.of(queue) else { return };
        shard.woken.lock().push(Arc::clone(queue));
        shard.wake.notify_one();
    }

    fn of(&self, queue: &Queue) -> Option<&Arc<Shard>> {
        // Ids are consecutive: neighbours are in different shards.
        let at = usize::try_from(queue.id.0).unwrap_or(0) % self.shards.len().max(1);
        self.shards.get(at)
    }
}

impl Watched {
    fn add(&mut self, queue: &Arc<Queue>, lane: u32) -> u32 {
        let queue = (Arc::downgrade(queue), lane);
        if self.free.is_empty() && self.queues.len() >= self.sweep_at {
            self.sweep();
        }
        if let Some(token) = self.free.pop()
            && let Some(slot) = usize::try_from(token).ok().and_then(|at| self.queues.get_mut(at))
        {
            *slot = queue;
            return token;
        }
        self.queues.push(queue);
        u32::try_from(self.queues.len() - 1).unwrap_or(u32::MAX)
    }

    fn get(&self, token: u32) -> Option<(Arc<Queue>, u32)> {
        let (queue, lane) = self.queues.get(usize::try_from(token).ok()?)?;
        Some((queue.upgrade()?, *lane))
    }

    /// Frees the tokens and weak references of dropped queues.
    fn sweep(&mut self) {
        for (token, (queue, _)) in (0_u32..).zip(&mut self.queues) {
            if queue.strong_count() == 0 {
                *queue = Weak::new();
                self.free.push(token);
            }
        }
        self.sweep_at = (2 * (self.queues.len() - self.free.len())).max(SWEEP_MIN);
    }
}

impl Shard {
    fn lock_queues(&self) -> std::sync::MutexGuard<'_, Watched> {
        self.queues.lock()
    }

    fn take_woken(&self) -> Vec<Arc<Queue>> {
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
            if let Some((queue, lane)) = grown {
                queue.pump_grown(lane);
            }
        }
        for queue in shard.take_woken() {
            queue.pump();
        }
        tokio::task::yield_now().await;
    }
}
