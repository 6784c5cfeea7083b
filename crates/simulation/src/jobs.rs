//! Workers of two apps, at the level of the core verbs behind `/v1/apps`: they join, work, fall silent,
//! leave, and commit under claims that are over, while tasks are split, merged and drained.
//!
//! One app counts records by key ([`counts`]), the other one passes amounts from account to account
//! ([`transfers`]). After each start the state of every key is the fold of its records before the position,
//! nothing that was acknowledged is missing, and each result came out once.

mod checks;
mod counts;
mod steps;
mod transfers;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use stafett_apps::machine::{EventKind, JoinSpec, WorkerError};
use stafett_apps::{App, AppError, Claim, FetchLimits, NewCommit, NewEntry, Session, TaskId};
use stafett_broker::Broker;
use stafett_model::StoredRecord;
use stafett_topics::NewRecord;

use self::steps::WorkStep;
pub use self::steps::{JobStep, Trade};
use crate::server::Server;
use crate::world::World;

/// Table of each app.
const TABLE: &str = "sums";
const WORKERS: u8 = 3;
/// Records that are there for the first worker.
const FED_FIRST: u8 = 60;
/// Time of a drain.
const DRAIN_MS: u64 = 500;

/// Facts that an acknowledged commit has made true, each with a number that never gets lower.
type Facts = Vec<(String, u64)>;
type Work = Pin<Box<dyn Future<Output = Result<Answer, AppError>> + Send>>;

/// A request, and the worker that sent it with the number of its session.
type Request = (Option<(u8, u64)>, Work);

enum Answer {
    Done(Facts),
    Held(Box<Held>),
}

/// A commit that is ready to be sent.
struct Held {
    worker: String,
    number: u64,
    claim: Claim,
    commit: NewCommit,
    facts: Facts,
}

/// The workers of both apps.
#[derive(Debug, Default)]
pub struct Jobs {
    counts: Crew,
    transfers: Crew,
}

/// The workers of an app and their knowledge.
#[derive(Default)]
struct Crew {
    app: Option<Arc<App>>,
    workers: BTreeMap<u8, Worker>,
    /// Least numbers of facts, as acknowledged.
    floor: BTreeMap<String, u64>,
    pending: Vec<Request>,
    held: Vec<Held>,
    fed: u64,
}

/// A session. A worker that forgot its session still has the claims of the one before.
#[derive(Debug, Clone, Default)]
struct Worker {
    number: u64,
    after: u64,
    claims: BTreeMap<TaskId, u64>,
}

impl std::fmt::Debug for Crew {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Crew")
            .field("workers", &self.workers)
            .field("pending", &self.pending.len())
            .finish_non_exhaustive()
    }
}

fn name(worker: u8) -> String {
    format!("w-{worker}")
}

fn text(bytes: &[u8]) -> Result<String, String> {
    String::from_utf8(bytes.to_vec()).map_err(|why| why.to_string())
}

impl Jobs {
    fn of(&mut self, trade: Trade) -> &mut Crew {
        match trade {
            Trade::Counts => &mut self.counts,
            Trade::Transfers => &mut self.transfers,
        }
    }

    fn all(&mut self) -> [&mut Crew; 2] {
        [&mut self.counts, &mut self.transfers]
    }

    /// Handles the end of the program: no worker gets an answer any more.
    pub fn on_end(&mut self) {
        self.leave();
        for crew in self.all() {
            crew.app = None;
            crew.workers.clear();
        }
    }

    /// Ends all requests without their answers. A commit that is held may be sent after the next start, under
    /// a session that is over.
    pub fn leave(&mut self) {
        for crew in self.all() {
            crew.pending.clear();
        }
    }

    /// Forgets acknowledged commits: an earlier state is restored.
    pub fn forget(&mut self) {
        for crew in self.all() {
            crew.floor.clear();
        }
    }

    /// Processes answers.
    pub fn turn(&mut self) -> Vec<String> {
        self.all().into_iter().flat_map(Crew::turn).collect()
    }
}

impl Crew {
    fn turn(&mut self) -> Vec<String> {
        let mut context = Context::from_waker(Waker::noop());
        let mut notes = Vec::new();
        for (worker, mut work) in std::mem::take(&mut self.pending) {
            match work.as_mut().poll(&mut context) {
                Poll::Pending => self.pending.push((worker, work)),
                Poll::Ready(Ok(Answer::Done(facts))) => {
                    notes.push(format!("a job has done {facts:?}"));
                    for (fact, number) in facts {
                        let floor = self.floor.entry(fact).or_default();
                        *floor = number.max(*floor);
                    }
                }
                Poll::Ready(Ok(Answer::Held(held))) => {
                    notes.push(format!("a job is about to commit {:?}", held.facts));
                    self.held.push(*held);
                }
                Poll::Ready(Err(why)) => {
                    notes.push(format!("a job hears: {why}"));
                    if matches!(why, AppError::Worker(WorkerError::NoSuchWorker)) {
                        // It joins again when it works next.
                        self.workers
                            .retain(|known, session| worker != Some((*known, session.number)));
                    }
                }
            }
        }
        notes
    }

