//! HTTP routes of a running journal: a backup.

use std::path::PathBuf;

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use stafett_http::{Policy, Problem, Router, Slot, query, routing};
use stafett_journal::DiskJournal;

pub(crate) fn router(journal: Slot<DiskJournal>) -> Router {
    let routes = Router::new()
        .route("/journal/backup", routing::post(backup))
        .with_state(journal);
    Policy::Programs.guard(routes)
}

/// `POST /journal/backup?target=DIR`: the path, plain or percent-encoded, must be absolute and not exist yet.
async fn backup(
    State(journal): State<Slot<DiskJournal>>,
    RawQuery(query): RawQuery,
) -> Result<String, Problem> {
    let journal = journal.get()?;
    // A plain path may contain `&` and `+`.
    let target = query.as_deref().and_then(|query| query.strip_prefix("target="));
    let target = target.and_then(query::decoded).map(PathBuf::from);
    let target = target
        .filter(|target| target.is_absolute())
        .ok_or_else(|| Problem::bad_request("say where to: POST /journal/backup?target=/absolute/path"))?;
    let report = tokio::task::spawn_blocking(move || journal.backup(&target))
        .await
        .map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", error))?
        .map_err(|error| Problem::new(StatusCode::CONFLICT, "backup_failed", error))?;
    Ok(format!("{} segments, {} bytes\n", report.segments, report.bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_backup_is_refused_while_the_journal_is_not_open() {
        let query = RawQuery(Some("target=/backup".to_owned()));
        let refused = backup(State(Slot::default()), query).await.unwrap_err();
        assert_eq!(refused.code, "not_serving");
    }
}
