//! The only place that maps the broker's errors to refusals.

use std::fmt::Display;

use stafett_groups::GroupError;
use stafett_http::{Code, Problem};
use stafett_journal::Refusal;
use stafett_messaging::exchanges::NamespaceError;
use stafett_messaging::queues::{ConsumeError, DeleteQueueError, ReceiveError, Refused};
use stafett_messaging::{PublishError, PublishRefusal, Published, SendError, Stopped};
use stafett_store::{NotStored, NotStoredKind};
use stafett_topics::{AlterError, CreateError, DeleteError, GrowError, PARTITIONS_MAX};

use crate::groups::no_such_group;
use crate::topics::{RefusedEdit, no_such_topic};

/// Codes of [`of_storage`].
pub(crate) const STORAGE: [Code; 4] = [
    Code::NotServing,
    Code::DiskFull,
    Code::NotStored,
    Code::OutcomeUnknown,
];
/// Codes of [`of_deletion`].
pub(crate) const DELETION: [Code; 5] = [
    Code::NoSuchQueue,
    Code::InUse,
    Code::NotEmpty,
    Code::Exclusive,
    Code::Changed,
];
/// Codes of [`of_move`].
pub(crate) const MOVE: [Code; 7] = [
    Code::Unroutable,
    Code::MessageWithoutKey,
    Code::QueueFull,
    Code::QueueGone,
    Code::MessageTooLarge,
    Code::SpaceShort,
    Code::Unreadable,
];

/// Codes of [`of_sending`].
pub(crate) const SENDING: [Code; 11] = [
    Code::NoSuchNamespace,
    Code::NoSuchQueue,
    Code::NoSuchClient,
    Code::NotRegistered,
    Code::TooManyTargets,
    Code::OutOfRange,
    Code::QueueFull,
    Code::QueueGone,
    Code::MessageTooLarge,
    Code::BadJson,
    Code::TooLarge,
];
/// Codes of [`of_publishing`].
pub(crate) const PUBLISHING: [Code; 9] = [
    Code::NoSuchNamespace,
    Code::NoSuchExchange,
    Code::InternalExchange,
    Code::Unroutable,
    Code::QueueFull,
    Code::MessageTooLarge,
    Code::MessageWithoutKey,
    Code::OutOfRange,
    Code::NotRegistered,
];
/// Codes of [`of_receiving`].
pub(crate) const RECEIVING: [Code; 7] = [
    Code::NoSuchQueue,
    Code::Forbidden,
    Code::Exclusive,
    Code::InUse,
    Code::QueueGone,
    Code::TooManyInFlight,
    Code::Unreadable,
];

pub(crate) fn of_sending(error: &SendError) -> Problem {
    let problem = |code| Problem::new(code, error);
    match error {
        SendError::NoSuchNamespace => problem(Code::NoSuchNamespace),
        SendError::NoSuchQueue { at, name } => {
            problem(Code::NoSuchQueue).with("queue", &**name).with("at", *at)
        }
        SendError::TooManyQueues { at } => problem(Code::TooManyTargets).with("at", *at),
        SendError::DelayTooLong { at, max_ms } => {
            let problem = problem(Code::OutOfRange)
                .with("field", "delay_ms")
                .with("at", *at);
            problem.with("min", 0).with("max", *max_ms)
        }
        SendError::Refused { at, why } => match why {
            Refused::QueueFull => problem(Code::QueueFull),
            Refused::TooLarge | Refused::Journal(Refusal::TooLarge { .. }) => problem(Code::MessageTooLarge),
            Refused::Gone => problem(Code::QueueGone),
            Refused::Journal(why) => of_storage(NotStored::Refused(*why), error),
        }
        .with("at", *at),
        SendError::NotStored(NotStored::Refused(Refusal::TooLarge { .. })) => problem(Code::MessageTooLarge),
        SendError::NotStored(why) => of_storage(*why, error),
    }
}

pub(crate) fn of_publishing(error: PublishError) -> Problem {
    let code = match error {
        PublishError::NoSuchNamespace => Code::NoSuchNamespace,
        PublishError::NoSuchExchange => Code::NoSuchExchange,
        PublishError::Internal => Code::InternalExchange,
    };
    Problem::new(code, error)
}

