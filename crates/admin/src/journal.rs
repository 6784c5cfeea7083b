//! The journal: its figures, its segments, backups and scrubs.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stafett_http::api::{get, post};
use stafett_http::list::List;
use stafett_http::{Code, Problem, Query, Slot, body, server};
use stafett_journal::DiskJournal;
use stafett_journal::disk::{BackupError, JournalStatus, SegmentStatus};
use stafett_model::Lock;
use stafett_store::wall_ms;

use crate::operations::{self, Operations, Plan, Progress};
use crate::time::rfc3339;
use crate::{Routes, answer};

/// Backups and scrubs that are remembered.
const REMEMBERED_MAX: usize = 1000;

/// The journal behind the API, and the work that the API has done on it. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct JournalDesk {
    pub journal: Slot<DiskJournal>,
    /// Folder of backups that have a name alone: the setting `journal.backup_dir`.
    backup_dir: Option<PathBuf>,
    /// Durability of topics that have none of their own.
    durability: String,
    done: Arc<Lock<Done>>,
}

impl JournalDesk {
    /// Creates the part, without a journal so far.
    #[must_use]
    pub fn new(backup_dir: Option<PathBuf>, durability: String) -> Self {
        Self {
            backup_dir,
            durability,
            ..Self::default()
        }
    }
}

#[derive(Debug, Default)]
struct Done {
    backups: Vec<Arc<BackupStatus>>,
    scrub: Option<ScrubStatus>,
}

/// Figures of the journal.
#[derive(Debug, Serialize, JsonSchema)]
struct Journal {
    /// `ok`, or `failed`: it takes no more appends, and the broker starts again.
    state: &'static str,
    /// Number of the start.
    epoch: u32,
    /// Durability of topics that have none of their own.
    durability: String,
    segments: SegmentCounts,
    logs: usize,
    /// Readable bytes in sealed segments, as of the last look of the background.
    live_bytes: u64,
    /// Bytes in sealed segments that nothing refers to, as of the same look.
    dead_bytes: u64,
    /// Bytes of appends that were written since the start.
    written_bytes: u64,
    /// Bytes that the background has written again since the start.
    rewritten_bytes: u64,
    /// All bytes written, over those of appends.
    write_amplification: Option<f64>,
    /// Bytes of recent appends that are kept in memory.
    tail_cache_bytes: u64,
    /// Bytes that the next start would read again.
    replay_bytes: u64,
    /// Time of the last checkpoint.
    checkpoint_at: Option<String>,
    /// Times of syncs of the disk.
    sync: SyncTimes,
    /// Times from staging an append to its acknowledgement.
    append: AppendTimes,
    space: Space,
    /// Last scrub that was asked for since the start.
    scrub: Option<ScrubStatus>,
    /// Logs that take no appends, as the start found damage in them.
    fenced: Vec<String>,
    /// Ranges of logs that the start found lost.
    damaged: Vec<LostRange>,
    /// Sealed segments found damaged since the start.
    damaged_segments: u64,
    /// Last backup since the start.
    last_backup: Option<BackupStatus>,
}

/// Segment files by kind.
#[derive(Debug, Serialize, JsonSchema)]
struct SegmentCounts {
    /// In the order of arrival.
    arrival: usize,
    /// By log.
    sorted: usize,
    /// Empty.
    spare: usize,
}

/// Quantiles since the start, in milliseconds; null before the first sync.
#[derive(Debug, Serialize, JsonSchema)]
#[expect(clippy::struct_field_names, reason = "names of the answer say their unit")]
struct SyncTimes {
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
    p999_ms: Option<f64>,
}

/// Quantiles since the start, in milliseconds; null where there was none.
#[derive(Debug, Serialize, JsonSchema)]
struct AppendTimes {
    /// Of those that are acknowledged when they are written.
    written_p99_ms: Option<f64>,
    /// Of those that are acknowledged when they are synced.
    synced_p99_ms: Option<f64>,
}

