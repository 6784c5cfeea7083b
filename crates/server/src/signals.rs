//! When to stop: SIGTERM and SIGINT mean the same. When to read the settings again: SIGHUP.

use std::future::pending;
use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Those that stop, taken over from the moment this exists.
#[derive(Debug)]
pub(crate) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
    /// It stops where there is nothing to read again.
    hangup: Option<Signal>,
}

/// SIGHUP, taken over from the moment this exists.
pub(crate) fn hangup() -> io::Result<Signal> {
    signal(SignalKind::hangup())
}

impl StopSignals {
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: None,
        })
    }

    /// SIGHUP stops, too.
    pub(crate) fn and_hangup(self) -> io::Result<Self> {
        Ok(Self {
            hangup: Some(hangup()?),
            ..self
        })
    }

    /// Waits for the next one and gives its name.
    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            () = received(&mut self.hangup) => "SIGHUP",
        }
    }
}

async fn received(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => pending().await,
    }
}
