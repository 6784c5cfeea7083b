//! Tickets: pending results of appends and reads.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use smallvec::SmallVec;
use stafett_model::Lock;
use tokio::sync::oneshot;

use crate::contract::{LogSlice, Outcome, ReadError};

/// Future of the outcomes of one call of `append`, in the order of its appends.
#[derive(Debug)]
pub struct Ticket(Arc<TicketCell>);

/// Outcomes of the appends of one call.
pub type Outcomes = SmallVec<[Outcome; 2]>;

#[derive(Debug)]
struct TicketCell(Lock<TicketState>);

#[derive(Debug)]
struct TicketState {
    outcomes: Outcomes,
    missing: usize,
    /// True if all appends settled so far are committed.
    committed: bool,
    waker: Option<Waker>,
}

/// Non-blocking view of a ticket's outcome. A ticket can have any number of views.
#[derive(Debug)]
pub struct TicketView(Arc<TicketCell>);

/// Write side of a ticket, for one append. Dropped unsettled, the outcome is unknown.
#[derive(Debug)]
pub struct TicketSettler {
    shared: Arc<TicketCell>,
    index: usize,
    settled: bool,
    since: Instant,
}

impl Ticket {
    /// Creates a ticket for `appends` appends, with a settler for each.
    pub fn new(appends: usize) -> (Self, impl Iterator<Item = TicketSettler>) {
        let outcomes = std::iter::repeat_n(Outcome::Unknown, appends).collect();
        let shared = Arc::new(TicketCell(Lock::new(TicketState {
            outcomes,
            missing: appends,
            committed: true,
            waker: None,
        })));
        let settlers = Arc::clone(&shared);
        let since = Instant::now();
        (
            Self(shared),
            (0..appends).map(move |index| TicketSettler {
                shared: Arc::clone(&settlers),
                index,
                settled: false,
                since,
            }),
        )
    }

    /// Creates a ticket of one append with this outcome.
    pub fn decided(outcome: Outcome) -> Self {
        let state = TicketState {
            missing: 0,
            committed: matches!(outcome, Outcome::Committed(_)),
            outcomes: SmallVec::from_iter([outcome]),
            waker: None,
        };
        Self(Arc::new(TicketCell(Lock::new(state))))
    }

    /// Returns a view of the outcome.
    pub fn glance(&self) -> TicketView {
        TicketView(Arc::clone(&self.0))
    }

    /// Blocks this thread until the result is known; for tools and tests without a runtime.
    pub fn wait(self) -> Outcomes {
        struct Unpark(std::thread::Thread);
        impl std::task::Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut ticket = self;
        loop {
            match Pin::new(&mut ticket).poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(outcomes) => return outcomes,
                Poll::Pending => std::thread::park(),
            }
        }
    }
}

impl TicketView {
    /// Returns true if all appends are committed, false if not; `None` while undecided.
    pub fn committed(&self) -> Option<bool> {
        let state = self.0.0.lock();
        (state.missing == 0).then_some(state.committed)
    }
}

impl Future for Ticket {
    type Output = Outcomes;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcomes> {
        let mut state = self.0.0.lock();
        if state.missing == 0 {
            return Poll::Ready(std::mem::take(&mut state.outcomes));
        }
        match &mut state.waker {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}

impl TicketSettler {
    /// Returns how long its append has been pending.
    pub(crate) fn waited(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }

    pub fn settle(mut self, outcome: Outcome) {
        self.set(outcome);
    }

    fn set(&mut self, outcome: Outcome) {
        self.settled = true;
        let waker = {
            let mut state = self.shared.0.lock();
            state.committed &= matches!(outcome, Outcome::Committed(_));
            if let Some(slot) = state.outcomes.get_mut(self.index) {
                *slot = outcome;
            }
            state.missing = state.missing.saturating_sub(1);
            if state.missing == 0 {
                state.waker.take()
            } else {
                None
            }
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Drop for TicketSettler {
    fn drop(&mut self) {
        if !self.settled {
            self.set(Outcome::Unknown);
        }
    }
}

/// Results of a read, log by log in the order of the request.
pub type ReadResult = Vec<Result<LogSlice, ReadError>>;

/// A read that is complete, or running on a blocking thread.
#[derive(Debug)]
pub enum ReadTicket {
    Ready(ReadResult),
    Pending(oneshot::Receiver<ReadResult>),
}

/// Result of a search by time: the whole batch with its placement; `None` if there is none.
pub type TimeResult = Result<Option<Bytes>, ReadError>;

/// A search by time that is complete, or running on a blocking thread.
#[derive(Debug)]
pub enum TimeTicket {
    Ready(TimeResult),
    Pending(oneshot::Receiver<TimeResult>),
}

/// Error: the journal was dropped during a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the journal stopped during the read")]
pub struct ReadInterrupted;

impl ReadTicket {
    pub async fn finish(self) -> Result<ReadResult, ReadInterrupted> {
        match self {
            Self::Ready(result) => Ok(result),
            Self::Pending(receiver) => receiver.await.map_err(|_| ReadInterrupted),
        }
    }

    /// Blocks this thread until the result is known; for tools and tests without a runtime.
    pub fn wait(self) -> Result<ReadResult, ReadInterrupted> {
        match self {
            Self::Ready(result) => Ok(result),
            Self::Pending(receiver) => receiver.blocking_recv().map_err(|_| ReadInterrupted),
        }
    }
}

impl TimeTicket {
    pub async fn finish(self) -> Result<TimeResult, ReadInterrupted> {
        match self {
            Self::Ready(result) => Ok(result),
            Self::Pending(receiver) => receiver.await.map_err(|_| ReadInterrupted),
        }
    }

    /// Blocks this thread until the result is known; for tools and tests without a runtime.
    pub fn wait(self) -> Result<TimeResult, ReadInterrupted> {
        match self {
            Self::Ready(result) => Ok(result),
            Self::Pending(receiver) => receiver.blocking_recv().map_err(|_| ReadInterrupted),
        }
    }
}
