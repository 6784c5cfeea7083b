//! Signals: SIGTERM and SIGINT stop the process, as a request does; SIGHUP reloads the settings.

use std::future::pending;
use std::io;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

/// Reason to stop the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stop {
    /// Name of the signal, or the route.
    pub(crate) by: &'static str,
    /// Time for connections to finish, if it was given.
    pub(crate) drain: Option<Duration>,
}

/// Signals and requests that stop the process, handled from the moment this exists.
#[derive(Debug)]
pub(crate) struct StopSignals {
    requests: mpsc::Receiver<Option<Duration>>,
    terminate: Signal,
    interrupt: Signal,
    /// SIGHUP, if there is no file to read again.
    hangup: Option<Signal>,
    /// Last stop that was told.
    told: Option<Stop>,
    /// Stop that was told in a run that did not end the process.
    left: Option<Stop>,
}

/// Handles SIGHUP from now on.
pub(crate) fn hangup() -> io::Result<Signal> {
    signal(SignalKind::hangup())
}

impl StopSignals {
    pub(crate) fn listen(requests: mpsc::Receiver<Option<Duration>>) -> io::Result<Self> {
        Ok(Self {
            requests,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: None,
            told: None,
            left: None,
        })
    }

    /// Makes SIGHUP stop the process too.
    pub(crate) fn and_hangup(self) -> io::Result<Self> {
        Ok(Self {
            hangup: Some(hangup()?),
            ..self
        })
    }

    /// Tells the last stop once more: the run in which it came goes on or begins anew for another reason.
    pub(crate) fn repeat(&mut self) {
        self.left = self.told.take();
    }

    /// Waits for the next signal or request.
    pub(crate) async fn next(&mut self) -> Stop {
        let stop = match self.left.take() {
            Some(stop) => stop,
            None => self.received().await,
        };
        self.told = Some(stop);
        stop
    }

    async fn received(&mut self) -> Stop {
        let by_signal = |by| Stop { by, drain: None };
        tokio::select! {
            _ = self.terminate.recv() => by_signal("SIGTERM"),
            _ = self.interrupt.recv() => by_signal("SIGINT"),
            () = received(&mut self.hangup) => by_signal("SIGHUP"),
            Some(drain) = self.requests.recv() => Stop { by: "POST /v1/node/shutdown", drain },
        }
    }
}

/// Waits for a signal; for ever if there is none.
pub(crate) async fn received(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stop_that_came_before_a_run_ended_otherwise_is_told_to_the_next_one() {
        let (ask, requests) = mpsc::channel(1);
        let mut signals = StopSignals::listen(requests).unwrap();
        ask.send(Some(Duration::from_secs(3))).await.unwrap();
        let told = signals.next().await;
        signals.repeat();
        assert_eq!(signals.next().await, told);
        drop(ask);
        signals.repeat();
        assert_eq!(signals.next().await, told, "until the process ends");
    }
}
