//! One sink in this process: its claims, a pump for each partition of them, and their positions as the app
//! shows them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use stafett_kafka_client::{Client, ClientError};
use stafett_model::Lock;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::amqp::Feed;
use crate::broker::source;
use crate::claims::{Claims, Group, Queue};
use crate::dead::{DeadTopic, Origin};
use crate::definition::{Begin, Definition, SourceSpec};
use crate::http::{Http, HttpError};
use crate::ledger::TaskLedger;
use crate::pace::{Limiter, PoisonCount, Waits};
use crate::pump::{News, Order, Pump};
use crate::reader::{self, Unwritten};
use crate::status::{State, Status};
use crate::target::{Place, Surroundings, TargetError, target_of};
use crate::work::{App, Change, Claim, Worker};
use crate::writer::Writer;

const AGAIN: Duration = Duration::from_secs(1);
/// Interval of looks whether the sink is paused.
const LOOK: Duration = Duration::from_secs(2);
/// Time for gathered rows to be written at the end.
const FINISH: Duration = Duration::from_secs(25);
const NEWS: usize = 64;

/// A sink and its surroundings.
pub struct Runner {
    pub definition: Definition,
    pub http: Http,
    pub client: Client,
    pub surroundings: Surroundings,
    pub status: Arc<Status>,
    /// Milliseconds that only grow.
    pub now_ms: fn() -> u64,
    /// True while the operator has the sink rest, beside the pause of its app.
    pub rests: watch::Receiver<bool>,
    /// Told when too much poison pauses a sink that has no app.
    pub pauses: Option<mpsc::Sender<String>>,
}

impl std::fmt::Debug for Runner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runner")
            .field("sink", &self.definition.name)
            .finish_non_exhaustive()
    }
}

/// Reason why a sink cannot run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// A task of this worker, and its pumps.
struct Held {
    claim: Claim,
    orders: watch::Sender<Order>,
    /// Pumps that have not ended.
    pumps: usize,
    is_finishing: bool,
}

/// End of a session with the app.
enum Session {
    /// The runner stops.
    Stopped,
    /// The broker knows the worker no more: join again.
    Over(HttpError),
}

impl Runner {
    /// Runs until `stop`. Rows that are gathered by then are written.
    pub async fn run(self, stop: CancellationToken) -> Result<(), RunError> {
        self.prepare().await?;
        let definition = Arc::new(self.definition.clone());
        let Some(source) = stop.run_until_cancelled(self.source()).await else {
            return Ok(());
        };
        loop {
            if stop.is_cancelled() {
                return Ok(());
            }
            let claims = match self.join(&source).await {
                Ok(claims) => claims,
                Err(why) => {
                    warn!(sink = definition.name, "the app cannot be joined: {why}");
                    sleep(AGAIN).await;
                    continue;
                }
            };
            let mut session = Work::new(&self, Arc::clone(&definition), source.clone(), claims);
            match session.run(&stop).await {
                Session::Stopped => return Ok(()),
                Session::Over(why) => warn!(sink = definition.name, "the session is over: {why}"),
            }
            // The broker notices by itself if this fails.
            let _ = session.claims.leave().await;
        }
    }

    /// Returns a client of the broker that has the records, however long that takes.
    async fn source(&self) -> Client {
        loop {
            let why = match source(&self.definition, self.client.clone()).await {
                Ok(client) => return client,
                Err(why) => why,
            };
            let state = match why {
                TargetError::Stop(_) => State::Stopped,
                _ => State::Retrying,
            };
            if self.status.enter(state, &why.to_string()) {
                warn!(sink = self.definition.name, "the source is away: {why}");
            }
            sleep(AGAIN).await;
        }
    }

