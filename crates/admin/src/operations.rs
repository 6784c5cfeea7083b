//! Long work: it goes on when its caller leaves, and is shown until an hour after its end.
//!
//! An answer waits for the end of an operation for the time `wait`; after that it is the operation's id.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use stafett_http::api::{Endpoint, delete, get};
use stafett_http::list::List;
use stafett_http::{Code, Parameter, Path, Problem, Query};
use stafett_model::Lock;
use stafett_store::wall_ms;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};
use tokio_util::task::TaskTracker;

use crate::time::rfc3339;
use crate::{Routes, access, answer};

/// Time for which an operation is shown after its end.
const SHOWN_FOR: Duration = Duration::from_hours(1);
/// Operations that are shown, and that may run.
const SHOWN_MAX: usize = 1000;
/// Bound on the results of operations that have ended, as JSON: the oldest ones are forgotten first.
const RESULTS_BYTES_MAX: usize = 64 << 20;
/// Default and maximum of `wait`.
const WAIT: Duration = Duration::from_secs(10);
const WAIT_MAX: Duration = Duration::from_mins(1);

const WAIT_KEY: Parameter = Parameter::duration(
    "wait",
    WAIT_MAX,
    "Time that the answer waits for the end; 10s if it is absent, at most 1m.",
);

/// Long work of one process. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Operations(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    entries: Lock<Entries>,
    tasks: TaskTracker,
}

/// Operations in the order of their ids.
#[derive(Debug, Default)]
struct Entries {
    last_id: u64,
    all: VecDeque<Arc<Entry>>,
}

/// Kind of an operation, and the things that it is about.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) what: &'static str,
    pub(crate) on: BTreeMap<&'static str, String>,
    /// Unit of the progress.
    pub(crate) unit: &'static str,
    /// True if it can be stopped.
    pub(crate) stops: bool,
}

#[derive(Debug)]
struct Entry {
    id: String,
    plan: Plan,
    by: Option<String>,
    begun_ms: i64,
    progress: Arc<Progress>,
    end: Lock<Option<End>>,
}

#[derive(Debug)]
struct End {
    at: Instant,
    /// Bytes of the result.
    bytes: usize,
    result: Result<Value, Problem>,
}

/// How far an operation is.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    done: AtomicU64,
    of: AtomicU64,
    is_stop_wanted: AtomicBool,
    is_stopped: AtomicBool,
}

impl Progress {
    /// Creates the progress of an operation that has to stop.
    #[cfg(test)]
    pub(crate) fn stopping() -> Self {
        Self {
            is_stop_wanted: true.into(),
            ..Self::default()
        }
    }

    pub(crate) fn set(&self, done: u64, of: u64) {
        self.done.store(done, Ordering::Relaxed);
        self.of.store(of, Ordering::Relaxed);
    }

    /// Returns true if the operation has to stop. It then returns its result so far.
    pub(crate) fn stops(&self) -> bool {
        let stops = self.is_stop_wanted.load(Ordering::Relaxed);
        self.is_stopped.fetch_or(stops, Ordering::Relaxed);
        stops
    }
}

/// An operation.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Operation")]
struct OperationStatus {
    id: String,
    /// `backup`, `copy`, `delete_namespace`, `import`, `move`, `purge` or `scrub`.
    what: &'static str,
    /// Names of the things that it is about.
    on: BTreeMap<&'static str, String>,
    /// User that began it; null for a caller without a name.
    by: Option<String>,
    begun: String,
    /// `running`, `done`, `stopped` or `failed`.
    state: &'static str,
    done: u64,
    /// Value of `done` at the end, as far as it is known.
    of: u64,
    /// Unit of `done` and `of`.
    unit: &'static str,
    /// The answer of an operation that is done or stopped.
    result: Option<Value>,
    /// The refusal of an operation that failed.
    error: Option<Value>,
}

/// Answer to a request whose operation goes on.
#[derive(Debug, Serialize, JsonSchema)]
struct OperationStarted {
    /// Id of the operation.
    operation: String,
}

