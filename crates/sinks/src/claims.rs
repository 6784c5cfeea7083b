//! Partitions of this process: tasks of the sink's app, an assignment of another broker's group, or a queue.
//!
//! ```text
//! app    join ─▶ events ─▶ Claimed … Revoke ─▶ release
//! group  join ─▶ Claimed … rebalance ─▶ Revoke ─▶ release of all ─▶ join
//! queue  connect ─▶ Opened … Lost ─▶ connect
//! ```

use std::collections::BTreeSet;
use std::time::Duration;

use stafett_kafka_client::membership::{Beat, HEARTBEAT, Membership};
use stafett_kafka_client::{Client, ClientError, Str};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};
use tracing::warn;

use crate::amqp::{self, QueueRequest};
use crate::claim::Claim;
use crate::definition::{Definition, QueueSpec};
use crate::http::HttpError;
use crate::work::{Change, Look, Worker};

const AGAIN: Duration = Duration::from_secs(1);
/// Time in which partitions have to be released before the member joins again.
const RELEASE: Duration = Duration::from_secs(45);
/// Silence after which the partitions of a process go to others, as with apps.
const SESSION: Duration = Duration::from_secs(10);
/// Time to leave a source. One that is away notices by itself.
const LEAVE: Duration = Duration::from_secs(2);
const REQUESTS: usize = 64;

/// Changes of claims, as they come. Those of one time are sent together: the session may wait for room among
/// the requests, so their sender has to be back at the requests whatever their number is.
pub(crate) type Changes = mpsc::Sender<Result<Vec<Change>, HttpError>>;

/// Owner of this process's claims.
pub(crate) enum Claims {
    App(Worker),
    Group(Group),
    Queue(Queue),
}

/// A queue that is read.
pub(crate) struct Queue {
    requests: mpsc::Sender<QueueRequest>,
    /// Until it is spawned.
    session: Option<(QueueSpec, String, mpsc::Receiver<QueueRequest>)>,
    paused: bool,
}

impl Queue {
    pub(crate) fn new(spec: &QueueSpec, definition: &Definition) -> Self {
        let (requests, received) = mpsc::channel(REQUESTS);
        let place = definition.from.first().cloned().unwrap_or_default();
        Self {
            requests,
            session: Some((spec.clone(), place, received)),
            paused: false,
        }
    }

    async fn tell(&self, request: QueueRequest) {
        // The task is gone only once the session is.
        let _ = self.requests.send(request).await;
    }
}

/// A member of another broker's group.
pub(crate) struct Group {
    requests: mpsc::Sender<Request>,
    /// Until it is spawned.
    member: Option<(Membership, mpsc::Receiver<Request>)>,
    paused: bool,
}

enum Request {
    Commit { place: (Str, i32), next: u64 },
    Release { task: String },
    Leave { left: oneshot::Sender<()> },
}

impl Group {
    pub(crate) fn new(client: Client, definition: &Definition) -> Self {
        let topics: Vec<&str> = definition.from.iter().map(String::as_str).collect();
        let (requests, received) = mpsc::channel(REQUESTS);
        let member = Membership::new(client, &definition.group(), &topics).with_session(SESSION);
        Self {
            requests,
            member: Some((member, received)),
            paused: false,
        }
    }

    async fn tell(&self, request: Request) {
        // The task is gone only once the session is.
        let _ = self.requests.send(request).await;
    }
}

impl Claims {
    /// Sends changes from now on. The task ends with `tasks`.
    pub(crate) fn spawn(&mut self, tasks: &mut JoinSet<()>, changes: Changes) {
        match self {
            Self::App(worker) => {
                tasks.spawn(follow_app(worker.another(), changes));
            }
            Self::Group(group) => {
                if let Some((member, requests)) = group.member.take() {
                    tasks.spawn(follow_group(member, requests, changes));
                }
            }
            Self::Queue(queue) => {
                if let Some((spec, place, requests)) = queue.session.take() {
                    tasks.spawn(amqp::follow(spec, place, requests, changes));
                }
            }
        }
    }