    async fn join(&self, source: &Client) -> Result<Claims, HttpError> {
        match &self.definition.source {
            SourceSpec::Own => {
                // A new name for each session: its claims come as events then, also those of the one before.
                let name = format!("sink-{}", uuid::Uuid::new_v4().simple());
                let app = App::new(&self.definition, self.http.another());
                Worker::join(app, &name).await.map(Claims::App)
            }
            SourceSpec::Broker(_) => Ok(Claims::Group(Group::new(source.clone(), &self.definition))),
            SourceSpec::Queue(spec) => Ok(Claims::Queue(Queue::new(spec, &self.definition))),
        }
    }

    /// Declares the app and the topic of dead letters.
    async fn prepare(&self) -> Result<(), RunError> {
        let definition = &self.definition;
        if definition.source == SourceSpec::Own {
            let mut app = App::new(definition, self.http.another());
            app.declare(definition).await?;
        }
        let topic = stafett_kafka_client::admin::NewTopic {
            name: definition.dead_topic(),
            partitions: Some(1),
            replication: None,
            settings: Vec::new(),
            dry_run: false,
        };
        match self.client.create_topic(&topic).await {
            Err(why) if why.code() != Some(stafett_kafka_client::ErrorCode::TopicAlreadyExists) => {
                Err(why.into())
            }
            _ => Ok(()),
        }
    }
}

/// Returns the offset of each partition of a sink at which `begin` lies.
pub async fn begins(
    definition: &Definition,
    client: &Client,
    begin: Begin,
) -> Result<Vec<(Place, u64)>, ClientError> {
    let mut places = Vec::new();
    for name in &definition.from {
        for partition in client.topic(name).await?.partitions {
            let place = Place {
                topic: name.clone(),
                partition: u32::try_from(partition.index).unwrap_or(0),
            };
            let offset = reader::begin(client, &place, begin).await?;
            places.push((place, offset));
        }
    }
    Ok(places)
}

/// A session of the worker.
struct Work<'a> {
    runner: &'a Runner,
    definition: Arc<Definition>,
    /// Client of the broker that has the records.
    source: Client,
    claims: Claims,
    held: HashMap<String, Held>,
    pumps: JoinSet<String>,
    news: mpsc::Sender<News>,
    heard: mpsc::Receiver<News>,
    limiter: Arc<Lock<Limiter>>,
    poison: Arc<Lock<PoisonCount>>,
    paused: bool,
}

impl<'a> Work<'a> {
    fn new(runner: &'a Runner, definition: Arc<Definition>, source: Client, claims: Claims) -> Self {
        let (news, heard) = mpsc::channel(NEWS);
        let limiter = Arc::new(Lock::new(Limiter::new(definition.rate)));
        let poison = Arc::new(Lock::new(PoisonCount::new(definition.poison_max)));
        Self {
            runner,
            definition,
            source,
            claims,
            held: HashMap::new(),
            pumps: JoinSet::new(),
            news,
            heard,
            limiter,
            poison,
            paused: false,
        }
    }

    async fn run(&mut self, stop: &CancellationToken) -> Session {
        let (sender, mut changes) = mpsc::channel(NEWS);
        let mut polling = JoinSet::new();
        self.claims.spawn(&mut polling, sender);
        let mut look = tokio::time::interval(LOOK);
        let mut rests = self.runner.rests.clone();
        loop {
            let done = tokio::select! {
                () = stop.cancelled() => {
                    self.finish().await;
                    return Session::Stopped;
                }
                Some(change) = changes.recv() => self.change(change),
                Some(news) = self.heard.recv() => self.hear(news).await,
                Some(ended) = self.pumps.join_next() => self.ended(ended).await,
                _ = look.tick() => self.look().await,
                Ok(()) = rests.changed() => self.look().await,
            };
            if let Err(why) = done {
                if why.code().is_some() {
                    return Session::Over(why);
                }
                self.runner.status.enter(State::Retrying, &why.to_string());
            }
        }
    }

