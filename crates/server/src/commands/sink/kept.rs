//! One sink that a broker keeps: run by its definition as it is, and begun anew when that changes.

use std::sync::Arc;
use std::time::Duration;

use stafett_admin::sinks::{SinkPosition, SinkReplay};
use stafett_kafka_client::Client;
use stafett_sinks::broker::{Servers, source};
use stafett_sinks::definition::{Begin, SourceSpec};
use stafett_sinks::http::Http;
use stafett_sinks::positions::{accept_gap, begins, position};
use stafett_sinks::runner::Runner;
use stafett_sinks::status::{State, Status};
use stafett_sinks::target::{Place, Start, Steps, Surroundings, target_of};
use stafett_sinks::{App, Definition};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::run::{now_ms, wall_ms};
use crate::sinks::words::{FromRunner, Question, Wanted};

const AGAIN: Duration = Duration::from_secs(1);

/// A question of the broker.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) number: u64,
    pub(super) question: Question,
}

/// A sink and its surroundings.
pub(super) struct Kept {
    pub(super) name: String,
    pub(super) wanted: watch::Receiver<Wanted>,
    pub(super) questions: mpsc::Receiver<Asked>,
    pub(super) servers: Servers,
    pub(super) http: Http,
    pub(super) webhook_allow: Vec<String>,
    pub(super) steps: Steps,
    pub(super) status: Arc<Status>,
    pub(super) told: mpsc::Sender<FromRunner>,
    pub(super) pauses: mpsc::Sender<String>,
    /// Answers to questions for which the sink runs on. They end with this.
    pub(super) answers: JoinSet<()>,
    pub(super) stop: CancellationToken,
}

/// Reason why a run of the sink ended.
enum Ended {
    Changed,
    Failed,
    Asked(Asked),
}

impl Kept {
    /// Runs until the sink is stopped.
    pub(super) async fn run(mut self) {
        while !self.stop.is_cancelled() {
            let wanted = self.wanted.borrow_and_update().clone();
            let definition = match Definition::from_json(&self.name, &wanted.definition) {
                Ok(definition) => definition,
                Err(why) => {
                    self.status.enter(State::Stopped, &why.to_string());
                    self.changed().await;
                    continue;
                }
            };
            let Some(client) = self.client().await else {
                return;
            };
            let Some(ended) = self.run_once(&definition, &client, wanted).await else {
                return;
            };
            match ended {
                Ended::Changed => {}
                Ended::Failed => {
                    let stop = self.stop.clone();
                    stop.run_until_cancelled(sleep(AGAIN)).await;
                }
                Ended::Asked(asked) => {
                    let answer = self.answer(&definition, client, asked.question).await;
                    let number = asked.number;
                    // The process ends if nothing takes it.
                    let _ = self.told.send(FromRunner::Answer { number, answer }).await;
                }
            }
        }
    }

    /// Waits until the definition changes, or the sink is stopped.
    async fn changed(&mut self) {
        let stop = self.stop.clone();
        // Its sender goes together with the sink.
        let _ = stop.run_until_cancelled(self.wanted.changed()).await;
    }

    /// Connects to the broker. `None` if the sink is stopped before.
    async fn client(&self) -> Option<Client> {
        loop {
            let connected = self.stop.run_until_cancelled(self.servers.connect()).await?;
            match connected {
                Ok(client) => return Some(client),
                Err(why) => {
                    if self.status.enter(State::Retrying, &why.to_string()) {
                        warn!(sink = self.name, "the broker is away: {why}");
                    }
                    self.stop.run_until_cancelled(sleep(AGAIN)).await?;
                }
            }
        }
    }

