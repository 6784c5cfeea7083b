//! Signals that stop the program: SIGTERM and SIGINT mean the same.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Does work until it is done. A signal cancels `stop`, upon which the work comes to its end. Signals are
/// handled before the work begins.
/// Fails if they cannot be.
pub(crate) async fn until_signal<T>(stop: CancellationToken, work: impl Future<Output = T>) -> io::Result<T> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::pin!(work);
    tokio::select! {
        done = &mut work => return Ok(done),
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    stop.cancel();
    Ok(work.await)
}
