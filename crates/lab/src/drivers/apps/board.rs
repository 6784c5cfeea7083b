//! The worker of each task, as the workers tell: how long a task had none, and how long shares were uneven.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use stafett_model::Lock;
use tokio::time::Instant;

/// Of one app.
#[derive(Debug, Default)]
pub(super) struct Board(Lock<Tasks>);

#[derive(Debug, Default)]
struct Tasks {
    /// Tasks that there are.
    count: usize,
    workers: BTreeSet<u32>,
    /// Worker of each task that has one.
    held: BTreeMap<String, u32>,
    /// Last worker of each task that has none, and since when.
    free: BTreeMap<String, (u32, Instant)>,
    moved: u64,
    gap_max: Duration,
    uneven_since: Option<Instant>,
    uneven_max: Duration,
}

impl Board {
    pub(super) fn clear(&self) {
        *self.0.lock() = Tasks::default();
    }

    /// A worker joined an app with this many tasks.
    pub(super) fn joined(&self, worker: u32, count: usize) {
        let mut tasks = self.0.lock();
        tasks.count = count;
        tasks.workers.insert(worker);
        tasks.look();
    }

    /// A worker is gone, with its tasks.
    pub(super) fn left(&self, worker: u32) {
        let mut tasks = self.0.lock();
        tasks.workers.remove(&worker);
        let now = Instant::now();
        let held = std::mem::take(&mut tasks.held);
        for (task, holder) in held {
            if holder == worker {
                tasks.free.insert(task, (holder, now));
            } else {
                tasks.held.insert(task, holder);
            }
        }
        tasks.look();
    }

    pub(super) fn claimed(&self, worker: u32, task: &str) {
        let mut tasks = self.0.lock();
        if let Some((last, since)) = tasks.free.remove(task) {
            tasks.gap_max = tasks.gap_max.max(since.elapsed());
            tasks.moved += u64::from(last != worker);
        }
        tasks.held.insert(task.to_owned(), worker);
        tasks.look();
    }

    pub(super) fn released(&self, worker: u32, task: &str) {
        let mut tasks = self.0.lock();
        if tasks.held.get(task) == Some(&worker) {
            tasks.held.remove(task);
            tasks.free.insert(task.to_owned(), (worker, Instant::now()));
        }
        tasks.look();
    }

    pub(super) fn figures(&self) -> Vec<(String, f64)> {
        let tasks = self.0.lock();
        #[expect(clippy::cast_precision_loss, reason = "a count of moves")]
        let moved = tasks.moved as f64;
        let figures = [
            ("tasks_moved", moved),
            ("task_gap_s", tasks.gap_max.as_secs_f64()),
            ("rebalance_s", tasks.uneven_max.as_secs_f64()),
        ];
        figures.map(|(name, value)| (name.to_owned(), value)).into()
    }
}

impl Tasks {
    fn look(&mut self) {
        if self.is_even() {
            if let Some(since) = self.uneven_since.take() {
                self.uneven_max = self.uneven_max.max(since.elapsed());
            }
        } else {
            self.uneven_since.get_or_insert_with(Instant::now);
        }
    }

    /// Returns true if every task has a worker, and no worker more than one task beyond another.
    fn is_even(&self) -> bool {
        let mut shares: BTreeMap<u32, usize> = self.workers.iter().map(|worker| (*worker, 0)).collect();
        for holder in self.held.values() {
            *shares.entry(*holder).or_default() += 1;
        }
        let most = shares.values().max().copied().unwrap_or_default();
        let least = shares.values().min().copied().unwrap_or_default();
        self.held.len() == self.count && most - least <= 1
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn figures(board: &Board) -> Vec<f64> {
        board.figures().into_iter().map(|(_, value)| value).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_killed_workers_tasks_count_until_others_have_them_evenly() {
        let board = Board::default();
        for worker in [1, 2, 3] {
            board.joined(worker, 3);
        }
        for (worker, task) in [(1, "0"), (2, "1"), (3, "2")] {
            board.claimed(worker, task);
        }
        assert_eq!(figures(&board), [0.0, 0.0, 0.0]);
        board.left(3);
        advance(Duration::from_secs(2)).await;
        board.claimed(1, "2");
        assert_eq!(figures(&board), [1.0, 2.0, 2.0]);
        board.released(1, "2");
        advance(Duration::from_secs(1)).await;
        board.claimed(1, "2");
        assert_eq!(figures(&board), [1.0, 2.0, 2.0], "it came back, and did not move");
        board.clear();
        assert_eq!(figures(&board), [0.0, 0.0, 0.0]);
    }

    #[tokio::test(start_paused = true)]
    async fn shares_are_uneven_while_one_has_two_more_than_another() {
        let board = Board::default();
        board.joined(1, 2);
        board.claimed(1, "0");
        board.claimed(1, "1");
        board.joined(2, 2);
        advance(Duration::from_secs(1)).await;
        board.released(1, "1");
        advance(Duration::from_secs(1)).await;
        board.claimed(2, "1");
        assert_eq!(figures(&board), [1.0, 1.0, 2.0]);
    }
}
