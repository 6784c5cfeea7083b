//! Waiting for a system: how long at most, and whether it was that.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::drivers::DriverError;

/// Work that is watched: whether most of its time it had to wait, rather than kept this program busy.
#[derive(Debug)]
pub(super) struct Waited<F> {
    work: F,
    began: Option<Instant>,
    /// Since when it waits.
    since: Option<Instant>,
    idle: Duration,
}

impl<F: Future + Unpin> Waited<F> {
    pub(super) fn new(work: F) -> Self {
        Self {
            work,
            began: None,
            since: None,
            idle: Duration::ZERO,
        }
    }
}

impl<F: Future + Unpin> Future for Waited<F> {
    type Output = (F::Output, bool);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let began = *self.began.get_or_insert_with(Instant::now);
        if let Some(since) = self.since.take() {
            self.idle += since.elapsed();
        }
        match Pin::new(&mut self.work).poll(context) {
            Poll::Pending => {
                self.since = Some(Instant::now());
                Poll::Pending
            }
            // Most often it is ready at once.
            Poll::Ready(done) if self.idle.is_zero() => Poll::Ready((done, false)),
            Poll::Ready(done) => Poll::Ready((done, self.idle * 2 >= began.elapsed())),
        }
    }
}

/// Waits for work on the system. Once the client is told to stop, it is given up after a while.
pub(super) async fn before_the_end<T>(
    stop: &CancellationToken,
    patience: Duration,
    work: impl Future<Output = T>,
) -> Result<T, DriverError> {
    let given_up = async {
        stop.cancelled().await;
        sleep(patience).await;
    };
    tokio::select! {
        biased;
        done = work => Ok(done),
        () = given_up => Err(DriverError::Failed("nothing was taken any more".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waiting_is_told_from_work() {
        let slow = Box::pin(sleep(Duration::from_millis(5)));
        assert!(Waited::new(slow).await.1);
        // Whoever gives others their turn does not wait.
        let polite = Box::pin(tokio::task::yield_now());
        assert!(!Waited::new(polite).await.1);
        assert!(!Waited::new(Box::pin(async {})).await.1);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_is_waited_for_for_ever_once_it_is_over() {
        let stop = CancellationToken::new();
        let never = std::future::pending::<()>();
        let began = Instant::now();
        let ended = async {
            sleep(Duration::from_secs(10)).await;
            stop.cancel();
        };
        let patience = Duration::from_secs(3);
        let (given_up, ()) = tokio::join!(before_the_end(&stop, patience, never), ended);
        assert!(given_up.is_err());
        assert_eq!(began.elapsed(), Duration::from_secs(13));
        assert_eq!(before_the_end(&stop, patience, async { 5 }).await.unwrap(), 5);
    }
}
