//! Errors of PostgreSQL in three classes: try again, poison, stop.

use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use crate::target::TargetError;

/// Classes of SQLSTATE (first two letters, PostgreSQL's appendix A) that pass.
const PASSING: &[&str] = &["08", "40", "53", "55", "57", "58", "XX"];

/// Errors of making what another connection makes at the same moment, also with IF NOT EXISTS.
const MADE_MEANWHILE: [SqlState; 3] = [
    SqlState::DUPLICATE_TABLE,
    SqlState::DUPLICATE_OBJECT,
    SqlState::DUPLICATE_SCHEMA,
];

/// Sorts the error of a statement that has rows.
pub(super) fn refused(error: &Error) -> TargetError {
    let Some(why) = error.as_db_error() else {
        return TargetError::Retry(words(error));
    };
    let code = why.code();
    // Those of the form of the rows are of all rows, not of one.
    let is_form = *code == SqlState::INVALID_BINARY_REPRESENTATION || *code == SqlState::BAD_COPY_FILE_FORMAT;
    match code.code().get(..2) {
        Some("22" | "23" | "44" | "54") if !is_form => TargetError::Poison {
            class: code.code().to_owned(),
            text: words(error),
        },
        // Errors of triggers and of functions' own RAISE.
        Some("P0") => TargetError::Poison {
            class: code.code().to_owned(),
            text: words(error),
        },
        _ => stopped(error),
    }
}

/// Sorts the error of a statement without rows.
pub(crate) fn stopped(error: &Error) -> TargetError {
    let Some(why) = error.as_db_error() else {
        // A wrong address, a refused login without words: the same thing may be mended elsewhere.
        return TargetError::Retry(words(error));
    };
    let (code, class) = (why.code(), why.code().code().get(..2).unwrap_or_default());
    let passes = PASSING.contains(&class) && *code != SqlState::DISK_FULL;
    // The same, seen by the indexes of the catalogs.
    let of_catalog = |name: &str| name.starts_with("pg_");
    let is_double = *code == SqlState::UNIQUE_VIOLATION && why.constraint().is_some_and(of_catalog);
    if passes || is_double || MADE_MEANWHILE.contains(code) {
        TargetError::Retry(words(error))
    } else {
        TargetError::Stop(words(error))
    }
}

/// Returns the server's own words, without values of rows in `DETAIL` that are long.
fn words(error: &Error) -> String {
    match error.as_db_error() {
        Some(why) => {
            let column = why
                .column()
                .map_or_else(String::new, |name| format!(", column {name}"));
            format!("{} ({}){column}", why.message(), why.code().code())
        }
        None => match std::error::Error::source(error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        },
    }
}