    fn step(&mut self, broker: &Arc<Broker>, app: &Arc<App>, trade: Trade, step: JobStep) {
        let tasks: Vec<TaskId> = app.stored().tasks.keys().copied().collect();
        let at = |task: u8| tasks.get(usize::from(task) % tasks.len().max(1)).copied();
        match step {
            JobStep::Feed { count } => self.feed(broker, trade, count),
            JobStep::Join { worker } => self.join(app, worker),
            JobStep::Work(work) => self.work((broker, app), trade, work, false),
            JobStep::Hold(work) => self.work((broker, app), trade, work, true),
            JobStep::GoOn => {
                if !self.held.is_empty() {
                    let held = self.held.remove(0);
                    self.pending.push((None, Box::pin(send(Arc::clone(app), held))));
                }
            }
            JobStep::Leave { worker } => {
                if let Some(known) = self.workers.get(&worker) {
                    // It may have been put out already. Its claims stay with it, and are of no use.
                    drop(app.leave(Session::new(&name(worker), known.number)));
                }
            }
            JobStep::Forget { worker } => drop(self.workers.remove(&worker)),
            JobStep::Drain { worker, cancel } => {
                let worker = name(worker);
                let marking = app.mark(move |machine, now, effects| {
                    if cancel {
                        machine.cancel_drain(&worker, now, effects)
                    } else {
                        machine.drain(&worker, DRAIN_MS, now, effects)
                    }
                });
                self.later(marking);
            }
            JobStep::Split { task } => {
                if let Some(task) = at(task).filter(|_| tasks.len() < 8) {
                    let cut = broker.apps().split(trade.app(), task, 2);
                    self.later(async { cut.await.map(drop) });
                }
            }
            JobStep::Merge { task } => {
                if let Some(parent) = at(task).and_then(TaskId::parent) {
                    let cut = broker.apps().merge(trade.app(), parent);
                    self.later(async { cut.await.map(drop) });
                }
            }
        }
    }

    /// Adds a request without facts.
    fn later(&mut self, request: impl Future<Output = Result<(), AppError>> + Send + 'static) {
        let answer = async move { request.await.map(|()| Answer::Done(Vec::new())) };
        self.pending.push((None, Box::pin(answer)));
    }

    fn join(&mut self, app: &App, worker: u8) {
        let spec = JoinSpec {
            weight: 1,
            tasks_max: None,
            deliver: true,
            eager: false,
        };
        if let Ok(joined) = app.join(&name(worker), spec) {
            let worker = self.workers.entry(worker).or_default();
            *worker = Worker {
                number: joined.session,
                after: 0,
                claims: joined.resumed.into_iter().collect(),
            };
        }
    }

    fn feed(&mut self, broker: &Arc<Broker>, trade: Trade, count: u8) {
        let first = self.fed;
        self.fed += u64::from(count);
        let broker = Arc::clone(broker);
        self.later(async move {
            feed(&broker, trade, first..first + u64::from(count)).await;
            Ok(())
        });
    }

