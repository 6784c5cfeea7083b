//! A session of a sink: its claims, a pump for each partition of them, and their positions as others see
//! them.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use stafett_kafka_client::Client;
use stafett_model::Lock;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::amqp::Feed;
use crate::claim::Claim;
use crate::claims::Claims;
use crate::dead::{DeadTopic, Origin};
use crate::definition::Definition;
use crate::flush::StoredLetters;
use crate::gate::Gate;
use crate::http::HttpError;
use crate::ledger::TaskLedger;
use crate::pace::{Limiter, PoisonCount, Waits};
use crate::pump::{News, Order, Pump};
use crate::reader::Unwritten;
use crate::runner::Runner;
use crate::status::{State, Status};
use crate::target::{Place, Start, Surroundings, TargetError, target_of};
use crate::turns::Turns;
use crate::work::{Change, LostTopic};
use crate::writer::{Writer, caught};

/// Interval of looks whether the sink is paused.
const LOOK: Duration = Duration::from_secs(2);
/// Time for gathered rows to be written at the end.
const FINISH: Duration = Duration::from_secs(25);
/// The same once a topic is gone. Transactions that were begun have to end.
const FINISH_LOST: Duration = Duration::from_secs(5);
const NEWS: usize = 64;

/// A task of this worker, and its pumps.
struct Held {
    claim: Claim,
    orders: watch::Sender<Order>,
    /// Pumps that have not ended.
    pumps: usize,
    is_finishing: bool,
}

/// End of a session with the app.
pub(crate) enum Session {
    /// It was told to stop.
    Stopped,
    /// The broker knows the worker no more: join again.
    Over(HttpError),
}

/// A session of the worker.
pub(crate) struct Work<'a> {
    runner: &'a Runner,
    definition: Arc<Definition>,
    /// Client of the broker that has the records.
    source: Client,
    pub(crate) claims: Claims,
    held: HashMap<String, Held>,
    pumps: JoinSet<String>,
    news: mpsc::Sender<News>,
    heard: mpsc::Receiver<News>,
    limiter: Arc<Lock<Limiter>>,
    turns: Arc<Turns>,
    poison: Arc<Lock<PoisonCount>>,
    /// Tasks that wait for a pause, as they have too much poison.
    poisoned: BTreeSet<String>,
    paused: bool,
}

