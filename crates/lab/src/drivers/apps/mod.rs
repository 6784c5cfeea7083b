//! Apps (`docs/apps.md`): workers that assemble sessions and pass them on.
//!
//! - `assembler`: a worker; `sessions`: the sessions of one of its tasks; `words`: its messages
//! - `board`: the worker of each task, and how long tasks had none

mod assembler;
mod board;
mod sessions;
mod words;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::json;
use stafett_model::Lock;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use self::assembler::Assembler;
use self::board::Board;
use super::{Destinations, DriverError, Seat};

/// Table of the sessions that are under way.
const TABLE: &str = "open";
const DURABILITY: &str = "stafett.durability";

/// The apps of a system: one for each topic that is assembled, of its name.
#[derive(Debug)]
pub struct Apps {
    /// Address of its HTTP listener.
    server: String,
    declared: Lock<BTreeSet<String>>,
    board: Arc<Board>,
    workers: AtomicU32,
}

impl Apps {
    pub fn new(server: &str) -> Self {
        Self {
            server: server.to_owned(),
            declared: Lock::default(),
            board: Arc::default(),
            workers: AtomicU32::new(0),
        }
    }

    /// Opens a worker. It has a name of its own: the claims of one that was cut off go to others.
    pub(super) async fn assembler(&self, seat: &Seat) -> Result<Assembler, DriverError> {
        let missing = || DriverError::Failed("there is no topic to assemble".to_owned());
        let app = seat.destinations.names.first().ok_or_else(missing)?;
        self.declare(app, seat).await?;
        let number = self.workers.fetch_add(1, Ordering::Relaxed);
        Assembler::open(&self.server, app, number, seat, &self.board).await
    }

    async fn declare(&self, app: &str, seat: &Seat) -> Result<(), DriverError> {
        let session = seat.role.session.clone().unwrap_or_default();
        let settings = seat.destinations.settings.iter();
        let durability = settings
            .filter(|(name, _)| name == DURABILITY)
            .map(|(_, value)| value)
            .next();
        let definition = json!({
            "topics": [app],
            "durability": durability,
            "worker_timeout_ms": millis(session.worker_timeout.0),
            "time": {"clock": "wall"},
            "tables": {TABLE: {}},
            // Workers are killed on purpose: no record or timer is to blame for it.
            "attempts_max": u32::MAX,
        });
        ask(&self.server, "PUT", app, &definition.to_string()).await?;
        if self.declared.lock().insert(app.to_owned()) {
            self.board.clear();
        }
        Ok(())
    }

    /// Deletes the apps of these topics.
    pub(super) async fn discard(&self, destinations: &Destinations) -> Result<(), DriverError> {
        for name in &destinations.names {
            let is_declared = self.declared.lock().remove(name);
            if is_declared {
                ask(&self.server, "DELETE", &format!("{name}?force=true"), "").await?;
            }
        }
        Ok(())
    }

    pub(super) fn figures(&self) -> Vec<(String, f64)> {
        self.board.figures()
    }
}

fn millis(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Makes one request about an app, on a connection of its own.
async fn ask(server: &str, method: &str, app: &str, body: &str) -> Result<(), DriverError> {
    let failed = |error: std::io::Error| DriverError::Failed(format!("{server}: {error}"));
    let mut stream = TcpStream::connect(server).await.map_err(failed)?;
    let length = body.len();
    let request = format!(
        "{method} /v1/apps/{app} HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.map_err(failed)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.map_err(failed)?;
    if answer.starts_with(b"HTTP/1.1 20") {
        return Ok(());
    }
    let mut said = format!("{method} of the app {app}: ");
    let _ = write!(said, "{}", String::from_utf8_lossy(&answer).replace("\r\n", " "));
    Err(DriverError::Refused(said))
}