    fn work(
        &mut self,
        (broker, app): (&Arc<Broker>, &Arc<App>),
        trade: Trade,
        WorkStep {
            worker,
            task,
            records,
        }: WorkStep,
        holds: bool,
    ) {
        if self.fed == 0 {
            self.feed(broker, trade, FED_FIRST);
        }
        if !self.workers.contains_key(&worker) {
            self.join(app, worker);
        }
        let Some(known) = self.workers.get_mut(&worker) else {
            return;
        };
        let asking = Some((worker, known.number));
        let (worker, number) = (name(worker), known.number);
        let session = Session::new(&worker, number);
        let (after, claims) = (&mut known.after, &mut known.claims);
        let mut released = Vec::new();
        let events = app.step(|machine, _, _| machine.events(session.worker, *after, 100));
        for event in events {
            *after = event.number;
            match event.kind {
                EventKind::Claimed { task, epoch, .. } => drop(claims.insert(task, epoch)),
                // It goes on under a claim that is over.
                EventKind::Lost { .. } | EventKind::Prepare { .. } => {}
                EventKind::Revoke { task, epoch, .. } => {
                    claims.remove(&task);
                    released.push(Claim { task, epoch });
                }
            }
        }
        let count = claims.len().max(1);
        let claim = claims.iter().nth(usize::from(task) % count);
        let claim = claim.map(|(&task, &epoch)| Claim { task, epoch });
        for claim in released {
            let (app, worker) = (Arc::clone(app), worker.clone());
            self.later(async move { app.release(Session::new(&worker, number), claim).await });
        }
        let Some(claim) = claim else { return };
        let app = Arc::clone(app);
        let working = async move {
            let session = Session::new(&worker, number);
            let prepared = Box::pin(prepare(trade, &app, session, claim, records.into())).await?;
            let Some((commit, facts)) = prepared else {
                return Ok(Answer::Done(Vec::new()));
            };
            let held = Held {
                worker,
                number,
                claim,
                commit,
                facts,
            };
            if holds {
                return Ok(Answer::Held(Box::new(held)));
            }
            send(app, held).await
        };
        self.pending.push((asking, Box::pin(working)));
    }
}

async fn feed(broker: &Broker, trade: Trade, numbers: std::ops::Range<u64>) {
    let input = trade
        .inputs()
        .first()
        .and_then(|name| broker.topics().named(name));
    let Some(topic) = input else { return };
    let records: Vec<_> = numbers.map(|number| trade.record(number)).collect();
    if let Ok(built) = broker
        .catalog()
        .records_append(&topic, &records, 0, stafett_store::wall_ms())
    {
        // Records without an answer are there or not: the app does those that are.
        drop(broker.catalog().append(vec![built.append]).await);
    }
}

/// Builds a commit for some records of a task.
async fn prepare(
    trade: Trade,
    app: &Arc<App>,
    session: Session<'_>,
    claim: Claim,
    max: usize,
) -> Result<Option<(NewCommit, Facts)>, AppError> {
    let limits = FetchLimits {
        records: max,
        bytes: 1 << 20,
    };
    let (_, begun) = Box::pin(app.get(claim.task, TABLE, &[])).await?;
    let fetched = Box::pin(app.fetch(session, claim, &[], limits, std::future::ready(()))).await?;
    let records: Vec<&StoredRecord> = fetched.records.iter().map(|it| &it.record).collect();
    if records.is_empty() {
        return Ok(None);
    }
    let (changes, mut facts) = match trade {
        Trade::Counts => counts::changes(&records),
        Trade::Transfers => transfers::changes(fetched.input, &records),
    };
    let keys: Vec<Bytes> = changes.sums.keys().cloned().collect();
    let (known, seq) = Box::pin(app.get(claim.task, TABLE, &keys)).await?;
    if seq != begun {
        // Another request of the worker has committed these records meanwhile.
        return Ok(None);
    }
    let mut commit = NewCommit {
        seq: seq + 1,
        next: fetched.next.iter().copied().map(Some).collect(),
        ..NewCommit::default()
    };
    let results = changes.results.into_iter();
    commit.emit.extend(results.map(|it| (trade.results().into(), it)));
    for ((key, change), known) in changes.sums.into_iter().zip(known) {
        let before = known.and_then(|entry| std::str::from_utf8(&entry.value).ok()?.parse().ok());
        let sum = before.unwrap_or(0_i64) + change;
        if trade == Trade::Counts {
            let (result, fact) = counts::result(&key, sum);
            commit.emit.push((trade.results().into(), result));
            facts.push(fact);
        }
        commit.entries.push(NewEntry {
            table: TABLE.into(),
            key,
            value: Some(sum.to_string().into()),
            ttl_ms: None,
        });
    }
    Ok(Some((commit, facts)))
}

/// Changes of sums by key, and results.
#[derive(Default)]
struct Changes {
    sums: BTreeMap<Bytes, i64>,
    results: Vec<NewRecord>,
}

async fn send(app: Arc<App>, held: Held) -> Result<Answer, AppError> {
    let session = Session::new(&held.worker, held.number);
    let committed = app.commit(session, held.claim, held.commit).await?;
    // A repeated number is a commit of another fetch of this worker, which may have done something else.
    Ok(Answer::Done(if committed.repeated {
        Vec::new()
    } else {
        held.facts
    }))
}

impl World {
    pub fn job_step(&mut self, server: &Server, trade: Trade, step: JobStep) {
        let crew = self.jobs.of(trade);
        if let Some(app) = crew.app.clone() {
            crew.step(&server.broker, &app, trade, step);
        }
    }
}