    /// Notes how far a place is, for others to see.
    pub(crate) async fn commit(
        &mut self,
        claim: &mut Claim,
        topic: &str,
        next: u64,
    ) -> Result<(), HttpError> {
        match self {
            Self::App(worker) => worker.commit(claim, topic, next).await,
            Self::Group(group) => {
                let partition = i32::try_from(claim.partition).unwrap_or(i32::MAX);
                let place = (Str::copy_from(topic), partition);
                group.tell(Request::Commit { place, next }).await;
                Ok(())
            }
            Self::Queue(queue) => {
                let session = claim.epoch;
                queue.tell(QueueRequest::Stored { session, next }).await;
                Ok(())
            }
        }
    }

    /// Stores the bounds of a batch, before it is sent. Returns those that are stored.
    pub(crate) async fn begin(
        &mut self,
        claim: &mut Claim,
        topic: &str,
        bounds: (u64, u64),
    ) -> Result<(u64, u64), HttpError> {
        match self {
            Self::App(worker) => worker.begin(claim, topic, bounds).await,
            Self::Group(_) | Self::Queue(_) => Err(HttpError::Refused {
                status: 409,
                code: "no_positions".to_owned(),
                detail: "the source keeps no bounds".to_owned(),
            }),
        }
    }

    /// Has the app remember a batch that paused the sink, for a process that goes on with it. Without an app,
    /// it pauses the sink once more there.
    pub(crate) async fn mark(&mut self, claim: &mut Claim, topic: &str, next: u64) -> Result<(), HttpError> {
        match self {
            Self::App(worker) => worker.mark(claim, topic, next).await,
            Self::Group(_) | Self::Queue(_) => Ok(()),
        }
    }

    pub(crate) async fn release(&mut self, claim: &Claim) -> Result<(), HttpError> {
        match self {
            Self::App(worker) => worker.release(claim).await,
            Self::Group(group) => {
                let task = claim.task.clone();
                group.tell(Request::Release { task }).await;
                Ok(())
            }
            Self::Queue(queue) => {
                let session = claim.epoch;
                queue.tell(QueueRequest::End { session }).await;
                Ok(())
            }
        }
    }

    pub(crate) async fn leave(&mut self) -> Result<(), HttpError> {
        match self {
            Self::App(worker) => worker.leave().await,
            Self::Group(group) => {
                let (left, done) = oneshot::channel();
                // A full queue has no room for it: the source is away.
                let _ = group.requests.try_send(Request::Leave { left });
                // It is gone already if that fails.
                let _ = timeout(LEAVE, done).await;
                Ok(())
            }
            Self::Queue(queue) => {
                let (left, done) = oneshot::channel();
                let _ = queue.requests.try_send(QueueRequest::Leave(left));
                let _ = timeout(LEAVE, done).await;
                Ok(())
            }
        }
    }

    /// Looks whether the sink is paused, and for topics that are gone.
    pub(crate) async fn look(&mut self) -> Result<Look, HttpError> {
        let paused = match self {
            Self::App(worker) => return worker.app().look().await,
            Self::Group(group) => group.paused,
            Self::Queue(queue) => queue.paused,
        };
        Ok(Look {
            paused,
            lost: Vec::new(),
        })
    }

    /// Notes that the operator has the sink go on: a pause of this process alone is over.
    pub(crate) fn resumed(&mut self) {
        match self {
            Self::App(_) => {}
            Self::Group(group) => group.paused = false,
            Self::Queue(queue) => queue.paused = false,
        }
    }

    /// Pauses the sink, in all processes where its app can tell them.
    pub(crate) async fn pause(&mut self) -> Result<(), HttpError> {
        match self {
            Self::App(worker) => worker.app().pause(true).await,
            Self::Group(group) => {
                group.paused = true;
                Ok(())
            }
            Self::Queue(queue) => {
                queue.paused = true;
                Ok(())
            }
        }
    }
}

impl Claims {
    /// Has the source rest or go on, where that is more than not reading: messages that were taken go back.
    pub(crate) async fn rest(&self, rests: bool) {
        if let Self::Queue(queue) = self {
            queue.tell(QueueRequest::Rest(rests)).await;
        }
    }

    /// True if the records that were read and not written have to go back when the sink rests.
    pub(crate) fn gives_back(&self) -> bool {
        matches!(self, Self::Queue(_))
    }
}

async fn follow_app(mut worker: Worker, changes: Changes) {
    loop {
        match worker.poll().await {
            Ok(found) => {
                if !found.is_empty() && changes.send(Ok(found)).await.is_err() {
                    return;
                }
            }
            Err(why) => {
                let is_over = why.code().is_some();
                if changes.send(Err(why)).await.is_err() || is_over {
                    return;
                }
                sleep(AGAIN).await;
            }
        }
    }
}

