//! Events for a worker of an app over its WebSocket, and the records of its tasks.
//!
//! A task follows the worker's events, and one more for each claim fetches records, as far as the worker's
//! credit goes. Credit comes back with the commit that covers the records. None of this is a sign of life of
//! the worker.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;
use stafett_apps::machine::WorkerError;
use stafett_apps::{App, AppError, Claim, FetchLimits, Guarantee, Session, TaskId};
use stafett_model::Lock;
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::apps::event::EventShown;
use crate::apps::fetch::FetchedTask;
use crate::apps::of_app;
use crate::apps::shape::ShownOffsets;

/// Messages that wait to be sent, from which on nothing is added.
const WAITING_MAX: usize = 64;
/// Records of one message.
const RECORDS_MIN: usize = 10;
const RECORDS_MAX: usize = 1000;
/// Bytes of a short message, and of a record beside its key and value, as text.
const MESSAGE_TEXT: usize = 128;
const RECORD_TEXT: usize = 96;
const BYTES_MIN: usize = 16 << 10;
const BYTES_MAX: usize = 1 << 20;
/// Time after which a fetch that was refused is tried again.
const PAUSE: Duration = Duration::from_secs(1);
const FETCH: Duration = Duration::from_secs(30);

/// Records and bytes that may be delivered and not committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Credit {
    pub(super) records: usize,
    pub(super) bytes: usize,
}

/// The flow to one worker. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) shared: Arc<Shared>,
    _ends: DropGuard,
}

#[derive(Debug)]
pub(super) struct Shared {
    app: Arc<App>,
    worker: String,
    number: u64,
    credit: Credit,
    tasks: TaskTracker,
    over: CancellationToken,
    out: Lock<VecDeque<Vec<u8>>>,
    wake: Arc<Notify>,
    /// Something was sent.
    sent: Notify,
    claims: Lock<HashMap<TaskId, Arc<Delivering>>>,
    /// Credit came back.
    freed: Notify,
}

/// Records of one claim on their way.
#[derive(Debug)]
struct Delivering {
    claim: Claim,
    /// Deliveries that are not committed.
    open: Lock<VecDeque<Delivered>>,
    /// True if the next fetch begins at the last commit.
    again: AtomicBool,
    over: CancellationToken,
}

#[derive(Debug)]
struct Delivered {
    next: ShownOffsets,
    /// True if only timers came: any commit covers them.
    is_time: bool,
    /// Records and timers.
    records: usize,
    bytes: usize,
}

#[derive(Debug, Serialize)]
struct Pushed<'a> {
    event: &'a str,
    #[serde(flatten)]
    what: &'a FetchedTask<'a>,
}

impl Flow {
    /// Begins to follow the events of a session.
    pub(super) fn begin(
        app: Arc<App>,
        (worker, number): (&str, u64),
        credit: Credit,
        wake: &Arc<Notify>,
        tasks: &TaskTracker,
    ) -> Self {
        let over = CancellationToken::new();
        let shared = Arc::new(Shared {
            app,
            worker: worker.to_owned(),
            number,
            credit,
            tasks: tasks.clone(),
            over: over.clone(),
            out: Lock::default(),
            wake: Arc::clone(wake),
            sent: Notify::new(),
            claims: Lock::default(),
            freed: Notify::new(),
        });
        let following = Arc::clone(&shared);
        tasks.spawn(async move {
            let over = following.over.clone();
            over.run_until_cancelled(following.follow()).await;
        });
        Self {
            shared,
            _ends: over.drop_guard(),
        }
    }
}

