//! The only place that maps the broker's errors to refusals.

use std::fmt::Display;

use axum::http::StatusCode;
use stafett_http::{Problem, slot};
use stafett_messaging::Stopped;
use stafett_messaging::exchanges::NamespaceError;
use stafett_messaging::queues::DeleteQueueError;

/// Refuses a request that does not fit the present state.
fn conflict(code: &'static str, why: impl Display) -> Problem {
    Problem::new(StatusCode::CONFLICT, code, why)
}

pub(crate) fn no_such_queue(why: impl Display) -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "no_such_queue", why)
}

/// Refuses a change that was not stored, or that may not have been.
pub(crate) fn not_stored(why: impl Display) -> Problem {
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "not_stored", why)
}

pub(crate) fn of_namespace(error: &NamespaceError) -> Problem {
    match error {
        NamespaceError::NoSuchNamespace => Problem::new(StatusCode::NOT_FOUND, "no_such_namespace", error),
        NamespaceError::IsDefault => conflict("is_default", error),
        NamespaceError::Closing => conflict("closing", error),
        NamespaceError::BadName => Problem::bad_request(error),
        NamespaceError::NotStored(_) => not_stored(error),
    }
}

pub(crate) fn of_deletion(error: DeleteQueueError) -> Problem {
    match error {
        DeleteQueueError::NoSuchQueue => no_such_queue(error),
        DeleteQueueError::InUse => conflict("in_use", error),
        DeleteQueueError::NotEmpty => conflict("not_empty", error),
        DeleteQueueError::Locked => conflict("exclusive", error),
        DeleteQueueError::NotStored(_) => not_stored(error),
    }
}

/// Describes a move that stopped after `messages`.
pub(crate) fn of_move(messages: u64, why: Stopped) -> Problem {
    let said = format!("{messages} messages moved, and no more: {why}");
    match why {
        Stopped::Full => conflict("queue_full", said),
        Stopped::TargetGone | Stopped::SourceGone => conflict("queue_gone", said),
        Stopped::TooLarge => conflict("message_too_large", said),
        Stopped::WithoutKey => conflict("message_without_key", said),
        Stopped::NoSpace => conflict("space_short", said),
        Stopped::Unreadable => conflict("unreadable", said),
        Stopped::Stopping => slot::not_serving(said),
        Stopped::NotStored(_) => not_stored(said),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_has_its_status_and_code() {
        let refused = |problem: Problem| (problem.status.as_u16(), problem.code);
        for (error, expected) in [
            (NamespaceError::NoSuchNamespace, (404, "no_such_namespace")),
            (NamespaceError::IsDefault, (409, "is_default")),
            (NamespaceError::Closing, (409, "closing")),
            (NamespaceError::BadName, (400, "bad_request")),
        ] {
            assert_eq!(refused(of_namespace(&error)), expected);
        }
        for (error, expected) in [
            (DeleteQueueError::NoSuchQueue, (404, "no_such_queue")),
            (DeleteQueueError::InUse, (409, "in_use")),
            (DeleteQueueError::NotEmpty, (409, "not_empty")),
            (DeleteQueueError::Locked, (409, "exclusive")),
        ] {
            assert_eq!(refused(of_deletion(error)), expected);
        }
        for (why, expected) in [
            (Stopped::Full, (409, "queue_full")),
            (Stopped::TargetGone, (409, "queue_gone")),
            (Stopped::SourceGone, (409, "queue_gone")),
            (Stopped::TooLarge, (409, "message_too_large")),
            (Stopped::WithoutKey, (409, "message_without_key")),
            (Stopped::NoSpace, (409, "space_short")),
            (Stopped::Unreadable, (409, "unreadable")),
            (Stopped::Stopping, (503, "not_serving")),
        ] {
            let problem = of_move(7, why);
            assert!(problem.detail.starts_with("7 messages moved, and no more: "));
            assert_eq!(refused(problem), expected);
        }
    }
}
