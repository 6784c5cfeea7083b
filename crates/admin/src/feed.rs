//! Feeds: the last entries of something that goes on, and those that come.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use bytes::Bytes;
use stafett_http::{Draining, sse};
use stafett_model::Lock;
use tokio::sync::Notify;
use tokio::time::timeout;

/// Time without an entry after which a comment is sent.
const TICK: Duration = Duration::from_secs(10);
/// Entries of one piece of a stream.
const PIECE: usize = 100;

/// The last entries, numbered from 1. Clones share them.
#[derive(Debug)]
pub struct Feed<T>(Arc<Shared<T>>);

#[derive(Debug)]
struct Shared<T> {
    entries: Lock<Entries<T>>,
    grown: Notify,
    max: usize,
}

#[derive(Debug)]
struct Entries<T> {
    last: u64,
    kept: VecDeque<(u64, Arc<T>)>,
}

impl<T> Clone for Feed<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Feed<T> {
    /// Creates a feed that keeps the last `max` entries.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self(Arc::new(Shared {
            entries: Lock::new(Entries {
                last: 0,
                kept: VecDeque::new(),
            }),
            grown: Notify::new(),
            max,
        }))
    }

    pub fn push(&self, entry: T) {
        {
            let mut entries = self.0.entries.lock();
            entries.last += 1;
            if entries.kept.len() == self.0.max {
                entries.kept.pop_front();
            }
            let number = entries.last;
            entries.kept.push_back((number, Arc::new(entry)));
        }
        self.0.grown.notify_waiters();
    }

    /// Returns the entries after `after`, the newest first, with their numbers.
    pub(crate) fn newest(&self, after: u64) -> Vec<(u64, Arc<T>)> {
        let entries = self.0.entries.lock();
        let kept = entries.kept.iter().rev();
        kept.take_while(|(number, _)| *number > after).cloned().collect()
    }

    /// Returns the number of the last entry.
    pub(crate) fn last(&self) -> u64 {
        self.0.entries.lock().last
    }

    /// Returns the number of the entry before the last `count`.
    pub(crate) fn before_last(&self, count: u64) -> u64 {
        self.last().saturating_sub(count)
    }

    /// Waits for entries after `after`.
    async fn next(&self, after: u64) -> Vec<(u64, Arc<T>)> {
        loop {
            let grown = self.0.grown.notified();
            let mut grown = std::pin::pin!(grown);
            grown.as_mut().enable();
            let mut entries = self.newest(after);
            if !entries.is_empty() {
                entries.reverse();
                entries.truncate(PIECE);
                return entries;
            }
            grown.await;
        }
    }
}

impl<T: Send + Sync + 'static> Feed<T> {
    /// Answers with the entries after `after`, and those that come, as events. `show` returns an entry as
    /// JSON, or `None` if it is not wanted.
    pub(crate) fn stream(
        self,
        after: u64,
        event: &'static str,
        draining: Draining,
        show: impl Fn(u64, &T) -> Option<String> + Send + Sync + 'static,
    ) -> Response {
        let show = Arc::new(show);
        sse::answer(after, move |after| {
            let (feed, draining, show) = (self.clone(), draining.0.clone(), Arc::clone(&show));
            async move {
                let next = timeout(TICK, feed.next(after));
                let mut piece = String::new();
                let mut last = after;
                for (number, entry) in draining.run_until_cancelled(next).await?.unwrap_or_default() {
                    last = number;
                    if let Some(data) = show(number, &entry) {
                        sse::put(&mut piece, Some(&number.to_string()), event, &data);
                    }
                }
                if piece.is_empty() {
                    piece.push_str(sse::COMMENT);
                }
                Some((last, Bytes::from(piece)))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_feed_keeps_the_last_entries_and_wakes_those_that_wait() {
        let feed = Feed::new(3);
        for entry in 1..=5 {
            feed.push(entry);
        }
        let newest: Vec<_> = feed
            .newest(0)
            .iter()
            .map(|(number, entry)| (*number, **entry))
            .collect();
        assert_eq!(newest, [(5, 5), (4, 4), (3, 3)]);
        assert_eq!((feed.newest(4).len(), feed.before_last(2)), (1, 3));
        let (came, ()) = tokio::join!(feed.next(5), async { feed.push(6) });
        assert_eq!(
            came.first().map(|(number, entry)| (*number, **entry)),
            Some((6, 6))
        );
    }
}