/// Refuses a message for its outcome, unless it is stored.
pub(crate) fn of_outcome(outcome: Published) -> Result<(), Problem> {
    let why = match outcome {
        Published::Stored => return Ok(()),
        Published::Unroutable => {
            let said = "no binding leads to a queue or topic for this message";
            return Err(Problem::new(Code::Unroutable, said));
        }
        Published::Unknown => return Err(of_storage(NotStored::Unknown, NotStored::Unknown)),
        Published::Refused(why) => why,
    };
    let code = match why {
        PublishRefusal::QueueFull => Code::QueueFull,
        PublishRefusal::TooLarge | PublishRefusal::Journal(Refusal::TooLarge { .. }) => Code::MessageTooLarge,
        PublishRefusal::WithoutKey => Code::MessageWithoutKey,
        PublishRefusal::DelayTooLong { max_ms } => {
            let problem = Problem::new(Code::OutOfRange, why).with("field", "delay_ms");
            return Err(problem.with("min", 0).with("max", max_ms));
        }
        PublishRefusal::Journal(refusal) => return Err(of_storage(NotStored::Refused(refusal), why)),
    };
    Err(Problem::new(code, why))
}

pub(crate) fn of_receiving(error: ReceiveError) -> Problem {
    let code = match error {
        ReceiveError::Locked => Code::Exclusive,
        ReceiveError::InUse => Code::InUse,
        ReceiveError::TooManyInFlight => Code::TooManyInFlight,
        ReceiveError::Unreadable => Code::Unreadable,
        ReceiveError::Gone => Code::QueueGone,
        ReceiveError::NotStored(why) => return of_storage(why, why),
    };
    Problem::new(code, error)
}

pub(crate) fn of_consuming(error: ConsumeError) -> Problem {
    let code = match error {
        ConsumeError::Exclusive | ConsumeError::InUse => Code::InUse,
        ConsumeError::Locked => Code::Exclusive,
        ConsumeError::Gone => Code::QueueGone,
        ConsumeError::TooManyFilters => Code::TooManyFilters,
    };
    Problem::new(code, error)
}

/// Refuses a change that was not stored, or that may not have been; `why` is the reason for people.
pub(crate) fn of_storage(error: NotStored, why: impl Display) -> Problem {
    let code = match error.kind() {
        NotStoredKind::Unknown => Code::OutcomeUnknown,
        NotStoredKind::DiskFull => Code::DiskFull,
        NotStoredKind::Closed => Code::NotServing,
        NotStoredKind::Refused => Code::NotStored,
    };
    Problem::new(code, why)
}

pub(crate) fn of_namespace(error: &NamespaceError) -> Problem {
    let code = match error {
        NamespaceError::NoSuchNamespace => Code::NoSuchNamespace,
        NamespaceError::IsDefault => Code::IsDefault,
        NamespaceError::Closing => Code::Closing,
        NamespaceError::BadName | NamespaceError::LongDescription | NamespaceError::Elsewhere => {
            Code::BadRequest
        }
        NamespaceError::NotStored(why) => return of_storage(*why, error),
    };
    Problem::new(code, error)
}

pub(crate) fn of_deletion(error: DeleteQueueError) -> Problem {
    let code = match error {
        DeleteQueueError::NoSuchQueue => Code::NoSuchQueue,
        DeleteQueueError::InUse => Code::InUse,
        DeleteQueueError::NotEmpty => Code::NotEmpty,
        DeleteQueueError::TooMany { ready } => {
            return Problem::new(Code::Changed, error).with("ready", ready);
        }
        DeleteQueueError::Locked => Code::Exclusive,
        DeleteQueueError::NotStored(why) => return of_storage(why, why),
    };
    Problem::new(code, error)
}

/// Describes a move that stopped after `messages`.
pub(crate) fn of_move(messages: u64, why: Stopped) -> Problem {
    let said = format!("{messages} messages moved, and no more: {why}");
    let problem = match why {
        Stopped::Full => Problem::new(Code::QueueFull, said),
        Stopped::TargetGone | Stopped::SourceGone => Problem::new(Code::QueueGone, said),
        Stopped::TooLarge => Problem::new(Code::MessageTooLarge, said),
        Stopped::WithoutKey => Problem::new(Code::MessageWithoutKey, said),
        Stopped::Unroutable | Stopped::NoOrigin => Problem::new(Code::Unroutable, said),
        Stopped::NoSpace => Problem::new(Code::SpaceShort, said),
        Stopped::Unreadable => Problem::new(Code::Unreadable, said),
        Stopped::Stopping => Problem::new(Code::NotServing, said),
        Stopped::NotStored(why) => of_storage(why, said),
    };
    problem.with("moved", messages)
}

