//! One sink in this process: prepared, and run in sessions until it is stopped.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use stafett_kafka_client::{Client, ClientError};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::broker::source;
use crate::claims::{Claims, Group, Queue};
use crate::definition::{Definition, OnGap, SourceSpec};
use crate::http::{Http, HttpError};
use crate::pace::Waits;
use crate::positions::accept_gap;
use crate::session::{Session, Work};
use crate::status::{State, Status};
use crate::tables::{TableError, Tables};
use crate::target::{Surroundings, TargetError, target_of};
use crate::work::{App, LostTopic, Worker};

const AGAIN: Duration = Duration::from_secs(1);
/// The same where an operator has to raise a bound or remove rows: reading a large table is work.
const TOO_LARGE: Duration = Duration::from_mins(1);
/// A session that lasted this long, in ms, has no failures behind it.
const LASTED_MS: u64 = 60_000;

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
    #[error(transparent)]
    Target(#[from] TargetError),
}

impl RunError {
    /// True if it stays until an operator has mended something.
    fn stays(&self) -> bool {
        match self {
            Self::Http(why) => LostTopic::is_reason(why),
            Self::Client(_) => false,
            Self::Target(why) => matches!(why, TargetError::Stop(_) | TargetError::MadeAgain(_)),
        }
    }
}

impl Runner {
    /// Runs until `stop`. Rows that are gathered by then are written.
    pub async fn run(self, stop: CancellationToken) -> Result<(), RunError> {
        // State of an earlier definition.
        self.status.forget_all();
        self.prepare().await?;
        let Some(source) = stop.run_until_cancelled(self.source()).await else {
            return Ok(());
        };
        let mut waits = Waits::default();
        let mut ready = None;
        loop {
            // Tables stay from one session to the next.
            if ready.is_none() {
                ready = stop.run_until_cancelled(self.ready()).await;
            }
            let Some((definition, tables)) = ready.as_mut().filter(|_| !stop.is_cancelled()) else {
                return Ok(());
            };
            let claims = match self.join(&source).await {
                Ok(claims) => claims,
                Err(why) => {
                    let state = if why.stays() {
                        State::Stopped
                    } else {
                        State::Retrying
                    };
                    if self.status.enter(state, &why.to_string()) {
                        warn!(sink = definition.name, state = state.word(), "{why}");
                    }
                    stop.run_until_cancelled(sleep(AGAIN)).await;
                    continue;
                }
            };
            self.status.works();
            let begun_ms = (self.now_ms)();
            let mut session = Work::new(&self, Arc::clone(definition), source.clone(), claims);
            match run_with(&mut session, tables, &stop).await {
                Session::Stopped => return Ok(()),
                Session::Outdated(why) => {
                    self.enter(&why);
                    ready = None;
                }
                Session::Over(why) => warn!(sink = definition.name, "the session is over: {why}"),
            }
            // The broker notices by itself if this fails.
            let _ = session.claims.leave().await;
            session.abandon().await;
            if (self.now_ms)().saturating_sub(begun_ms) > LASTED_MS {
                waits.reset();
            }
            let wait = Duration::from_millis(waits.next_ms(rand::random()));
            stop.run_until_cancelled(sleep(wait)).await;
        }
    }

    /// Returns the definition with the secrets of its steps and its tables, once they are there.
    async fn ready(&self) -> (Arc<Definition>, Tables) {
        loop {
            let why = match self.definition.ready(&self.client).await {
                Ok((definition, tables)) => {
                    self.status.set_tables(&definition.steps);
                    return (Arc::new(definition), tables);
                }
                Err(why) => why,
            };
            self.enter(&why);
            sleep(match why {
                TableError::TooLarge(_) => TOO_LARGE,
                TableError::Secret(_) | TableError::Unreadable { .. } | TableError::Changed(_) => AGAIN,
            })
            .await;
        }
    }

    /// Notes that the sink cannot go on without a table or a secret.
    fn enter(&self, why: &TableError) {
        let state = match why {
            TableError::Secret(_) | TableError::TooLarge(_) => State::Stopped,
            TableError::Unreadable { .. } | TableError::Changed(_) => State::Retrying,
        };
        if self.status.enter(state, &why.to_string()) {
            warn!(sink = self.definition.name, state = state.word(), "{why}");
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
                TargetError::Stop(_) | TargetError::MadeAgain(_) => State::Stopped,
                TargetError::Retry(_) | TargetError::Poison { .. } | TargetError::Fenced(_) => {
                    State::Retrying
                }
            };
            if self.status.enter(state, &why.to_string()) {
                warn!(sink = self.definition.name, "the source is away: {why}");
            }
            sleep(AGAIN).await;
        }
    }

    async fn join(&self, source: &Client) -> Result<Claims, RunError> {
        match &self.definition.source {
            SourceSpec::Own => {
                let mut app = App::new(&self.definition, self.http.another());
                let lost = app.look().await?.lost;
                if let Some(first) = lost.first() {
                    let is_whole = lost.iter().all(|topic| topic.is_made_again);
                    if self.definition.on_gap == OnGap::Stop || !is_whole {
                        return Err(first.refusal().into());
                    }
                    let mut target = target_of(&self.definition, &self.surroundings);
                    accept_gap(&self.definition, source, &mut *target, Some(&mut app)).await?;
                }
                // A new name for each session: its claims come as events then, also those of the one before.
                let name = format!("sink-{}", uuid::Uuid::new_v4().simple());
                Ok(Claims::App(Worker::join(app, &name).await?))
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

/// Runs a session until it ends, or until a table is not current any more: then rows that are gathered are
/// written, and nothing else.
async fn run_with(session: &mut Work<'_>, tables: &mut Tables, stop: &CancellationToken) -> Session {
    let halt = stop.child_token();
    let mut running = pin!(session.run(&halt));
    tokio::select! {
        ended = &mut running => ended,
        why = tables.failed() => {
            halt.cancel();
            match running.await {
                Session::Stopped if !stop.is_cancelled() => Session::Outdated(why),
                ended @ (Session::Stopped | Session::Outdated(_) | Session::Over(_)) => ended,
            }
        }
    }
}