/// Space on the disk.
#[derive(Debug, Serialize, JsonSchema)]
struct Space {
    free_bytes: Option<u64>,
    /// Bytes below which appends have to wait or are refused.
    free_bytes_min: u64,
    short: bool,
}

/// Offsets of a log that were lost to damage.
#[derive(Debug, Serialize, JsonSchema)]
struct LostRange {
    log: String,
    from: u64,
    to: u64,
}

/// A segment.
#[derive(Debug, Serialize, JsonSchema)]
struct Segment {
    number: u32,
    /// `arrival`: batches in the order of their arrival; `sorted`: batches by log.
    kind: &'static str,
    /// Size of the file.
    bytes: u64,
    created_at: String,
    /// First log of a sorted segment.
    first_log: Option<String>,
    /// Last log of a sorted segment.
    last_log: Option<String>,
}

/// A backup.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(rename = "Backup")]
struct BackupStatus {
    /// Path of the folder.
    target: String,
    at: String,
    segments: usize,
    bytes: u64,
    #[serde(skip)]
    at_ms: i64,
}

/// Result of reading all sealed segments.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(rename = "Scrub")]
struct ScrubStatus {
    at: String,
    /// Segments that were read.
    segments: usize,
    /// Segments that are damaged. The log of the broker names them.
    damaged: usize,
}

/// A backup to make.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct BackupOrder {
    /// Name of a new folder below the setting `journal.backup_dir`, or an absolute path, which is taken from
    /// this machine alone. It has to be on the file system of the data directory.
    target: String,
}

const SEGMENTS: List<(String, SegmentStatus), Segment> = List {
    name: |(name, _)| ("", name),
    sorts: &[
        ("number", |(_, segment)| segment.number.into()),
        ("bytes", |(_, segment)| segment.bytes),
        ("created_at", |(_, segment)| {
            u64::try_from(segment.created_at).unwrap_or(0)
        }),
    ],
    shown: |(_, segment)| shown(segment),
};

const BACKUPS: List<Arc<BackupStatus>, BackupStatus> = List {
    name: |backup| ("", &backup.target),
    sorts: &[("at", |backup| u64::try_from(backup.at_ms).unwrap_or(0))],
    shown: |backup| BackupStatus::clone(backup),
};

/// Returns the routes of the journal.
pub(crate) fn routes(routes: Routes) -> Routes {
    let backup = post(
        "/v1/journal/backups",
        "Backs the journal up into a new folder. Segments are shared with it, so it takes no space at first.",
    );
    let scrub = post(
        "/v1/journal/scrub",
        "Reads everything that is sealed, to find damage. The background does so all the time, slowly.",
    );
    routes
        .route(
            get("/v1/journal", "Shows the figures of the journal.")
                .answers::<Journal>(200)
                .refuses(&[Code::NotServing]),
            show,
        )
        .route(
            get(
                "/v1/journal/segments",
                "Lists the segments. The name, for choices, is kind and number: sorted-0000000009.",
            )
            .lists(&SEGMENTS)
            .refuses(&[Code::NotServing, Code::Unreadable]),
            segments,
        )
        .route(
            get(
                "/v1/journal/backups",
                "Lists the backups that were made since the start.",
            )
            .lists(&BACKUPS),
            backups,
        )
        .route(
            operations::begins::<BackupStatus>(backup)
                .event("backup.made")
                .body::<BackupOrder>()
                .refuses(&[Code::NotServing, Code::BackupFailed, Code::Forbidden]),
            back_up,
        )
        .route(
            operations::begins::<ScrubStatus>(scrub)
                .event("scrub.begun")
                .refuses(&[Code::NotServing]),
            scrub_all,
        )
}