fn away(why: &ClientError) -> HttpError {
    HttpError::Away {
        address: "the group".to_owned(),
        why: why.to_string(),
    }
}

/// Follows a group until the requests end.
async fn follow_group(mut member: Membership, mut requests: mpsc::Receiver<Request>, changes: Changes) {
    loop {
        let assigned = match member.join().await {
            Ok(assigned) => assigned,
            Err(why) => {
                if changes.send(Err(away(&why))).await.is_err() {
                    return;
                }
                sleep(AGAIN).await;
                continue;
            }
        };
        let claimed: Vec<Claim> = claims(&assigned).collect();
        let mut held: BTreeSet<String> = claimed.iter().map(|claim| claim.task.clone()).collect();
        let claimed = claimed.into_iter().map(Change::Claimed).collect();
        if changes.send(Ok(claimed)).await.is_err() {
            return;
        }
        let Some(rest) = stable(member, &mut requests, &mut held).await else {
            return;
        };
        member = rest;
        let revoked = held.iter().cloned().map(Change::Revoke).collect();
        if changes.send(Ok(revoked)).await.is_err() {
            return;
        }
        let Some(rest) = released(member, &mut requests, &mut held).await else {
            return;
        };
        member = rest;
        let lost = held.into_iter().map(Change::Lost).collect();
        if changes.send(Ok(lost)).await.is_err() {
            return;
        }
    }
}

/// Returns the claims of an assignment, one for each partition.
fn claims(assigned: &[(Str, Vec<i32>)]) -> impl Iterator<Item = Claim> {
    let places = assigned.iter().flat_map(|(topic, partitions)| {
        let numbers = partitions.iter().filter_map(|number| u32::try_from(*number).ok());
        numbers.map(move |number| (topic, number))
    });
    places.map(|(topic, partition)| Claim::of_place(topic, partition))
}

/// Sends heartbeats until the group redistributes its partitions. `None` once the member has left.
async fn stable(
    mut member: Membership,
    requests: &mut mpsc::Receiver<Request>,
    held: &mut BTreeSet<String>,
) -> Option<Membership> {
    let mut beats = interval(HEARTBEAT);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let beat = tokio::select! {
            _ = beats.tick() => member.beat().await,
            request = requests.recv() => match take(&mut member, request?, held).await {
                Taken::Beat(beat) => beat,
                Taken::Left(left) => return leave(member, left).await,
            },
        };
        match beat {
            Ok(Beat::Stable) => {}
            Ok(Beat::Rebalance) => return Some(member),
            Err(why) => warn!("the group does not answer: {why}"),
        }
    }
}

/// Waits until all partitions are released, or for as long as the others can wait.
async fn released(
    mut member: Membership,
    requests: &mut mpsc::Receiver<Request>,
    held: &mut BTreeSet<String>,
) -> Option<Membership> {
    let until = Instant::now() + RELEASE;
    while !held.is_empty() {
        tokio::select! {
            () = sleep_until(until) => break,
            request = requests.recv() => match take(&mut member, request?, held).await {
                // The target has the position, whatever the group knows.
                Taken::Beat(_) => {}
                Taken::Left(left) => return leave(member, left).await,
            },
        }
    }
    Some(member)
}

/// Result of a request.
enum Taken {
    Beat(Result<Beat, ClientError>),
    Left(oneshot::Sender<()>),
}

async fn take(member: &mut Membership, request: Request, held: &mut BTreeSet<String>) -> Taken {
    match request {
        Request::Commit { place, next } => {
            let next = i64::try_from(next).unwrap_or(i64::MAX);
            Taken::Beat(member.commit(&[(place, next)]).await)
        }
        Request::Release { task } => {
            held.remove(&task);
            Taken::Beat(Ok(Beat::Stable))
        }
        Request::Leave { left } => Taken::Left(left),
    }
}

async fn leave(member: Membership, left: oneshot::Sender<()>) -> Option<Membership> {
    if let Err(why) = member.leave().await {
        warn!("the group notices by itself that this member has gone: {why}");
    }
    // The session waits no more if that fails.
    let _ = left.send(());
    None
}
