//! A session of a sink: its claims, a pump for each partition of them, and their positions as others see
//! them.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
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
use crate::held::{Held, Holding, Holdings};
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
/// The same once a topic is gone, and while the target is away. Transactions that were begun have to end.
const FINISH_LOST: Duration = Duration::from_secs(5);
const NEWS: usize = 64;

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
    held: Holdings,
    pumps: JoinSet<Holding>,
    news: mpsc::Sender<News>,
    heard: mpsc::Receiver<News>,
    limiter: Arc<Lock<Limiter>>,
    turns: Arc<Turns>,
    poison: Arc<Lock<PoisonCount>>,
    /// Tasks that wait for a pause, as they have too much poison: in the batch of a topic that ends there.
    poisoned: BTreeMap<Holding, (String, u64)>,
    /// Tasks of which a batch that paused the sink is known.
    marked: BTreeSet<String>,
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
            held: Holdings::default(),
            pumps: JoinSet::new(),
            news,
            heard,
            limiter,
            turns,
            poison,
            poisoned: BTreeMap::new(),
            marked: BTreeSet::new(),
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
                Some(found) = changes.recv() => match found {
                    Ok(found) => self.change(found).await,
                    Err(why) => Err(why),
                },
                Some(news) = self.heard.recv() => self.hear(news).await,
                Some(ended) = self.pumps.join_next() => self.ended(ended).await,
                _ = look.tick() => self.look().await,
                Ok(()) = rests.changed() => {
                    if !*rests.borrow_and_update() {
                        self.claims.resumed();
                    }
                    self.look().await
                }
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

    async fn change(&mut self, changes: Vec<Change>) -> Result<(), HttpError> {
        self.runner.status.works();
        let mut done = Ok(());
        for change in changes {
            match change {
                Change::Claimed(claim) => {
                    if claim.is_marked && self.marked.insert(claim.task.clone()) {
                        done = done.and(self.recall().await);
                    }
                    self.start(claim, None);
                }
                Change::Opened(claim, feed) => self.start(claim, Some(feed)),
                Change::Revoke(task) => {
                    if let Some(held) = self.held.of_task(&task) {
                        held.is_finishing = true;
                        held.orders.send_replace(Order::Finish);
                    }
                }
                Change::Lost(task) => drop(self.held.lose(&task)),
            }
        }
        done
    }

    /// Recalls a batch that paused the sink in another process: it passes if an operator has resumed that, or
    /// will.
    async fn recall(&mut self) -> Result<(), HttpError> {
        self.look().await?;
        self.poison.lock().recalled(self.paused);
        Ok(())
    }

    fn start(&mut self, claim: Claim, mut feed: Option<Feed>) {
        let first = if self.paused { Order::Pause } else { Order::Run };
        let (orders, received) = watch::channel(first);
        let of = self.held.name(&claim.task);
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
            let writer = self.writer(&place, (&of, &claim), origin, gate);
            let pump = Pump {
                definition: Arc::clone(&self.definition),
                of: of.clone(),
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
            let (of, gone) = (of.clone(), received.clone());
            let status = Arc::clone(&self.runner.status);
            self.pumps.spawn(async move {
                let place = pump.place.clone();
                let orders = gone.clone();
                tokio::select! {
                    () = outlived(pump.run(writer), &place, &status, orders) => {}
                    () = abandoned(gone) => {}
                }
                status.forget(&place);
                of
            });
        }
        let held = Held {
            pumps,
            claim,
            orders,
            is_finishing: false,
        };
        self.held.insert(of, held);
    }

    fn writer(&self, place: &Place, (of, claim): (&Holding, &Claim), origin: Origin, gate: Gate) -> Writer {
        let runner = self.runner;
        // A task without a commit is at the start of the log, wherever the sink begins.
        let bounds = (claim.seq > 0).then(|| claim.bounds(&place.topic));
        let ledger = TaskLedger::new(of.clone(), claim.epoch, self.news.clone(), bounds);
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
            News::Stored { of, topic, next } => {
                let Some(held) = self.held.get_mut(&of) else {
                    return Ok(());
                };
                match self.claims.commit(&mut held.claim, &topic, next).await {
                    Err(why) if why.code() == Some("lost_claim") => {
                        self.held.remove(&of);
                        Ok(())
                    }
                    // The target has the position; the app learns of it with the next commit.
                    Err(why) if why.code() == Some("bad_offset") => Ok(()),
                    committed => committed,
                }
            }
            News::Begin {
                of,
                topic,
                bounds,
                reply,
            } => {
                let begun = self.begin(&of, &topic, bounds).await;
                // The pump is gone if nothing takes it.
                let _ = reply.send(begun);
                Ok(())
            }
            News::Broken { of } => match self.held.remove(&of) {
                Some(held) => self.claims.release(&held.claim).await,
                None => Ok(()),
            },
            News::Poisoned { of, topic, next } => {
                self.poisoned.insert(of, (topic, next));
                self.look().await
            }
        }
    }

    /// Pauses the sink for tasks with too much poison. Those for which that fails stay until the next look.
    async fn pause_poisoned(&mut self) -> Result<(), HttpError> {
        while let Some((of, (topic, next))) = self.poisoned.first_key_value() {
            let (of, topic, next) = (of.clone(), topic.clone(), *next);
            self.claims.pause().await?;
            self.poisoned.remove(&of);
            self.marked.insert(of.task.clone());
            if let Some(held) = self.held.get_mut(&of)
                && let Err(why) = self.claims.mark(&mut held.claim, &topic, next).await
            {
                warn!(
                    sink = self.definition.name,
                    "the batch that paused the sink is not marked: {why}"
                );
            }
            if self.claims.gives_back()
                && let Some(held) = self.held.remove(&of)
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
        of: &Holding,
        topic: &str,
        bounds: (u64, u64),
    ) -> Result<(u64, u64), TargetError> {
        let place = |partition| Place {
            topic: topic.to_owned(),
            partition,
        };
        let Some(held) = self.held.get_mut(of) else {
            return Err(TargetError::Fenced(place(0)));
        };
        let partition = held.claim.partition;
        match self.claims.begin(&mut held.claim, topic, bounds).await {
            Ok(stored) => Ok(stored),
            Err(why) if why.code() == Some("lost_claim") => {
                self.held.remove(of);
                Err(TargetError::Fenced(place(partition)))
            }
            Err(why) => Err(TargetError::Retry(format!("the bounds are not stored: {why}"))),
        }
    }

    async fn ended(&mut self, ended: Result<Holding, tokio::task::JoinError>) -> Result<(), HttpError> {
        // A panic of a pump is caught, and it is never aborted while the session lasts.
        let Ok(of) = ended else {
            return Ok(());
        };
        let Some(held) = self.held.get_mut(&of) else {
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
        match self.held.remove(&of) {
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
        if !paused {
            self.poison.lock().resumed();
        }
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
        for held in self.held.all().filter(|held| !held.is_finishing) {
            held.is_finishing = gives_back;
            held.orders
                .send_replace(if gives_back { Order::Finish } else { order });
        }
        Ok(())
    }

    /// Has everything written that is gathered, and leaves.
    async fn finish(&mut self, time: Duration) {
        for held in self.held.all() {
            held.is_finishing = true;
            held.orders.send_replace(Order::Finish);
        }
        let status = Arc::clone(&self.runner.status);
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
        let is_done = {
            let mut all = pin!(all);
            let soon = time.min(FINISH_LOST);
            timeout(soon, all.as_mut()).await.is_ok()
                || !status.is_stuck() && timeout(time.saturating_sub(soon), all).await.is_ok()
        };
        if !is_done {
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