async fn show(State(desk): State<JournalDesk>) -> Result<Response, Problem> {
    let journal = desk.journal.get()?;
    let status = journal.status();
    let report = journal.report();
    let damaged = report.damaged.iter().map(|(log, from, to)| LostRange {
        log: log.0.to_string(),
        from: from.0,
        to: to.0,
    });
    let done = desk.done.lock();
    let shown = Journal {
        state: if status.failure.is_some() { "failed" } else { "ok" },
        epoch: status.epoch,
        durability: desk.durability.clone(),
        segments: SegmentCounts {
            arrival: status.arrival_segments,
            sorted: status.sorted_segments,
            spare: status.spare_segments,
        },
        logs: status.logs,
        live_bytes: status.live_bytes,
        dead_bytes: status.dead_bytes,
        written_bytes: status.written_bytes,
        rewritten_bytes: status.rewritten_bytes,
        write_amplification: write_amplification(&status),
        tail_cache_bytes: status.tail_cache_bytes,
        replay_bytes: status.replay_bytes,
        checkpoint_at: status.checkpoint_at.map(rfc3339),
        sync: SyncTimes {
            p50_ms: status.sync.p50.map(ms),
            p99_ms: status.sync.p99.map(ms),
            p999_ms: status.sync.p999.map(ms),
        },
        append: AppendTimes {
            written_p99_ms: status.append_written.p99.map(ms),
            synced_p99_ms: status.append_synced.p99.map(ms),
        },
        space: Space {
            free_bytes: status.free_bytes,
            free_bytes_min: status.free_bytes_min,
            short: status.is_space_short,
        },
        scrub: done.scrub.clone(),
        fenced: report.fenced.iter().map(|log| log.0.to_string()).collect(),
        damaged: damaged.collect(),
        damaged_segments: status.damaged_segments,
        last_backup: done.backups.last().map(|last| BackupStatus::clone(last)),
    };
    Ok(answer(StatusCode::OK, &shown))
}

/// Converts seconds to milliseconds, to the microsecond.
fn ms(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e3
}

fn write_amplification(status: &JournalStatus) -> Option<f64> {
    let all = status.written_bytes.saturating_add(status.rewritten_bytes);
    (status.written_bytes > 0).then(|| all as f64 / status.written_bytes as f64)
}

async fn segments(State(desk): State<JournalDesk>, query: Query) -> Result<Response, Problem> {
    let journal = desk.journal.get()?;
    let found = tokio::task::spawn_blocking(move || journal.segments()).await;
    let found = found.map_err(io::Error::other).flatten();
    let found = found.map_err(|error| Problem::new(Code::Unreadable, error))?;
    let name = |segment: &SegmentStatus| format!("{}-{:010}", kind(segment), segment.number);
    let named = found.into_iter().map(|segment| (name(&segment), segment));
    Ok(answer(StatusCode::OK, &SEGMENTS.page(&query, named.collect())?))
}

fn kind(segment: &SegmentStatus) -> &'static str {
    if segment.is_sorted { "sorted" } else { "arrival" }
}

fn shown(segment: &SegmentStatus) -> Segment {
    Segment {
        number: segment.number,
        kind: kind(segment),
        bytes: segment.bytes,
        created_at: rfc3339(segment.created_at),
        first_log: segment.logs.map(|(first, _)| first.to_string()),
        last_log: segment.logs.map(|(_, last)| last.to_string()),
    }
}

async fn backups(State(desk): State<JournalDesk>, query: Query) -> Result<Response, Problem> {
    let all = desk.done.lock().backups.clone();
    Ok(answer(StatusCode::OK, &BACKUPS.page(&query, all)?))
}

async fn back_up(
    State(desk): State<JournalDesk>,
    State(operations): State<Operations>,
    query: Query,
    request: Request,
) -> Result<Response, Problem> {
    let peer = server::peer(&request);
    let order: BackupOrder = body::json(request).await?;
    let target = target(&order.target, desk.backup_dir.as_deref(), peer)?;
    let journal = desk.journal.get()?;
    let plan = Plan {
        what: "backup",
        on: BTreeMap::from([("target", target.display().to_string())]),
        unit: "segments",
        stops: false,
    };
    let work = async move |_: Arc<Progress>| {
        let folder = target.clone();
        let made = tokio::task::spawn_blocking(move || journal.backup(&folder)).await;
        let report = made
            .map_err(|error| Problem::new(Code::OutcomeUnknown, error))?
            .map_err(|error: BackupError| Problem::new(Code::BackupFailed, error))?;
        let at_ms = wall_ms();
        let backup = BackupStatus {
            target: target.display().to_string(),
            at: rfc3339(at_ms),
            segments: report.segments,
            bytes: report.bytes,
            at_ms,
        };
        let mut done = desk.done.lock();
        if done.backups.len() >= REMEMBERED_MAX {
            done.backups.remove(0);
        }
        done.backups.push(Arc::new(backup.clone()));
        Ok(backup)
    };
    operations.run(plan, &query, work).await
}