/// Refuses a number of the body.
pub(crate) fn out_of_range(field: &str, min: u64, max: u64, given: u64) -> Problem {
    let why = format!("{field} is a number from {min} to {max}, not {given}");
    let problem = Problem::new(Code::OutOfRange, why).with("field", field);
    problem.with("min", min).with("max", max)
}

/// Codes of [`of_group`].
pub(crate) const GROUPS: [Code; 4] = [Code::NoSuchGroup, Code::InUse, Code::Immutable, Code::Overloaded];

pub(crate) fn of_group(error: &GroupError, name: &str) -> Problem {
    let said = format!("group {name:?}: {error}");
    let code = match error {
        GroupError::NoSuchGroup => return no_such_group(name),
        GroupError::NotStored(why) => return of_storage(*why, said),
        GroupError::NotEmpty
        | GroupError::UnknownMember
        | GroupError::MemberIdRequired
        | GroupError::FencedInstance
        | GroupError::OtherGeneration
        | GroupError::StaleEpoch
        | GroupError::Rebalancing => {
            let why = format!("the group {name:?} has members, which would go on from where they are");
            return Problem::new(Code::InUse, why);
        }
        GroupError::OtherKind => Code::Immutable,
        GroupError::Elsewhere => {
            return Problem::new(Code::NameTaken, format!("{said} (`kafka.spread_groups`)"));
        }
        GroupError::TooManyGroups | GroupError::Full | GroupError::NoMemory => Code::Overloaded,
        GroupError::Name { .. }
        | GroupError::NoCommonStrategy
        | GroupError::SessionTime { .. }
        | GroupError::MemberTooLarge { .. } => Code::BadRequest,
        GroupError::Stopping => Code::NotServing,
    };
    Problem::new(code, said)
}

pub(crate) fn of_creation(error: &CreateError) -> Problem {
    match error {
        CreateError::Exists => Problem::new(Code::ExistsDifferently, error),
        CreateError::Changing => Problem::new(Code::Closing, error),
        CreateError::TooMany { .. } => Problem::new(Code::LimitReached, error),
        CreateError::Collides(other) => Problem::new(Code::NameTaken, error).with("name", &**other),
        CreateError::Name(_) | CreateError::Spread => Problem::bad_request(error),
        CreateError::Partitions(count) => {
            out_of_range("partitions", 1, PARTITIONS_MAX.into(), (*count).into())
        }
        CreateError::NotStored(why) => of_storage(*why, error),
    }
}

pub(crate) fn of_growth(error: &GrowError, topic: &str) -> Problem {
    match error {
        GrowError::NoSuchTopic => no_such_topic(topic),
        GrowError::NotMore { has, wanted } => out_of_range(
            "partitions",
            (*has).into(),
            PARTITIONS_MAX.into(),
            (*wanted).into(),
        ),
        GrowError::TooMany(wanted) => out_of_range("partitions", 1, PARTITIONS_MAX.into(), (*wanted).into()),
        GrowError::HasApps => Problem::new(Code::TopicHasApps, error),
        GrowError::NotStored(why) => of_storage(*why, error),
    }
}

pub(crate) fn of_alteration(error: AlterError<RefusedEdit>, topic: &str) -> Problem {
    match error {
        AlterError::NoSuchTopic => no_such_topic(topic),
        AlterError::TooMany => Problem::new(Code::Overloaded, error),
        AlterError::Unwanted(RefusedEdit(problem)) => problem,
        AlterError::NotStored(why) => of_storage(why, why),
    }
}

pub(crate) fn of_topic_deletion(error: DeleteError, topic: &str) -> Problem {
    match error {
        DeleteError::NoSuchTopic => no_such_topic(topic),
        DeleteError::NotStored(why) => of_storage(why, why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_has_its_status_and_code() {
        let refused = |problem: Problem| (problem.status().as_u16(), problem.code.word());
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
            (Stopped::NoSpace, (503, "space_short")),
            (Stopped::Unreadable, (503, "unreadable")),
            (Stopped::Stopping, (503, "not_serving")),
            (NotStored::Unknown.into(), (500, "outcome_unknown")),
            (NotStored::Refused(Refusal::DiskFull).into(), (507, "disk_full")),
            (NotStored::Refused(Refusal::Closed).into(), (503, "not_serving")),
        ] {
            let problem = of_move(7, why);
            assert!(problem.detail.starts_with("7 messages moved, and no more: "));
            assert_eq!(refused(problem), expected);
        }
    }
}
