//! Signals: SIGTERM and SIGINT stop the process; SIGHUP reloads the settings.

use std::future::pending;
use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Signals that stop the process, handled from the moment this exists.
#[derive(Debug)]
pub(crate) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
    /// SIGHUP, if there is no file to read again.
    hangup: Option<Signal>,
}

/// Handles SIGHUP from now on.
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

    /// Makes SIGHUP stop the process too.
    pub(crate) fn and_hangup(self) -> io::Result<Self> {
        Ok(Self {
            hangup: Some(hangup()?),
            ..self
        })
    }

    /// Waits for the next signal and returns its name.
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