const LIST: List<Arc<Entry>, OperationStatus> = List {
    name: |entry| ("", &entry.id),
    sorts: &[("begun", |entry| u64::try_from(entry.begun_ms).unwrap_or(0))],
    shown: |entry| entry.status(),
};

/// Returns the routes of operations.
pub(crate) fn routes(routes: Routes) -> Routes {
    const PATH: &str = "/v1/operations/{id}";
    routes
        .route(
            get(
                "/v1/operations",
                "Lists operations. They are shown until an hour after their end, a thousand at most.",
            )
            .lists(&LIST),
            list,
        )
        .route(
            get(PATH, "Shows an operation.")
                .answers::<OperationStatus>(200)
                .refuses(&[Code::NoSuchOperation]),
            show,
        )
        .route(
            delete(
                PATH,
                "Stops an operation at its next step. One that has ended stays as it is.",
            )
            .answers::<OperationStatus>(200)
            .refuses(&[Code::NoSuchOperation, Code::NotStoppable]),
            stop,
        )
}

/// Describes a route that begins an operation with the result `T`.
pub(crate) fn begins<T: Serialize + JsonSchema>(endpoint: Endpoint) -> Endpoint {
    endpoint
        .query(&[WAIT_KEY])
        .answers::<T>(200)
        .answers::<OperationStarted>(202)
        .refuses(&[Code::Overloaded, Code::OutcomeUnknown])
}

async fn list(State(operations): State<Operations>, query: Query) -> Result<Response, Problem> {
    let all = operations.0.entries.lock().current();
    Ok(answer(StatusCode::OK, &LIST.page(&query, all)?))
}

async fn show(State(operations): State<Operations>, Path(id): Path<String>) -> Result<Response, Problem> {
    Ok(answer(StatusCode::OK, &operations.find(&id)?.status()))
}

async fn stop(State(operations): State<Operations>, Path(id): Path<String>) -> Result<Response, Problem> {
    let entry = operations.find(&id)?;
    if !entry.plan.stops && entry.is_running() {
        let why = format!("operation {id} ({}) goes on to its end", entry.plan.what);
        return Err(Problem::new(Code::NotStoppable, why));
    }
    entry.progress.is_stop_wanted.store(true, Ordering::Relaxed);
    Ok(answer(StatusCode::OK, &entry.status()))
}

impl Operations {
    /// Returns the number of operations that run.
    #[must_use]
    pub fn running(&self) -> usize {
        let entries = self.0.entries.lock();
        entries.all.iter().filter(|entry| entry.is_running()).count()
    }

    /// Stops operations that can be stopped, and waits for the end of all.
    pub async fn end(&self) {
        for entry in &self.0.entries.lock().all {
            entry.progress.is_stop_wanted.store(true, Ordering::Relaxed);
        }
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }

    /// Begins an operation, and waits for its end as long as the query says.
    pub(crate) async fn run<T, W>(
        &self,
        plan: Plan,
        query: &Query,
        work: impl FnOnce(Arc<Progress>) -> W,
    ) -> Result<Response, Problem>
    where
        T: Serialize,
        W: Future<Output = Result<T, Problem>> + Send + 'static,
    {
        let wait = query.duration("wait", WAIT_MAX)?.unwrap_or(WAIT);
        let entry = self.0.entries.lock().begin(plan)?;
        let work = work(Arc::clone(&entry.progress));
        let (ended, end) = oneshot::channel();
        let task = self.0.tasks.spawn(async move { Ok(json!(work.await?)) });
        let (id, shared) = (entry.id.clone(), Arc::clone(&self.0));
        self.0.tasks.spawn(async move {
            let result = task.await.unwrap_or_else(|error| {
                let why = format!("the operation ended early: {error}");
                Err(Problem::new(Code::OutcomeUnknown, why))
            });
            let at = Instant::now();
            let bytes = result.as_ref().map_or(0, |value| value.to_string().len());
            *entry.end.lock() = Some(End {
                at,
                bytes,
                result: result.clone(),
            });
            drop(entry);
            shared.entries.lock().bound_results();
            // The caller may have left.
            let _ = ended.send(result);
        });
        match timeout(wait, end).await {
            Ok(Ok(result)) => Ok(answer(StatusCode::OK, &result?)),
            _ => Ok(answer(StatusCode::ACCEPTED, &OperationStarted { operation: id })),
        }
    }

