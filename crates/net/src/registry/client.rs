//! Facts about a client, which its front end adds to the entry of the connection, and its channels.
//!
//! The state of channels belongs to the connection's task. Others ask for it: the task is woken, and shows it
//! on the board of the connection when it has its next turn. A task that is stuck shows nothing, and its
//! last state stays.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout_at};

use super::entry::ConnectionEntry;
use crate::lock::lock;

/// Client of a connection.
pub trait Client: fmt::Debug + Send + Sync + Any {
    fn words(&self) -> ClientWords;

    /// Returns the board of its channels, if its protocol has channels.
    fn channels(&self) -> Option<&ChannelBoard> {
        None
    }
}

/// A client, in the words of its protocol.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClientWords {
    pub protocol: &'static str,
    pub user: Option<String>,
    pub namespace: Option<String>,
    /// Name that it gave itself.
    pub name: Option<String>,
    /// Its software, and the version of that.
    pub product: Option<String>,
    pub version: Option<String>,
    pub properties: Vec<(String, String)>,
}

/// State of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChannelState {
    pub number: u16,
    /// It is being closed.
    pub closes: bool,
    /// Its messages are confirmed.
    pub confirms: bool,
    /// Its messages and settlements wait for a commit.
    pub transacts: bool,
    /// Limit of each of its consumers; 0 if there is none.
    pub prefetch: u32,
    /// Limit of all of its consumers together; 0 if there is none.
    pub prefetch_shared: u32,
    /// Messages that the client has to settle.
    pub unsettled: u64,
    /// Messages that are not confirmed yet.
    pub unconfirmed: u64,
    /// Messages that wait for a commit.
    pub uncommitted: u64,
    /// Settlements that wait for a commit.
    pub uncommitted_settlements: u64,
    pub consumers: u32,
}

/// Channels of a connection, as its task showed them last.
#[derive(Debug)]
pub struct ChannelBoard {
    count: AtomicU32,
    is_asked: AtomicBool,
    wake: Arc<Notify>,
    shown: Mutex<Shown>,
}

#[derive(Debug, Default)]
struct Shown {
    states: Vec<ChannelState>,
    waiting: Vec<oneshot::Sender<()>>,
}

impl ChannelBoard {
    /// Creates a board. `wake` wakes the connection's task.
    #[must_use]
    pub fn new(wake: Arc<Notify>) -> Self {
        Self {
            count: AtomicU32::new(0),
            is_asked: AtomicBool::new(false),
            wake,
            shown: Mutex::default(),
        }
    }

    /// Returns the number of channels.
    pub fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    pub fn set_count(&self, count: usize) {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.count.store(count, Ordering::Relaxed);
    }

    /// Returns true if the task is to show the channels.
    #[inline]
    pub fn is_asked(&self) -> bool {
        self.is_asked.load(Ordering::Relaxed)
    }

    /// Shows the channels.
    pub fn show(&self, states: Vec<ChannelState>) {
        let mut shown = self.shown();
        self.is_asked.store(false, Ordering::Relaxed);
        shown.states = states;
        // The receivers may be gone.
        for waiting in shown.waiting.drain(..) {
            let _ = waiting.send(());
        }
    }

    /// Returns the channels as they were shown last.
    pub fn last(&self) -> Vec<ChannelState> {
        self.shown().states.clone()
    }

    /// Asks the task. The receiver resolves when it has shown the channels.
    fn ask(&self) -> oneshot::Receiver<()> {
        let (waiting, answered) = oneshot::channel();
        {
            let mut shown = self.shown();
            shown.waiting.retain(|waiting| !waiting.is_closed());
            shown.waiting.push(waiting);
            self.is_asked.store(true, Ordering::Relaxed);
        }
        self.wake.notify_one();
        answered
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        lock(&self.shown)
    }
}

/// Has connections show their channels, and waits for all of them together, at most for `patience`.
pub async fn ask_channels(entries: &[Arc<ConnectionEntry>], patience: Duration) {
    let until = Instant::now() + patience;
    let clients = entries.iter().filter_map(|entry| entry.client());
    let asked: Vec<_> = clients
        .filter_map(|client| client.channels().map(ChannelBoard::ask))
        .collect();
    for answered in asked {
        if timeout_at(until, answered).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Shows(ChannelBoard);

    impl Client for Shows {
        fn words(&self) -> ClientWords {
            ClientWords::default()
        }

        fn channels(&self) -> Option<&ChannelBoard> {
            Some(&self.0)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_is_stuck_costs_the_patience_and_its_last_channels_stay() {
        let wake = Arc::<Notify>::default();
        let client = Arc::new(Shows(ChannelBoard::new(Arc::clone(&wake))));
        let entry = ConnectionEntry::of(1, Arc::default());
        entry.introduce(Arc::<Shows>::clone(&client));
        let channel = ChannelState {
            number: 7,
            ..ChannelState::default()
        };
        let entries = [entry];
        let patience = Duration::from_millis(200);
        let task = async {
            wake.notified().await;
            assert!(client.0.is_asked());
            client.0.show(vec![channel]);
        };
        let begun = Instant::now();
        tokio::join!(ask_channels(&entries, patience), task);
        assert_eq!((client.0.last(), client.0.is_asked()), (vec![channel], false));
        assert_eq!(begun.elapsed(), Duration::ZERO);
        ask_channels(&entries, patience).await;
        assert_eq!(begun.elapsed(), patience);
        assert_eq!(client.0.last(), [channel]);
    }
}