    /// Runs the sink until its definition changes, it fails, or the broker asks. `None` if it is stopped.
    async fn run_once(&mut self, definition: &Definition, client: &Client, mut now: Wanted) -> Option<Ended> {
        let (rests, resting) = watch::channel(now.rests);
        let runner = Runner {
            definition: definition.clone(),
            http: self.http.another(),
            client: client.clone(),
            surroundings: self.surroundings(),
            status: Arc::clone(&self.status),
            now_ms,
            rests: resting,
            pauses: Some(self.pauses.clone()),
        };
        let end = CancellationToken::new();
        let mut running = std::pin::pin!(runner.run(end.clone()));
        let (mut ended, mut is_stopped) = (None, false);
        let result = loop {
            tokio::select! {
                result = &mut running => break result,
                () = self.stop.cancelled(), if !is_stopped => {
                    is_stopped = true;
                    end.cancel();
                }
                changed = self.wanted.changed(), if ended.is_none() && !is_stopped => {
                    let wanted = self.wanted.borrow_and_update().clone();
                    if changed.is_ok() && wanted.definition == now.definition {
                        rests.send_replace(wanted.rests);
                        now = wanted;
                    } else {
                        ended = Some(Ended::Changed);
                        end.cancel();
                    }
                }
                Some(asked) = self.questions.recv(), if ended.is_none() && !is_stopped => {
                    if let Question::Positions = asked.question {
                        self.answer_aside(definition, asked.number);
                    } else {
                        ended = Some(Ended::Asked(asked));
                        end.cancel();
                    }
                }
                Some(_) = self.answers.join_next() => {}
            }
        };
        if let Err(why) = result {
            self.status.enter(State::Retrying, &why.to_string());
            warn!(sink = self.name, "the sink cannot run: {why}");
        }
        if is_stopped {
            return None;
        }
        Some(ended.unwrap_or(Ended::Failed))
    }

    fn surroundings(&self) -> Surroundings {
        Surroundings {
            steps: self.steps.clone(),
            wall: wall_ms,
            servers: self.servers.clone(),
            webhook_allow: self.webhook_allow.clone(),
            ledger: None,
        }
    }

    /// Answers with the positions, while the sink runs on.
    fn answer_aside(&mut self, definition: &Definition, number: u64) {
        let (definition, surroundings) = (definition.clone(), self.surroundings());
        let (http, told) = (self.http.another(), self.told.clone());
        self.answers.spawn(async move {
            let answer = positions(&definition, &surroundings, http).await;
            // The process ends if nothing takes it.
            let _ = told.send(FromRunner::Answer { number, answer }).await;
        });
    }

    /// Answers a question while the sink does not run.
    async fn answer(
        &self,
        definition: &Definition,
        client: Client,
        question: Question,
    ) -> Result<Vec<SinkPosition>, String> {
        let text = |why: &dyn std::fmt::Display| why.to_string();
        let mut target = target_of(definition, &self.surroundings());
        let mut app =
            (definition.source == SourceSpec::Own).then(|| App::new(definition, self.http.another()));
        if let Question::AcceptGap = question {
            let client = source(definition, client.clone())
                .await
                .map_err(|why| text(&why))?;
            accept_gap(definition, &client, &mut *target, app.as_mut())
                .await
                .map_err(|why| text(&why))?;
        }
        if let Question::Replay(replay) = question {
            if definition.keeps_positions_in_app() {
                let app = definition.app();
                return Err(format!(
                    "the app {app} has the positions: stafett app reset moves them"
                ));
            }
            for (place, start) in self.places(definition, client, replay).await? {
                target
                    .set_position(&place, start)
                    .await
                    .map_err(|why| text(&why))?;
            }
        }
        positions(definition, &self.surroundings(), self.http.another()).await
    }

    /// Returns the positions that a replay sets.
    async fn places(
        &self,
        definition: &Definition,
        client: Client,
        replay: SinkReplay,
    ) -> Result<Vec<(Place, Start)>, String> {
        let client = source(definition, client).await.map_err(|why| why.to_string())?;
        let Some(from) = replay.from else {
            let mut places = Vec::new();
            for SinkPosition {
                topic,
                partition,
                next,
            } in replay.positions
            {
                let place = Place { topic, partition };
                let start = position(definition, &client, &place, next).await;
                places.push((place, start.map_err(|why| why.to_string())?));
            }
            return Ok(places);
        };
        let begin = Begin::parse(&from).ok_or_else(|| {
            format!("{from:?} is not earliest, latest or a time such as 2026-11-22T16:00:00Z")
        })?;
        begins(definition, &client, begin)
            .await
            .map_err(|why| why.to_string())
    }
}

/// Returns the positions, as the target or the app has them.
async fn positions(
    definition: &Definition,
    surroundings: &Surroundings,
    http: Http,
) -> Result<Vec<SinkPosition>, String> {
    let found = if definition.keeps_positions_in_app() {
        let positions = App::new(definition, http).positions().await;
        positions.map_err(|why| why.to_string())
    } else {
        let positions = target_of(definition, surroundings).positions().await;
        positions.map_err(|why| why.to_string())
    };
    found.map(shown)
}

fn shown(positions: Vec<(Place, u64)>) -> Vec<SinkPosition> {
    let position = |(Place { topic, partition }, next)| SinkPosition {
        topic,
        partition,
        next,
    };
    positions.into_iter().map(position).collect()
}