    fn find(&self, id: &str) -> Result<Arc<Entry>, Problem> {
        let mut found = self.0.entries.lock().current().into_iter();
        found.find(|entry| entry.id == id).ok_or_else(|| {
            let why = format!("there is no operation {id:?}; it may have ended more than an hour ago");
            Problem::new(Code::NoSuchOperation, why)
        })
    }
}

impl Entries {
    /// Forgets operations that ended long ago, and returns the others.
    fn current(&mut self) -> Vec<Arc<Entry>> {
        self.all.retain(|entry| !entry.ended_before(SHOWN_FOR));
        self.all.iter().cloned().collect()
    }

    /// Forgets the oldest operations that have ended while their results are too large.
    fn bound_results(&mut self) {
        let bytes = |entry: &Entry| entry.end.lock().as_ref().map_or(0, |end| end.bytes);
        let all: usize = self.all.iter().map(|entry| bytes(entry)).sum();
        let mut excess = all.saturating_sub(RESULTS_BYTES_MAX);
        self.all.retain(|entry| {
            let bytes = bytes(entry);
            let stays = excess == 0 || bytes == 0;
            excess = excess.saturating_sub(if stays { 0 } else { bytes });
            stays
        });
    }

    fn begin(&mut self, plan: Plan) -> Result<Arc<Entry>, Problem> {
        self.all.retain(|entry| !entry.ended_before(SHOWN_FOR));
        if self.all.len() >= SHOWN_MAX {
            let oldest = self.all.iter().position(|entry| !entry.is_running());
            let oldest = oldest.ok_or_else(|| {
                let why = format!("{SHOWN_MAX} operations run, and no more may");
                Problem::new(Code::Overloaded, why)
            })?;
            self.all.remove(oldest);
        }
        self.last_id += 1;
        let entry = Arc::new(Entry {
            id: self.last_id.to_string(),
            plan,
            by: access::user(),
            begun_ms: wall_ms(),
            progress: Arc::default(),
            end: Lock::default(),
        });
        self.all.push_back(Arc::clone(&entry));
        Ok(entry)
    }
}

impl Entry {
    fn is_running(&self) -> bool {
        self.end.lock().is_none()
    }

    fn ended_before(&self, time: Duration) -> bool {
        let end = self.end.lock();
        end.as_ref().is_some_and(|end| end.at.elapsed() > time)
    }