impl Shared {
    fn session(&self) -> Session<'_> {
        Session::new(&self.worker, self.number).quietly()
    }

    /// Goes on with a claim that an earlier session had.
    pub(super) fn resume(self: &Arc<Self>, claim: Claim) {
        let delivering = self.deliver(claim);
        self.claims.lock().insert(claim.task, delivering);
    }

    /// Takes the messages that wait.
    pub(super) fn take(&self) -> VecDeque<Vec<u8>> {
        let taken = std::mem::take(&mut *self.out.lock());
        self.sent.notify_waiters();
        taken
    }

    fn put(&self, message: &impl Serialize) {
        self.put_long(message, MESSAGE_TEXT);
    }

    /// As [`Self::put`]; the message takes about this number of bytes.
    fn put_long(&self, message: &impl Serialize, bytes: usize) {
        let mut json = Vec::with_capacity(bytes);
        // Shapes of this crate can always be written.
        let _ = serde_json::to_writer(&mut json, message);
        self.out.lock().push_back(json);
        self.wake.notify_one();
    }

    /// Waits until the worker has read most of the queued messages.
    async fn room(&self) {
        loop {
            let mut sent = std::pin::pin!(self.sent.notified());
            // A message that is taken between the look and the wait counts.
            sent.as_mut().enable();
            if self.out.lock().len() < WAITING_MAX {
                return;
            }
            sent.await;
        }
    }

    async fn follow(self: Arc<Self>) {
        let mut after = 0;
        loop {
            self.room().await;
            let polled = self
                .app
                .poll(self.session(), after, WAITING_MAX, std::future::pending());
            match polled.await {
                Ok(events) => {
                    for event in events {
                        after = event.number;
                        self.tell(&EventShown::of(&self.app, self.session(), event).await);
                    }
                }
                Err(why) => {
                    let is_taken = matches!(why, AppError::Worker(WorkerError::TakenOver));
                    let notice = if is_taken { "taken_over" } else { "over" };
                    self.put(&serde_json::json!({"notice": notice, "info": why.to_string()}));
                    self.over.cancel();
                    return;
                }
            }
        }
    }

    fn tell(self: &Arc<Self>, event: &EventShown) {
        let Ok(task) = event.task.parse::<TaskId>() else {
            return;
        };
        let claim = Claim {
            task,
            epoch: event.epoch,
        };
        self.put(event);
        let ended = if event.event == "claimed" {
            let delivering = self.deliver(claim);
            self.claims.lock().insert(task, delivering)
        } else {
            let mut claims = self.claims.lock();
            let is_known = claims.get(&task).is_some_and(|known| known.claim == claim);
            if is_known { claims.remove(&task) } else { None }
        };
        if let Some(ended) = ended {
            ended.over.cancel();
            self.freed.notify_waiters();
        }
    }

    /// Begins to deliver the records of a claim, unless the worker fetches by itself.
    fn deliver(self: &Arc<Self>, claim: Claim) -> Arc<Delivering> {
        let delivering = Arc::new(Delivering {
            claim,
            open: Lock::default(),
            again: AtomicBool::new(false),
            over: self.over.child_token(),
        });
        if self.credit.records > 0 {
            let (shared, own) = (Arc::clone(self), Arc::clone(&delivering));
            self.tasks.spawn(async move {
                let over = own.over.clone();
                over.run_until_cancelled(shared.fetch_on(&own)).await;
            });
        }
        delivering
    }

    async fn fetch_on(&self, own: &Delivering) {
        let mut next = Vec::new();
        let mut refused = None;
        loop {
            let limits = self.credit_left().await;
            self.room().await;
            if own.again.swap(false, Ordering::AcqRel) {
                next.clear();
            }
            let wait = tokio::time::sleep(FETCH);
            let fetched = self
                .app
                .fetch(self.session(), own.claim, &next, limits, wait)
                .await;
            if own.again.load(Ordering::Acquire) {
                continue;
            }
            match fetched {
                Ok(fetched) => {
                    refused = None;
                    next = fetched.next.iter().copied().map(Some).collect();
                    self.push(own, &fetched);
                }
                Err(AppError::Worker(_) | AppError::NoSuchApp) => return,
                Err(why) => {
                    self.refuse(own, &why, &mut refused);
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    fn push(&self, own: &Delivering, fetched: &stafett_apps::Fetched) {
        if fetched.records.is_empty() && fetched.due.is_empty() && fetched.gap.is_none() {
            return;
        }
        let mut shown = FetchedTask::of(&self.app, fetched);
        shown.task = own.claim.task.to_string();
        shown.epoch = own.claim.epoch;
        let lengths = fetched.records.iter().map(|it| {
            let length = |bytes: &Option<bytes::Bytes>| bytes.as_ref().map_or(0, bytes::Bytes::len);
            length(&it.record.key) + length(&it.record.value)
        });
        let lengths: usize = lengths.sum();
        own.open.lock().push_back(Delivered {
            next: shown.next.clone(),
            is_time: fetched.records.is_empty(),
            records: fetched.records.len() + fetched.due.len(),
            bytes: lengths,
        });
        let event = if fetched.records.is_empty() {
            "time"
        } else {
            "records"
        };
        // In base64, beside a little for each record.
        let bytes = lengths * 3 / 2 + fetched.records.len() * RECORD_TEXT;
        self.put_long(&Pushed { event, what: &shown }, bytes);
    }

    /// Tells once that a task rests.
    fn refuse(&self, own: &Delivering, why: &AppError, told: &mut Option<String>) {
        let problem = of_app(why);
        let code = problem.code.word();
        if told.as_deref() == Some(code) {
            return;
        }
        *told = Some(code.to_owned());
        let mut event = problem.to_value();
        if let Some(fields) = event.as_object_mut() {
            for name in ["type", "title", "status"] {
                fields.remove(name);
            }
            fields.insert("event".to_owned(), "rests".into());
            fields.insert("task".to_owned(), own.claim.task.to_string().into());
            fields.insert("epoch".to_owned(), own.claim.epoch.into());
        }
        self.put(&event);
    }

    /// Waits for credit, and returns the limits of the next fetch.
    async fn credit_left(&self) -> FetchLimits {
        loop {
            let mut freed = std::pin::pin!(self.freed.notified());
            freed.as_mut().enable();
            if let Some(limits) = self.limits() {
                return limits;
            }
            freed.await;
        }
    }

    /// Returns the limits of a fetch. `None` without credit.
    fn limits(&self) -> Option<FetchLimits> {
        let claims = self.claims.lock();
        let (mut records, mut bytes) = (self.credit.records, self.credit.bytes);
        // All claims may fetch at once.
        let each = claims.len().max(1);
        let records_max = (records / each).clamp(RECORDS_MIN, RECORDS_MAX);
        let bytes_max = (bytes / each).clamp(BYTES_MIN, BYTES_MAX);
        for claim in claims.values() {
            let opened = claim.open.lock();
            for open in opened.iter() {
                records = records.saturating_sub(open.records);
                bytes = bytes.saturating_sub(open.bytes);
            }
        }
        (records > 0 && bytes > 0).then(|| FetchLimits {
            records: records.min(records_max),
            bytes: bytes.min(bytes_max),
        })
    }

    /// Takes a commit that is stored: credit comes back for its records.
    pub(super) fn on_commit(&self, task: TaskId, next: &[Option<u64>]) {
        let Some(own) = self.claims.lock().get(&task).cloned() else {
            return;
        };
        let stored = self.app.stored();
        // Their places are stored already, and no commit names one.
        let covers_all = stored.definition.guarantee == Guarantee::AtMostOnce;
        let names = stored.definition.topics.iter().map(|name| &**name);
        let places: BTreeMap<&str, u64> = names
            .zip(next)
            .filter_map(|(name, at)| Some((name, (*at)?)))
            .collect();
        let mut open = own.open.lock();
        let is_covered = |delivered: &Delivered| {
            let is_behind =
                |(name, at): (&&str, &u64)| delivered.next.get(*name).is_none_or(|next| next <= at);
            covers_all || delivered.is_time || !places.is_empty() && places.iter().all(is_behind)
        };
        while open.front().is_some_and(is_covered) {
            open.pop_front();
        }
        drop(open);
        self.freed.notify_waiters();
    }

    /// A record failed: those behind it are delivered again.
    pub(super) fn begin_again(&self, task: &str) {
        let Some(own) = self.delivering(task) else { return };
        own.open.lock().clear();
        own.again.store(true, Ordering::Release);
        self.freed.notify_waiters();
    }

    fn delivering(&self, task: &str) -> Option<Arc<Delivering>> {
        let task = task.parse().ok()?;
        self.claims.lock().get(&task).cloned()
    }

    /// Forgets a claim that its worker gave back.
    pub(super) fn on_release(&self, task: &str) {
        let ended = task
            .parse()
            .ok()
            .and_then(|task: TaskId| self.claims.lock().remove(&task));
        if let Some(ended) = ended {
            ended.over.cancel();
        }
        self.freed.notify_waiters();
    }
}