impl<'a> Work<'a> {
    pub(crate) fn new(
        runner: &'a Runner,
        definition: Arc<Definition>,
        source: Client,
        claims: Claims,
    ) -> Self {
        let (news, heard) = mpsc::channel(NEWS);
        let limiter = Arc::new(Lock::new(Limiter::new(definition.rate)));
        let turns = Arc::new(Turns::new(definition.turns));
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
            turns,
            poison,
            poisoned: BTreeSet::new(),
            paused: false,
        }
    }

    pub(crate) async fn run(&mut self, stop: &CancellationToken) -> Session {
        let (sender, mut changes) = mpsc::channel(NEWS);
        let mut polling = JoinSet::new();
        self.claims.spawn(&mut polling, sender);
        let mut look = tokio::time::interval(LOOK);
        let mut rests = self.runner.rests.clone();
        loop {
            let done = tokio::select! {
                () = stop.cancelled() => {
                    self.finish(FINISH).await;
                    return Session::Stopped;
                }
                Some(change) = changes.recv() => self.change(change),
                Some(news) = self.heard.recv() => self.hear(news).await,
                Some(ended) = self.pumps.join_next() => self.ended(ended).await,
                _ = look.tick() => self.look().await,
                Ok(()) = rests.changed() => self.look().await,
            };
            if let Err(why) = done {
                if LostTopic::is_reason(&why) {
                    self.finish(FINISH_LOST).await;
                }
                if why.code().is_some() {
                    return Session::Over(why);
                }
                // The poison is the reason that counts.
                if self.poisoned.is_empty() {
                    if self.runner.status.enter(State::Retrying, &why.to_string()) {
                        warn!(sink = self.definition.name, "{why}");
                    }
                } else {
                    warn!(sink = self.definition.name, "the sink is not paused yet: {why}");
                }
            }
        }
    }

    /// Ends the pumps, and forgets how far they were.
    pub(crate) async fn abandon(&mut self) {
        self.pumps.shutdown().await;
        self.runner.status.forget_all();
    }

    fn change(&mut self, change: Result<Change, HttpError>) -> Result<(), HttpError> {
        let change = change?;
        self.runner.status.works();
        match change {
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
                None => Origin::Log(self.source.clone(), None),
            };
            let gate = Gate {
                orders: received.clone(),
                definition: Arc::clone(&self.definition),
                wall_ms: self.runner.surroundings.wall,
            };
            let writer = self.writer(&place, &claim, origin, gate);
            let pump = Pump {
                definition: Arc::clone(&self.definition),
                task: claim.task.clone(),
                place,
                client: self.source.clone(),
                broker: self.runner.client.clone(),
                status: Arc::clone(&self.runner.status),
                orders: received.clone(),
                news: self.news.clone(),
                now_ms: self.runner.now_ms,
                wall_ms: self.runner.surroundings.wall,
                feed: feed.take(),
                topic: None,
                unwritten,
            };
            let (task, gone) = (claim.task.clone(), received.clone());
            let status = Arc::clone(&self.runner.status);
            self.pumps.spawn(async move {
                let place = pump.place.clone();
                let orders = gone.clone();
                tokio::select! {
                    () = outlived(pump.run(writer), &place, &status, orders) => {}
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

    fn writer(&self, place: &Place, claim: &Claim, origin: Origin, gate: Gate) -> Writer {
        let runner = self.runner;
        // A task without a commit is at the start of the log, wherever the sink begins.
        let bounds = (claim.seq > 0).then(|| claim.bounds(&place.topic));
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
                stored: StoredLetters::default(),
            },
            limiter: Arc::clone(&self.limiter),
            turns: Arc::clone(&self.turns),
            gate,
            status: Arc::clone(&runner.status),
            now_ms: runner.now_ms,
            start: Start::at(0),
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
                self.poisoned.insert(task);
                self.look().await
            }
        }
    }

    /// Pauses the sink for tasks with too much poison. Those for which that fails stay until the next look.
    async fn pause_poisoned(&mut self) -> Result<(), HttpError> {
        while let Some(task) = self.poisoned.first().cloned() {
            self.claims.pause().await?;
            self.poisoned.remove(&task);
            if self.claims.gives_back()
                && let Some(held) = self.held.remove(&task)
            {
                self.claims.release(&held.claim).await?;
            }
            if let (Claims::Group(_) | Claims::Queue(_), Some(pauses)) = (&self.claims, &self.runner.pauses) {
                // The process ends if nothing takes it.
                let _ = pauses.send(self.definition.name.clone()).await;
            }
        }
        Ok(())
    }

    /// Stores the bounds of a batch for a target that holds no position.
    async fn begin(
        &mut self,
        task: &str,
        topic: &str,
        bounds: (u64, u64),
    ) -> Result<(u64, u64), TargetError> {
        let place = |partition| Place {
            topic: topic.to_owned(),
            partition,
        };
        let Some(held) = self.held.get_mut(task) else {
            return Err(TargetError::Fenced(place(0)));
        };
        let partition = held.claim.partition;
        match self.claims.begin(&mut held.claim, topic, bounds).await {
            Ok(stored) => Ok(stored),
            Err(why) if why.code() == Some("lost_claim") => {
                self.held.remove(task);
                Err(TargetError::Fenced(place(partition)))
            }
            Err(why) => Err(TargetError::Retry(format!("the bounds are not stored: {why}"))),
        }
    }

    async fn ended(&mut self, ended: Result<String, tokio::task::JoinError>) -> Result<(), HttpError> {
        // A panic of a pump is caught, and it is never aborted while the session lasts.
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
        let mut done = Ok(());
        while let Ok(news) = self.heard.try_recv() {
            done = done.and(self.hear(news).await);
        }
        match self.held.remove(&task) {
            Some(held) => done.and(self.claims.release(&held.claim).await),
            None => done,
        }
    }

    /// Looks whether the sink is paused. An error if a topic is gone.
    async fn look(&mut self) -> Result<(), HttpError> {
        self.pause_poisoned().await?;
        let looked = self.claims.look().await?;
        if let Some(lost) = looked.lost.first() {
            return Err(lost.refusal());
        }
        if let Claims::App(_) = &self.claims {
            self.runner.status.works();
        }
        let paused = *self.runner.rests.borrow() || looked.paused;
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
            held.orders
                .send_replace(if gives_back { Order::Finish } else { order });
        }
        Ok(())
    }

    /// Has everything written that is gathered, and leaves.
    async fn finish(&mut self, time: Duration) {
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
        if timeout(time, all).await.is_err() {
            warn!(
                sink = self.definition.name,
                "not all that was read is written; it is read again"
            );
        }
        // The broker notices by itself if this fails.
        let _ = self.claims.leave().await;
    }
}

/// Runs a pump. A panic stops its partition, which rests until the sink is started anew.
async fn outlived(
    pump: impl Future<Output = ()>,
    place: &Place,
    status: &Status,
    mut orders: watch::Receiver<Order>,
) {
    if caught(pump).await.is_none() {
        let why = "the records cannot be read or converted: that panicked";
        error!(%place, "{why}");
        status.trouble(place, State::Stopped, why);
        // The claim has ended if it fails.
        let _ = orders.wait_for(|order| *order == Order::Finish).await;
    }
}

/// Waits until a claim has ended: its orders have no sender any more.
async fn abandoned(mut orders: watch::Receiver<Order>) {
    while orders.changed().await.is_ok() {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_pump_that_panics_is_a_stopped_partition_until_it_has_to_finish() {
        let place = Place {
            topic: "t".to_owned(),
            partition: 0,
        };
        let (orders, received) = watch::channel(Order::Run);
        let status = Arc::new(Status::default());
        let shown = Arc::clone(&status);
        let pump = async { panic!("as a fault of the code would") };
        let mut running = JoinSet::new();
        running.spawn(async move { outlived(pump, &place, &shown, received).await });
        while status.state().0 != State::Stopped {
            tokio::task::yield_now().await;
        }
        assert!(running.try_join_next().is_none());
        orders.send_replace(Order::Finish);
        running.join_next().await.unwrap().unwrap();
    }
}
