//! Changes that are in force in memory and being stored.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker, ready};

use stafett_journal::{Frame, Journal, StateWait, Ticket};
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

use crate::staging::{FRAMES_MAX, NotStored, all_outcomes, appends};

/// Future of a change's durability. The change is in force already; dropping this does not undo it.
#[derive(Debug)]
#[must_use = "the change is not durable before this resolves"]
pub struct Stored {
    ticket: Option<Ticket>,
    number: u64,
    progress: Arc<Progress>,
    /// Task that does the rest of the change; it ends by itself.
    rest: Option<JoinHandle<Result<(), NotStored>>>,
}

/// Number of staged changes, and the number up to which they are known to be durable.
#[derive(Debug, Default)]
pub struct Progress {
    staged: AtomicU64,
    durable: AtomicU64,
}

impl Progress {
    /// Returns true if every staged change is known to be durable.
    pub fn is_durable(&self) -> bool {
        self.durable.load(Ordering::Acquire) >= self.staged.load(Ordering::Acquire)
    }
}

impl Stored {
    /// Creates the result of a change that stores nothing.
    pub fn nothing(progress: &Arc<Progress>) -> Self {
        Self {
            ticket: None,
            number: 0,
            progress: Arc::clone(progress),
            rest: None,
        }
    }

    /// Adds a task that completes the change.
    pub fn and(self, rest: JoinHandle<Result<(), NotStored>>) -> Self {
        Self {
            rest: Some(rest),
            ..self
        }
    }
}

/// Stages frames. A refusal is returned at once; then nothing is stored, and nothing must be changed.
pub fn stage(
    journal: &dyn Journal,
    progress: &Arc<Progress>,
    frames: Vec<Frame>,
) -> Result<Stored, NotStored> {
    if frames.is_empty() {
        return Ok(Stored::nothing(progress));
    }
    let appends = appends(frames, FRAMES_MAX, StateWait::Synced);
    let number = progress.staged.fetch_add(1, Ordering::AcqRel) + 1;
    let mut stored = Stored {
        ticket: Some(journal.append(appends)),
        number,
        progress: Arc::clone(progress),
        rest: None,
    };
    match Pin::new(&mut stored).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Err(why)) => Err(why),
        Poll::Ready(Ok(())) | Poll::Pending => Ok(stored),
    }
}

/// Stages frames without a way to await them. A refusal is returned at once.
pub fn stage_unwatched(journal: &dyn Journal, frames: Vec<Frame>) -> Result<(), NotStored> {
    if frames.is_empty() {
        return Ok(());
    }
    let mut ticket = journal.append(appends(frames, FRAMES_MAX, StateWait::Written));
    match Pin::new(&mut ticket).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcomes) => all_outcomes(&outcomes),
        Poll::Pending => Ok(()),
    }
}

impl Future for Stored {
    type Output = Result<(), NotStored>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Some(ticket) = &mut this.ticket {
            let Poll::Ready(outcomes) = Pin::new(ticket).poll(context) else {
                return Poll::Pending;
            };
            this.ticket = None;
            if let Err(failed) = all_outcomes(&outcomes) {
                return Poll::Ready(Err(failed));
            }
            this.progress.durable.fetch_max(this.number, Ordering::AcqRel);
        }
        if let Some(rest) = &mut this.rest {
            let Poll::Ready(done) = Pin::new(rest).poll(context) else {
                return Poll::Pending;
            };
            this.rest = None;
            return Poll::Ready(done.unwrap_or(Err(NotStored::Unknown)));
        }
        Poll::Ready(Ok(()))
    }
}

/// Changes that run as tasks of their own: each completes whether or not its caller waits, so that stored
/// state and memory stay consistent.
#[derive(Debug, Default)]
pub struct Changes(TaskTracker);

/// A change in progress. It completes whether or not this is awaited.
pub struct Changing<T, E> {
    task: JoinHandle<Result<T, E>>,
}

impl Changes {
    /// Begins a change. Must be called within a Tokio runtime.
    pub fn begin<T, E>(&self, work: impl Future<Output = Result<T, E>> + Send + 'static) -> Changing<T, E>
    where
        T: Send + 'static,
        E: Send + 'static,
    {
        Changing {
            task: self.0.spawn(work),
        }
    }

    /// Waits until every change has ended. No change may begin afterwards.
    pub async fn finish(&self) {
        self.0.close();
        self.0.wait().await;
    }
}

impl<T, E> Changing<T, E> {
    /// Wraps a task that runs a change.
    pub fn of(task: JoinHandle<Result<T, E>>) -> Self {
        Self { task }
    }
}

impl<T, E: From<NotStored>> Future for Changing<T, E> {
    type Output = Result<T, E>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let ended = ready!(Pin::new(&mut self.task).poll(context));
        Poll::Ready(ended.unwrap_or_else(|_| Err(NotStored::Unknown.into())))
    }
}

impl<T, E> fmt::Debug for Changing<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Changing")
    }
}
