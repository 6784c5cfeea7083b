//! A client that connects and keeps silent.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::recorder::Recorder;
use crate::drivers::Driver;

/// Holds a connection until it is told to stop.
pub(super) async fn run(driver: Arc<dyn Driver>, recorder: Arc<Recorder>, stop: CancellationToken) {
    match driver.connection().await {
        Ok(connection) => {
            recorder.client_came();
            stop.cancelled().await;
            recorder.client_went();
            drop(connection);
        }
        Err(error) => {
            recorder.count(|counts| counts.failed += 1);
            recorder.trouble(&error.to_string());
        }
    }
}
