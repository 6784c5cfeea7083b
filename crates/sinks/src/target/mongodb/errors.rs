//! Errors of a server, sorted by their codes.

use super::answer::Answer;
use crate::target::TargetError;

/// A document of that `_id`, or of another unique index, is there.
pub(super) const DUPLICATE: i64 = 11000;

pub(super) fn away(why: impl std::fmt::Display) -> TargetError {
    TargetError::Retry(format!("MongoDB is away: {why}"))
}

/// Codes of errors that pass: no primary, a shutdown, a time-out, a lock, a conflict.
const PASSING: [i64; 22] = [
    6, 7, 24, 43, 46, 50, 63, 64, 79, 89, 91, 100, 112, 134, 189, 262, 9001, 10107, 11600, 11602, 13435,
    13436,
];
/// Codes of single documents that need another setting: rights, space, no such database.
const STOPPING: [i64; 6] = [13, 18, 26, 73, 166, 14031];

/// Refuses an answer that is an error of the command as a whole.
pub(super) fn sorted(answer: &Answer) -> Result<(), TargetError> {
    let found = answer.document("writeConcernError");
    if let Some(concern) = found {
        // The documents are there, and may be gone with their server.
        return Err(away(
            concern.text("errmsg").unwrap_or("the write has no majority"),
        ));
    }
    if answer.is("ok") {
        return Ok(());
    }
    let code = answer.integer("code").unwrap_or(0);
    let text = format!(
        "MongoDB refuses ({code}): {}",
        cut(answer.text("errmsg").unwrap_or("no reason"))
    );
    // Two writers that add a position at the same time: one of them finds it the next time.
    Err(if PASSING.contains(&code) || code == DUPLICATE {
        TargetError::Retry(text)
    } else {
        TargetError::Stop(text)
    })
}

/// Sorts the error of one document.
pub(super) fn of_document(error: &Answer) -> TargetError {
    let code = error.integer("code").unwrap_or(0);
    let text = cut(error.text("errmsg").unwrap_or("no reason"));
    if PASSING.contains(&code) {
        TargetError::Retry(text)
    } else if STOPPING.contains(&code) {
        TargetError::Stop(format!("MongoDB refuses ({code}): {text}"))
    } else {
        TargetError::Poison {
            class: code.to_string(),
            text,
        }
    }
}

/// Letters of a message, at most.
const CITED: usize = 300;

fn cut(text: &str) -> String {
    text.chars().take(CITED).collect()
}
