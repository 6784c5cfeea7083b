//! Apps: stateful consumers. Declared, shown, looked after; and the commands of their workers.
//!
//! - `shape`: keys, offsets and values in requests and answers
//! - `declare`: apps declared and deleted; `defined`: their definitions
//! - `change`: settings; `reset`: positions;
//!   `show`: apps, tasks and workers; `settings`: settings in force
//! - `manage`: pauses, drains, pins and rebalancing; `split`: tasks split and merged
//! - `worker`: join, poll, claims; `event`: events; `fetch`: records; `fail`: records that fail;
//!   `commit`: commits, of one task or several `together`; `emit`: results outside of them;
//!   `state`: state from inside and outside

mod change;
pub(crate) mod commit;
mod declare;
mod defined;
mod emit;
pub(crate) mod event;
mod fail;
pub(crate) mod fetch;
mod manage;
mod reset;
mod settings;
pub(crate) mod shape;
mod show;
mod split;
mod state;
mod together;
pub(crate) mod worker;

use std::sync::Arc;

use axum::http::HeaderMap;
use stafett_apps::machine::WorkerError;
use stafett_apps::{App, AppError, Session, TaskId};
use stafett_broker::Broker;
use stafett_http::{Code, Problem};
use stafett_journal::Refusal;
use stafett_store::NotStored;

pub(crate) use defined::definition_of;

use crate::Routes;
use crate::refusals::of_storage;

/// Refusals of every command of a worker.
const WORKERS: [Code; 6] = [
    Code::NotServing,
    Code::NoSuchApp,
    Code::NoSuchWorker,
    Code::NoSuchTask,
    Code::TakenOver,
    Code::LostClaim,
];

pub(crate) fn routes(routes: Routes) -> Routes {
    routes
        .with(declare::routes)
        .with(show::routes)
        .with(manage::routes)
        .with(worker::routes)
        .with(fetch::routes)
        .with(commit::routes)
        .with(emit::routes)
        .with(fail::routes)
        .with(change::routes)
        .with(reset::routes)
        .with(split::routes)
        .with(state::routes)
}

pub(crate) fn find(broker: &Broker, name: &str) -> Result<Arc<App>, Problem> {
    broker.apps().named(name).map_err(|why| of_app(&why))
}

fn task(text: &str) -> Result<TaskId, Problem> {
    text.parse().map_err(|why| Problem::new(Code::NoSuchTask, why))
}

/// Reads the token of a session from the header `Stafett-Worker`.
fn session<'a>(worker: &'a str, headers: &HeaderMap) -> Result<Session<'a>, Problem> {
    let token = headers
        .get("stafett-worker")
        .and_then(|token| token.to_str().ok());
    let token = token.ok_or_else(|| {
        let why = "the header Stafett-Worker has the token that join answered";
        Problem::bad_request(why).with("field", "Stafett-Worker")
    })?;
    let number = shape::read_token(token)
        .ok_or_else(|| Problem::new(Code::TakenOver, "the token is of another session"))?;
    Ok(Session::new(worker, number))
}

/// The only place that maps errors of apps to refusals.
pub(crate) fn of_app(error: &AppError) -> Problem {
    let problem = |code| Problem::new(code, error);
    match error {
        AppError::NoSuchApp => problem(Code::NoSuchApp),
        AppError::ExistsDifferently(field) => problem(Code::ExistsDifferently).with("field", *field),
        AppError::InUse => problem(Code::InUse),
        AppError::Paused => problem(Code::Paused),
        AppError::NotPaused => problem(Code::NotPaused),
        AppError::Bad { field, .. } => problem(Code::BadRequest).with("field", *field),
        AppError::NoSuchTopic(name) => problem(Code::NoSuchTopic).with("topic", &**name),
        AppError::TopicMadeAgain(name) => problem(Code::TopicMadeAgain).with("topic", &**name),
        AppError::NotCopartitioned {
            partitions, others, ..
        } => problem(Code::NotCopartitioned)
            .with("partitions", *partitions)
            .with("others", *others),
        AppError::TooManyApps { max } => problem(Code::TooManyApps).with("max", *max),
        AppError::Worker(why) => of_worker(why),
        AppError::NoSuchTask(_) => problem(Code::NoSuchTask),
        AppError::NoSuchWorker => problem(Code::NoSuchWorker),
        AppError::TooFine(_) => problem(Code::TooFine),
        AppError::NotSplittable => problem(Code::NotSplittable),
        AppError::NotKeyed(_) => problem(Code::NotKeyed),
        AppError::Stray { task, key } => problem(Code::NotKeyed)
            .with("task", task.to_string())
            .with("key", &**key),
        AppError::NoSuchQueue(name) => problem(Code::NoSuchQueue).with("queue", &**name),
        AppError::QueueFull(name) => problem(Code::QueueFull).with("queue", &**name),
        AppError::MessageTooLarge(name) => problem(Code::MessageTooLarge).with("queue", &**name),
        AppError::NoSuchTable(name) => problem(Code::NoSuchTable).with("table", &**name),
        AppError::OutOfOrder { expected, .. } => problem(Code::OutOfOrder).with("expected", *expected),
        AppError::BadOffset { field, from, to, .. } => problem(Code::BadOffset)
            .with("field", *field)
            .with("from", *from)
            .with("to", *to),
        AppError::TooLarge { what, max } => problem(Code::TooLarge).with("what", *what).with("max", *max),
        AppError::Emit { topic, why } => problem(Code::BadRequest)
            .with("field", "emit")
            .with("topic", &**topic)
            .with("at", why.index),
        AppError::Gap { topic, from, to, .. } => problem(Code::Gap)
            .with("topic", &**topic)
            .with("from", *from)
            .with("to", *to),
        AppError::Failed {
            topic,
            offset,
            attempts,
            error,
            ..
        } => problem(Code::RecordFailed)
            .with("topic", &**topic)
            .with("offset", *offset)
            .with("attempts", *attempts)
            .with("error", &**error),
        AppError::TimerFailed {
            due, attempts, error, ..
        } => problem(Code::RecordFailed)
            .with("due", *due)
            .with("attempts", *attempts)
            .with("error", &**error),
        AppError::Unreadable { .. } | AppError::Input(_) => problem(Code::Unreadable),
        AppError::NotStored(NotStored::Refused(Refusal::TooLarge { limit, .. })) => problem(Code::TooLarge)
            .with("what", "the commit")
            .with("max", *limit),
        AppError::NotStored(why) => of_storage(*why, why),
    }
}

fn of_worker(error: &WorkerError) -> Problem {
    let problem = |code| Problem::new(code, error);
    match error {
        WorkerError::NoSuchWorker => problem(Code::NoSuchWorker),
        WorkerError::TakenOver => problem(Code::TakenOver),
        WorkerError::TooManyWorkers { max } => problem(Code::TooManyWorkers).with("max", *max),
        WorkerError::NoSuchTask(task) => problem(Code::NoSuchTask).with("task", task.to_string()),
        WorkerError::LostClaim { task, epoch, holder } => problem(Code::LostClaim)
            .with("task", task.to_string())
            .with("epoch", *epoch)
            .with("to", holder.as_deref()),
        WorkerError::Taken { task, by, epoch } => problem(Code::Taken)
            .with("task", task.to_string())
            .with("by", &**by)
            .with("epoch", *epoch),
        WorkerError::OverShare { target } => problem(Code::OverShare).with("target", *target),
        WorkerError::Pinned { task, to } => problem(Code::Pinned)
            .with("task", task.to_string())
            .with("to", &**to),
        WorkerError::Draining => problem(Code::Draining),
    }
}