    fn change(&mut self, change: Result<Change, HttpError>) -> Result<(), HttpError> {
        match change? {
            Change::Claimed(claim) => self.start(claim, None),
            Change::Opened(claim, feed) => self.start(claim, Some(feed)),
            Change::Revoke(task) => {
                if let Some(held) = self.held.get_mut(&task) {
                    held.is_finishing = true;
                    held.orders.send_replace(Order::Finish);
                }
            }
            // The pumps end with the sender of their orders.
            Change::Lost(task) => drop(self.held.remove(&task)),
        }
        Ok(())
    }

    fn start(&mut self, claim: Claim, mut feed: Option<Feed>) {
        let first = if self.paused { Order::Pause } else { Order::Run };
        let (orders, received) = watch::channel(first);
        let places = claim.places(&self.definition.from);
        let pumps = places.len();
        for place in places {
            info!(sink = self.definition.name, %place, epoch = claim.epoch, "partition claimed");
            let unwritten = Unwritten::default();
            let origin = match &feed {
                Some(_) => Origin::Queue(Arc::clone(&unwritten)),
                None => Origin::Log(self.source.clone()),
            };
            let writer = self.writer(&place, &claim, origin);
            let pump = Pump {
                definition: Arc::clone(&self.definition),
                task: claim.task.clone(),
                place,
                client: self.source.clone(),
                status: Arc::clone(&self.runner.status),
                orders: received.clone(),
                news: self.news.clone(),
                now_ms: self.runner.now_ms,
                feed: feed.take(),
                unwritten,
            };
            let (task, gone) = (claim.task.clone(), received.clone());
            let status = Arc::clone(&self.runner.status);
            self.pumps.spawn(async move {
                let place = pump.place.clone();
                tokio::select! {
                    () = pump.run(writer) => {}
                    () = abandoned(gone) => {}
                }
                status.forget(&place);
                task
            });
        }
        let held = Held {
            pumps,
            claim,
            orders,
            is_finishing: false,
        };
        self.held.insert(held.claim.task.clone(), held);
    }

    fn writer(&self, place: &Place, claim: &Claim, origin: Origin) -> Writer {
        let runner = self.runner;
        let bounds = claim.bounds(&place.topic);
        let ledger = TaskLedger::new(&claim.task, claim.epoch, self.news.clone(), bounds);
        let surroundings = Surroundings {
            ledger: Some(Arc::new(ledger)),
            ..runner.surroundings.clone()
        };
        Writer {
            place: place.clone(),
            target: target_of(&self.definition, &surroundings),
            dead: DeadTopic {
                client: runner.client.clone(),
                source: origin,
                sink: self.definition.name.clone(),
                topic: self.definition.dead_topic(),
                allowed: self.definition.dead_letters,
                count: Arc::clone(&self.poison),
                now_ms: runner.now_ms,
                stored: 0,
            },
            limiter: Arc::clone(&self.limiter),
            status: Arc::clone(&runner.status),
            now_ms: runner.now_ms,
            epoch: 0,
            waits: Waits::default(),
        }
    }

    async fn hear(&mut self, news: News) -> Result<(), HttpError> {
        match news {
            News::Stored { task, topic, next } => {
                let Some(held) = self.held.get_mut(&task) else {
                    return Ok(());
                };
                match self.claims.commit(&mut held.claim, &topic, next).await {
                    Err(why) if why.code() == Some("lost_claim") => {
                        self.held.remove(&task);
                        Ok(())
                    }
                    // The target has the position; the app learns of it with the next commit.
                    Err(why) if why.code() == Some("bad_offset") => Ok(()),
                    committed => committed,
                }
            }
            News::Begin {
                task,
                topic,
                bounds,
                reply,
            } => {
                let begun = self.begin(&task, &topic, bounds).await;
                // The pump is gone if nothing takes it.
                let _ = reply.send(begun);
                Ok(())
            }
            News::Broken { task } => match self.held.remove(&task) {
                Some(held) => self.claims.release(&held.claim).await,
                None => Ok(()),
            },
            News::Poisoned { task } => {
                self.claims.pause().await?;
                if self.claims.gives_back()
                    && let Some(held) = self.held.remove(&task)
                {
                    self.claims.release(&held.claim).await?;
                }
                if let (Claims::Group(_) | Claims::Queue(_), Some(pauses)) = (&self.claims, &self.runner.pauses) {
                    // The process ends if nothing takes it.
                    let _ = pauses.send(self.definition.name.clone()).await;
                }
                self.look().await
            }
        }
    }