/// Returns the folder of a backup. An absolute path is taken from this machine alone.
fn target(given: &str, backup_dir: Option<&Path>, peer: Option<IpAddr>) -> Result<PathBuf, Problem> {
    let path = Path::new(given);
    if given.contains('\0') {
        return Err(Problem::bad_request("target has a NUL, which no path has"));
    }
    if path.is_absolute() {
        return if peer.is_some_and(|peer| peer.to_canonical().is_loopback()) {
            Ok(path.to_owned())
        } else {
            let why = "an absolute path is taken from this machine alone; from others, the name of a folder below \
                       the setting journal.backup_dir";
            Err(Problem::new(Code::Forbidden, why))
        };
    }
    let mut parts = path.components();
    let is_name = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
    if !is_name || given.ends_with('/') {
        let why = format!("target is the name of a new folder, or an absolute path, not {given:?}");
        return Err(Problem::bad_request(why));
    }
    let folder = backup_dir.ok_or_else(|| {
        let why = "a name is taken only with the setting journal.backup_dir; without it, target is an absolute path";
        Problem::bad_request(why)
    })?;
    Ok(folder.join(path))
}

async fn scrub_all(
    State(desk): State<JournalDesk>,
    State(operations): State<Operations>,
    query: Query,
) -> Result<Response, Problem> {
    let journal = desk.journal.get()?;
    let plan = Plan {
        what: "scrub",
        on: BTreeMap::new(),
        unit: "segments",
        stops: true,
    };
    let work = async move |progress: Arc<Progress>| {
        let step = move |done: usize, of: usize| {
            progress.set(done as u64, of as u64);
            if progress.stops() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        let read = tokio::task::spawn_blocking(move || journal.scrub_each(step)).await;
        let report = read.map_err(|error| Problem::new(Code::OutcomeUnknown, error))?;
        let scrub = ScrubStatus {
            at: rfc3339(wall_ms()),
            segments: report.segments,
            damaged: report.damaged,
        };
        desk.done.lock().scrub = Some(scrub.clone());
        Ok(scrub)
    };
    operations.run(plan, &query, work).await
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn a_target_is_a_name_below_the_folder_or_an_absolute_path_from_this_machine() {
        let (near, far) = (IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from([192, 0, 2, 7]));
        let folder = Some(Path::new("/backups"));
        let code = |given, folder, peer| match target(given, folder, peer) {
            Ok(path) => path.display().to_string(),
            Err(problem) => problem.code.word().to_owned(),
        };
        for (given, expected) in [
            ("2026-11-22", "/backups/2026-11-22"),
            ("a b", "/backups/a b"),
            ("..a", "/backups/..a"),
            ("", "bad_request"),
            (".", "bad_request"),
            ("..", "bad_request"),
            ("a/b", "bad_request"),
            ("a/", "bad_request"),
            ("../a", "bad_request"),
            ("a/../../b", "bad_request"),
            ("a\0", "bad_request"),
            ("/elsewhere", "forbidden"),
        ] {
            assert_eq!(code(given, folder, Some(far)), expected, "{given:?}");
        }
        assert_eq!(code("/elsewhere", None, Some(near)), "/elsewhere");
        let mapped = "::ffff:127.0.0.1".parse().ok();
        assert_eq!(code("/elsewhere", None, mapped), "/elsewhere");
        assert_eq!(code("/elsewhere", folder, None), "forbidden");
        assert_eq!(code("name", None, Some(near)), "bad_request");
    }
}
