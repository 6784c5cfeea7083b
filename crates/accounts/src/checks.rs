//! Turns to check proofs that take work: few at once, and fewer while they are wrong.
//!
//! A wrong proof keeps its turn for a while, so that guesses take a small part of a processor however many
//! are offered; right ones follow each other without a pause. Work that was begun keeps its turn to the end,
//! also if its client has left. One address cannot have all places of those that wait: the fewer are free,
//! the fewer it may have.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use stafett_access::Guessing;
use stafett_model::Lock;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use super::LoginError;

/// Proofs that are checked at once.
const TURNS: usize = 2;
/// Proofs that wait for a turn or have one; more are refused.
const WAITING_MAX: usize = 512;
/// Time for which a wrong proof keeps its turn. With two turns, at most 125 wrong passwords are checked each
/// second.
const WRONG_PAUSE: Duration = Duration::from_millis(16);

/// Outcome of a check.
pub(super) struct Checked<T> {
    pub outcome: T,
    pub is_wrong: bool,
}

#[derive(Debug)]
pub(super) struct Checks {
    turns: Semaphore,
    waiting: Lock<Waiting>,
    tasks: TaskTracker,
}

#[derive(Debug, Default)]
struct Waiting {
    all: usize,
    /// By network; no entry is 0.
    at: HashMap<IpAddr, usize>,
    /// Checks since the start.
    #[cfg(test)]
    begun: usize,
}

/// A place among those that wait.
struct Place {
    checks: Arc<Checks>,
    network: IpAddr,
}

impl Checks {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            turns: Semaphore::new(TURNS),
            waiting: Lock::default(),
            tasks: TaskTracker::new(),
        })
    }

    /// Does work on a thread that may block, when it has its turn.
    ///
    /// # Errors
    /// [`LoginError::Busy`] if too many wait, or if there is no thread.
    pub(super) async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        peer: IpAddr,
        work: impl FnOnce() -> Option<Checked<T>> + Send + 'static,
    ) -> Result<T, LoginError> {
        let place = self.place(peer)?;
        // A task of its own, of which there are as many as places: it outlives a client that leaves.
        let checked = self.tasks.spawn(async move {
            let Ok(turn) = place.checks.turns.acquire().await else {
                return None;
            };
            let checked = tokio::task::spawn_blocking(work).await.ok()??;
            if checked.is_wrong {
                tokio::time::sleep(WRONG_PAUSE).await;
            }
            drop(turn);
            Some(checked.outcome)
        });
        checked.await.ok().flatten().ok_or(LoginError::Busy)
    }

    fn place(self: &Arc<Self>, peer: IpAddr) -> Result<Place, LoginError> {
        let network = Guessing::network(peer);
        let mut waiting = self.waiting.lock();
        let free = WAITING_MAX.saturating_sub(waiting.all);
        if waiting.at.get(&network).copied().unwrap_or_default() >= free {
            return Err(LoginError::Busy);
        }
        waiting.all += 1;
        *waiting.at.entry(network).or_default() += 1;
        #[cfg(test)]
        {
            waiting.begun += 1;
        }
        let checks = Arc::clone(self);
        Ok(Place { checks, network })
    }

    /// Returns the number of checks since the start.
    #[cfg(test)]
    pub(super) fn begun(&self) -> usize {
        self.waiting.lock().begun
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut waiting = self.checks.waiting.lock();
        waiting.all -= 1;
        if let Some(count) = waiting.at.get_mut(&self.network) {
            *count -= 1;
            if *count == 0 {
                waiting.at.remove(&self.network);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::task::JoinSet;
    use tokio::time::Instant;

    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const THERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

    fn check(is_wrong: bool) -> impl FnOnce() -> Option<Checked<()>> + Send + 'static {
        move || {
            Some(Checked {
                outcome: (),
                is_wrong,
            })
        }
    }

    /// Time that some checks take together, on a clock that stands still while they work.
    async fn time_of(checks: &Arc<Checks>, count: usize, is_wrong: bool) -> Duration {
        let start = Instant::now();
        let mut all = JoinSet::new();
        for _ in 0..count {
            let checks = Arc::clone(checks);
            all.spawn(async move { checks.run(HERE, check(is_wrong)).await });
        }
        for one in all.join_all().await {
            assert_eq!(one, Ok(()));
        }
        start.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn wrong_proofs_follow_each_other_with_pauses_and_right_ones_without() {
        let checks = Checks::new();
        assert_eq!(time_of(&checks, 100, false).await, Duration::ZERO);
        let paused = time_of(&checks, 100, true).await;
        assert!(paused >= WRONG_PAUSE * 100 / 2, "{paused:?}");
        assert!(checks.waiting.lock().at.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_leaves_places_to_others() {
        let checks = Checks::new();
        let mut held: Vec<Place> = Vec::new();
        while let Ok(place) = checks.place(HERE) {
            held.push(place);
        }
        assert_eq!(held.len(), WAITING_MAX / 2);
        let mut others: Vec<Place> = Vec::new();
        while let Ok(place) = checks.place(THERE) {
            others.push(place);
        }
        assert_eq!(others.len(), WAITING_MAX / 4);
        assert_eq!(checks.run(HERE, check(false)).await, Err(LoginError::Busy));
        drop((held, others));
        assert_eq!(checks.run(HERE, check(false)).await, Ok(()));
        let waiting = checks.waiting.lock();
        assert!(waiting.at.is_empty() && waiting.all == 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_leaves_gives_its_turn_back_only_after_the_work() {
        let checks = Checks::new();
        let (end, ended) = std::sync::mpsc::sync_channel::<()>(1);
        let work = move || {
            let _ = ended.recv();
            Some(Checked {
                outcome: (),
                is_wrong: false,
            })
        };
        let mut client = JoinSet::new();
        client.spawn({
            let checks = Arc::clone(&checks);
            async move { checks.run(HERE, work).await }
        });
        while checks.turns.available_permits() == TURNS {
            tokio::task::yield_now().await;
        }
        client.shutdown().await;
        assert_eq!(checks.turns.available_permits(), TURNS - 1);
        drop(end);
        let all = u32::try_from(TURNS).unwrap();
        let _free = checks.turns.acquire_many(all).await.unwrap();
    }
}