    /// Stores the bounds of a batch for a target that holds no position.
    async fn begin(&mut self, task: &str, topic: &str, bounds: (u64, u64)) -> Result<(), TargetError> {
        let place = |partition| Place {
            topic: topic.to_owned(),
            partition,
        };
        let Some(held) = self.held.get_mut(task) else {
            return Err(TargetError::Fenced(place(0)));
        };
        let partition = held.claim.partition;
        match self.claims.begin(&mut held.claim, topic, bounds).await {
            Ok(()) => Ok(()),
            Err(why) if why.code() == Some("lost_claim") => {
                self.held.remove(task);
                Err(TargetError::Fenced(place(partition)))
            }
            Err(why) => Err(TargetError::Retry(format!("the bounds are not stored: {why}"))),
        }
    }

    async fn ended(&mut self, ended: Result<String, tokio::task::JoinError>) -> Result<(), HttpError> {
        // A pump does not panic, and is never aborted while the session lasts.
        let Ok(task) = ended else {
            return Ok(());
        };
        let Some(held) = self.held.get_mut(&task) else {
            return Ok(());
        };
        held.pumps = held.pumps.saturating_sub(1);
        if held.pumps > 0 || !held.is_finishing {
            return Ok(());
        }
        while let Ok(news) = self.heard.try_recv() {
            self.hear(news).await?;
        }
        match self.held.remove(&task) {
            Some(held) => self.claims.release(&held.claim).await,
            None => Ok(()),
        }
    }

    /// Looks whether the sink is paused.
    async fn look(&mut self) -> Result<(), HttpError> {
        let paused = *self.runner.rests.borrow() || self.claims.is_paused().await?;
        if paused == self.paused {
            return Ok(());
        }
        self.paused = paused;
        info!(
            sink = self.definition.name,
            paused, "the sink is paused or resumed"
        );
        let (state, order) = if paused {
            (State::Paused, Order::Pause)
        } else {
            (State::Running, Order::Run)
        };
        if !(paused && self.runner.status.state().0 == State::Paused) {
            self.runner.status.enter(state, "");
        }
        self.claims.rest(paused).await;
        let gives_back = paused && self.claims.gives_back();
        for held in self.held.values_mut().filter(|held| !held.is_finishing) {
            held.is_finishing = gives_back;
            held.orders.send_replace(if gives_back { Order::Finish } else { order });
        }
        Ok(())
    }

    /// Has everything written that is gathered, and leaves.
    async fn finish(&mut self) {
        for held in self.held.values_mut() {
            held.is_finishing = true;
            held.orders.send_replace(Order::Finish);
        }
        let all = async {
            while !self.held.is_empty() {
                let done = tokio::select! {
                    Some(ended) = self.pumps.join_next() => self.ended(ended).await,
                    Some(news) = self.heard.recv() => self.hear(news).await,
                    else => return,
                };
                if let Err(why) = done {
                    warn!(sink = self.definition.name, "a position is not shown: {why}");
                    if self.pumps.is_empty() {
                        return;
                    }
                }
            }
        };
        if timeout(FINISH, all).await.is_err() {
            warn!(
                sink = self.definition.name,
                "not all that was read is written; it is read again"
            );
        }
        // The broker notices by itself if this fails.
        let _ = self.claims.leave().await;
    }
}

/// Waits until a claim has ended: its orders have no sender any more.
async fn abandoned(mut orders: watch::Receiver<Order>) {
    while orders.changed().await.is_ok() {}
}
