//! A run as it goes on: lines of its `live.ndjson`, as server-sent events. The id of an event is the number
//! of bytes of the file up to its end.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path as FilePath, PathBuf};
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use bytes::Bytes;
use serde_json::Value;
use stafett_http::api::get;
use stafett_http::server::Draining;
use stafett_http::{Api, Code, Parameter, Path, Problem, Query, sse};

use super::Lab;
use crate::run::live::LIVE;

const FROM: Parameter = Parameter::number(
    "from",
    u64::MAX,
    "Byte of the file at which to begin, as in an id; by default the last point's beginning.",
);
/// Bytes that are read at a time, and in which the state of now is looked for.
const READ_BYTES: usize = 256 * 1024;
/// Time between two looks at the file, and between two comments of a silent stream.
const LOOKS_EVERY: Duration = Duration::from_millis(250);
const LOOKS_PER_COMMENT: u32 = 40;

pub(super) fn routes(api: Api<Lab>) -> Api<Lab> {
    api.route(
        get(
            "/lab/v1/runs/{id}/events",
            "Follows a run: begins, does, point, second, ended, closed. Last-Event-ID goes on behind an event.",
        )
        .query(&[FROM])
        .streams::<Value>(sse::TYPE)
        .refuses(&[Code::NoSuchRun]),
        follow,
    )
}

struct Follower {
    path: PathBuf,
    at: u64,
    draining: Draining,
}

async fn follow(
    State(lab): State<Lab>,
    Path(id): Path<String>,
    query: Query,
    headers: HeaderMap,
    draining: Draining,
) -> Result<Response, Problem> {
    let path = lab.known_run(&id)?.join(LIVE);
    let last = headers
        .get("last-event-id")
        .and_then(|id| id.to_str().ok()?.parse().ok());
    let at = match last.or(query.number("from", u64::MAX)?) {
        Some(at) => at,
        None => last_point(&path),
    };
    let follower = Follower { path, at, draining };
    Ok(sse::answer(follower, |mut follower| async move {
        let piece = follower.next().await?;
        Some((follower, piece))
    }))
}

impl Follower {
    /// Waits for lines, and returns them as events; a comment if none came. `None` at the end of the server.
    async fn next(&mut self) -> Option<Bytes> {
        for _ in 0..LOOKS_PER_COMMENT {
            let mut piece = String::new();
            for (end, line) in lines(&self.path, self.at) {
                self.at = end;
                let event = event_of(&line);
                sse::put(&mut piece, Some(&end.to_string()), &event, &line);
            }
            if !piece.is_empty() {
                return Some(piece.into());
            }
            let waits = tokio::time::sleep(LOOKS_EVERY);
            self.draining.0.run_until_cancelled(waits).await?;
        }
        Some(Bytes::from_static(sse::COMMENT.as_bytes()))
    }
}

fn event_of(line: &str) -> String {
    let value: Value = serde_json::from_str(line).unwrap_or_default();
    let event = value.get("event").and_then(Value::as_str);
    event.unwrap_or("unknown").to_owned()
}

/// Whole lines from a byte on, each with the byte behind it.
fn lines(path: &FilePath, from: u64) -> Vec<(u64, String)> {
    let Ok(bytes) = read(path, from) else {
        return Vec::new();
    };
    let mut at = from;
    let whole = bytes
        .split_inclusive(|byte| *byte == b'\n')
        .filter(|line| line.ends_with(b"\n"));
    let placed = whole.map(|line| {
        at += line.len() as u64;
        (at, String::from_utf8_lossy(line).trim().to_owned())
    });
    placed.filter(|(_, line)| !line.is_empty()).collect()
}

fn read(path: &FilePath, from: u64) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(READ_BYTES as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The last lines of a file, from a whole line on.
fn tail(path: &FilePath) -> Vec<(u64, String)> {
    let length = path.metadata().map_or(0, |metadata| metadata.len());
    let from = length.saturating_sub(READ_BYTES as u64);
    let mut found = lines(path, from);
    if from > 0 && !found.is_empty() {
        // It may have lost its beginning.
        found.remove(0);
    }
    found
}

/// Returns the byte at which the last point begins, or the last program of the run.
fn last_point(path: &FilePath) -> u64 {
    let found = tail(path);
    let last = found
        .iter()
        .rev()
        .find(|(_, line)| matches!(event_of(line).as_str(), "point" | "begins"));
    last.map_or(0, |(end, line)| end.saturating_sub(line.len() as u64 + 1))
}

/// Returns the point under way, its last second, and the work of the lab.
pub(super) fn now(folder: &FilePath) -> Option<Value> {
    let mut now = serde_json::Map::new();
    for (_, line) in tail(&folder.join(LIVE)) {
        let Ok(Value::Object(mut fields)) = serde_json::from_str(&line) else {
            continue;
        };
        let event = fields.remove("event");
        fields.remove("at");
        match event.as_ref().and_then(Value::as_str) {
            Some("begins" | "ended" | "closed") => now.clear(),
            Some("does") => {
                now.insert("does".to_owned(), fields.remove("text").unwrap_or_default());
            }
            Some("point") => now = fields,
            Some("second") => now.extend(fields),
            _ => {}
        }
    }
    (!now.is_empty()).then_some(Value::Object(now))
}