    fn status(&self) -> OperationStatus {
        let end = self.end.lock();
        let (state, result, error) = match end.as_ref().map(|end| &end.result) {
            None => ("running", None, None),
            Some(Err(problem)) => ("failed", None, Some(problem.to_value())),
            Some(Ok(result)) if self.progress.is_stopped.load(Ordering::Relaxed) => {
                ("stopped", Some(result.clone()), None)
            }
            Some(Ok(result)) => ("done", Some(result.clone()), None),
        };
        OperationStatus {
            id: self.id.clone(),
            what: self.plan.what,
            on: self.plan.on.clone(),
            by: self.by.clone(),
            begun: rfc3339(self.begun_ms),
            state,
            done: self.progress.done.load(Ordering::Relaxed),
            of: self.progress.of.load(Ordering::Relaxed),
            unit: self.plan.unit,
            result,
            error,
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use tokio::sync::Notify;

    use super::*;

    fn plan(stops: bool) -> Plan {
        Plan {
            what: "test",
            on: BTreeMap::from([("queue", "q".to_owned())]),
            unit: "messages",
            stops,
        }
    }

    async fn read(response: Response) -> (u16, Value) {
        let status = response.status().as_u16();
        let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, serde_json::from_slice(&body).unwrap())
    }

    /// Begins an operation with this query.
    async fn begin<T, W>(
        operations: &Operations,
        stops: bool,
        query: &str,
        work: impl FnOnce(Arc<Progress>) -> W,
    ) -> Result<Response, Problem>
    where
        T: Serialize,
        W: Future<Output = Result<T, Problem>> + Send + 'static,
    {
        let query = Query::strict(Some(query), &["wait"]).unwrap();
        operations.run(plan(stops), &query, work).await
    }

    #[tokio::test(start_paused = true)]
    async fn an_operation_that_takes_longer_goes_on_and_is_shown_for_an_hour() {
        let operations = Operations::default();
        let gate = Arc::new(Notify::new());
        let passes = Arc::clone(&gate);
        let begun = begin(&operations, false, "wait=1s", |progress| async move {
            progress.set(3, 7);
            passes.notified().await;
            Ok(json!({ "messages": 7 }))
        });
        assert_eq!(
            read(begun.await.unwrap()).await,
            (202, json!({ "operation": "1" }))
        );
        assert_eq!(operations.running(), 1);
        let status = operations.find("1").unwrap().status();
        assert_eq!((status.state, status.done, status.of), ("running", 3, 7));
        let stopped = stop(State(operations.clone()), Path("1".to_owned())).await;
        assert_eq!(stopped.unwrap_err().code, Code::NotStoppable);
        gate.notify_one();
        operations.end().await;
        let status = operations.find("1").unwrap().status();
        assert_eq!(
            (status.state, status.result),
            ("done", Some(json!({ "messages": 7 })))
        );
        tokio::time::advance(SHOWN_FOR).await;
        assert!(operations.find("1").is_ok());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(operations.find("1").unwrap_err().code, Code::NoSuchOperation);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stopped_operation_has_its_result_so_far() {
        let operations = Operations::default();
        let begun = begin(&operations, true, "wait=0", |progress| async move {
            while !progress.stops() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            Ok(5)
        });
        assert_eq!(read(begun.await.unwrap()).await.0, 202);
        let stopped = stop(State(operations.clone()), Path("1".to_owned())).await;
        assert_eq!(read(stopped.unwrap()).await.0, 200);
        operations.end().await;
        let status = operations.find("1").unwrap().status();
        assert_eq!((status.state, status.result), ("stopped", Some(json!(5))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_the_answer_and_stays_as_the_error() {
        let operations = Operations::default();
        let refused = begin::<Value, _>(&operations, false, "", |_| async {
            Err(Problem::new(Code::QueueFull, "full"))
        });
        assert_eq!(refused.await.unwrap_err().code, Code::QueueFull);
        let lost = begin::<Value, _>(&operations, false, "", |_| async { panic!("a mistake") });
        assert_eq!(lost.await.unwrap_err().code, Code::OutcomeUnknown);
        for (id, code) in [("1", "queue_full"), ("2", "outcome_unknown")] {
            let status = operations.find(id).unwrap().status();
            assert_eq!(
                (status.state, &status.error.unwrap()["code"]),
                ("failed", &json!(code))
            );
        }
        let refused = begin::<Value, _>(&operations, false, "wait=61s", |_| async { Ok(json!(1)) });
        assert_eq!(refused.await.unwrap_err().code, Code::BadRequest);
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_of_those_that_ended_gives_way_and_too_many_running_ones_are_refused() {
        let operations = Operations::default();
        let quick = || begin(&operations, false, "wait=0", |_| async { Ok(1) });
        let endless = || {
            begin::<Value, _>(&operations, false, "wait=0", |_| async {
                std::future::pending().await
            })
        };
        drop(quick().await.unwrap());
        for _ in 1..SHOWN_MAX {
            drop(endless().await.unwrap());
        }
        tokio::task::yield_now().await;
        drop(endless().await.unwrap());
        assert_eq!(operations.find("1").unwrap_err().code, Code::NoSuchOperation);
        assert_eq!(operations.running(), SHOWN_MAX);
        assert_eq!(quick().await.unwrap_err().code, Code::Overloaded);
    }
}
