//! HTTP routes of a running journal: a backup.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use stafett_http::{Router, routing};
use stafett_journal::DiskJournal;

/// The journal, once it is open.
pub(crate) type JournalSlot = Arc<OnceLock<Arc<DiskJournal>>>;

pub(crate) fn router(journal: JournalSlot) -> Router {
    Router::new()
        .route("/journal/backup", routing::post(backup))
        .with_state(journal)
}

/// `POST /journal/backup?target=DIR`: the path, plain or percent-encoded, must be absolute and not exist yet.
async fn backup(
    State(journal): State<JournalSlot>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> (StatusCode, String) {
    if headers.contains_key(header::ORIGIN) {
        return (StatusCode::FORBIDDEN, "not from a web page\n".into());
    }
    let Some(journal) = journal.get().map(Arc::clone) else {
        return (
            StatusCode::SERVICE_UNAVAILABLE,
            "the journal is still recovering\n".into(),
        );
    };
    let target = query
        .as_deref()
        .and_then(|query| query.strip_prefix("target="))
        .and_then(decoded);
    let Some(target) = target.map(PathBuf::from).filter(|target| target.is_absolute()) else {
        return (
            StatusCode::BAD_REQUEST,
            "say where to: POST /journal/backup?target=/absolute/path\n".into(),
        );
    };
    match tokio::task::spawn_blocking(move || journal.backup(&target)).await {
        Ok(Ok(report)) => (
            StatusCode::OK,
            format!("{} segments, {} bytes\n", report.segments, report.bytes),
        ),
        Ok(Err(error)) => (StatusCode::CONFLICT, format!("{error}\n")),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}

/// Undoes percent-encoding. `None` if it is malformed.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let (high, low) = (digit(rest.next()?)?, digit(rest.next()?)?);
                u8::try_from(high * 16 + low).ok()?
            }
            plain => plain,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::decoded;

    #[test]
    fn percent_encoding_is_undone_or_refused() {
        assert_eq!(decoded("/a%20b/%C3%A9").as_deref(), Some("/a b/é"));
        for bad in ["%", "%2", "%zz", "%ff"] {
            assert_eq!(decoded(bad), None, "{bad}");
        }
    }
}
