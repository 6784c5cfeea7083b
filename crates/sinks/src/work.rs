//! A worker of the sink's app: it has claims, and notes positions so that others see the lag.

use std::time::Duration;

use hyper::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value, json};

use crate::amqp::Feed;
use crate::claim::{Bounds, Claim, MARK};
use crate::definition::{Definition, OnGap};
use crate::http::{Http, HttpError};
use crate::target::Place;

/// Time that a request for events waits.
const POLL: Duration = Duration::from_secs(2);

/// State of an app that its workers follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) paused: bool,
    pub(crate) lost: Vec<LostTopic>,
}

/// A topic of an app that was deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LostTopic {
    pub(crate) name: String,
    /// True if there is another one of its name.
    pub(crate) is_made_again: bool,
}

const MADE_AGAIN: &str = "topic_made_again";
const GONE: &str = "no_such_topic";

impl LostTopic {
    /// Returns the refusal that commits of the app meet.
    pub(crate) fn refusal(&self) -> HttpError {
        let name = &self.name;
        let (code, detail) = if self.is_made_again {
            let why = "was deleted and made again; accept-gap goes on from its first record";
            (MADE_AGAIN, format!("the topic {name} {why}"))
        } else {
            (GONE, format!("the topic {name} was deleted"))
        };
        HttpError::Refused {
            status: 409,
            code: code.to_owned(),
            detail,
        }
    }

    /// True for a refusal of an app whose topic is gone.
    pub(crate) fn is_reason(why: &HttpError) -> bool {
        why.code().is_some_and(|code| [MADE_AGAIN, GONE].contains(&code))
    }
}

/// An app, by its path.
#[derive(Debug)]
pub struct App {
    path: String,
    http: Http,
}

impl App {
    pub fn new(definition: &Definition, http: Http) -> Self {
        let name = utf8_percent_encode(&definition.app(), NON_ALPHANUMERIC).to_string();
        Self {
            path: format!("/v1/apps/{name}"),
            http,
        }
    }

    /// Returns the app's declaration.
    pub fn declaration(definition: &Definition) -> Value {
        let on_gap = match definition.on_gap {
            OnGap::Stop => "stop",
            OnGap::Skip => "skip",
        };
        json!({"topics": definition.from, "on_gap": on_gap})
    }

    /// Declares the app, unless it is there. One over other topics is another app, and refused.
    pub async fn declare(&mut self, definition: &Definition) -> Result<(), HttpError> {
        match self.show().await {
            Err(HttpError::Refused { status: 404, .. }) => {}
            Err(why) => return Err(why),
            Ok(there) if there.get("topics") == Some(&json!(definition.from)) => return Ok(()),
            Ok(there) => {
                let topics = there.get("topics").map(Value::to_string).unwrap_or_default();
                return Err(HttpError::Refused {
                    status: 409,
                    code: "exists_differently".to_owned(),
                    detail: format!("the app {} reads {topics}", definition.app()),
                });
            }
        }
        let declaration = Self::declaration(definition);
        self.ask(Method::PUT, "", None, Some(&declaration)).await?;
        Ok(())
    }

    /// Returns the app, with its tasks.
    pub async fn show(&mut self) -> Result<Value, HttpError> {
        self.ask(Method::GET, "", None, None).await
    }

    pub(crate) async fn look(&mut self) -> Result<Look, HttpError> {
        let shown = self.show().await?;
        let lost = shown.get("lost").and_then(Value::as_array);
        let lost = lost.into_iter().flatten().filter_map(|lost| {
            Some(LostTopic {
                name: lost.get("topic")?.as_str()?.to_owned(),
                is_made_again: lost.get("made_again")?.as_bool()?,
            })
        });
        Ok(Look {
            paused: shown.get("paused").and_then(Value::as_bool).unwrap_or(false),
            lost: lost.collect(),
        })
    }

    /// Takes topics that were made again, and goes on behind all that is gone.
    pub(crate) async fn accept_gap(&mut self) -> Result<(), HttpError> {
        self.ask(Method::POST, "/accept-gap", None, None).await?;
        Ok(())
    }

    /// Returns the offsets of a task behind which the target has nothing; batches that were begun may end
    /// later.
    /// A broker of an earlier version tells only these ends.
    pub fn stored_offsets(position: &Value) -> Option<&Map<String, Value>> {
        let of = |name: &str| position.get(name).and_then(Value::as_object);
        of("safe").or_else(|| of("next"))
    }

    /// Returns the positions of all tasks.
    pub async fn positions(&mut self) -> Result<Vec<(Place, u64)>, HttpError> {
        let shown = self.show().await?;
        let tasks = shown.get("tasks").and_then(Value::as_array);
        let mut positions = Vec::new();
        for task in tasks.into_iter().flatten() {
            let partition = task
                .get("task")
                .and_then(Value::as_str)
                .and_then(|task| task.parse().ok());
            let position = task.pointer("/position").and_then(Self::stored_offsets);
            let (Some(partition), Some(next)) = (partition, position) else {
                continue;
            };
            for (topic, next) in next {
                let topic = topic.clone();
                positions.push((Place { topic, partition }, next.as_u64().unwrap_or(0)));
            }
        }
        positions.sort();
        Ok(positions)
    }

    pub async fn pause(&mut self, paused: bool) -> Result<(), HttpError> {
        let word = if paused { "/pause" } else { "/resume" };
        self.ask(Method::POST, word, None, None).await?;
        Ok(())
    }

    async fn ask(
        &mut self,
        method: Method,
        path: &str,
        session: Option<&str>,
        body: Option<&Value>,
    ) -> Result<Value, HttpError> {
        let path = format!("{}{path}", self.path);
        self.http.ask(method, &path, session, body, POLL).await
    }
}

/// A change of the worker's claims.
#[derive(Debug)]
pub(crate) enum Change {
    Claimed(Claim),
    /// A queue, with its messages.
    Opened(Claim, Feed),
    /// The task goes to another worker once it is released.
    Revoke(String),
    Lost(String),
}

/// A session of a worker.
#[derive(Debug)]
pub(crate) struct Worker {
    app: App,
    path: String,
    token: String,
    after: u64,
}

impl Worker {
    /// Joins the app. Claims come as events; those of an earlier session of this name are given back first.
    pub(crate) async fn join(mut app: App, name: &str) -> Result<Self, HttpError> {
        let path = format!("/workers/{name}");
        let wanted = json!({"deliver": false});
        let joined = app
            .ask(Method::POST, &format!("{path}/join"), None, Some(&wanted))
            .await?;
        let token = joined.get("token").and_then(Value::as_str).unwrap_or_default();
        Ok(Self {
            token: token.to_owned(),
            app,
            path,
            after: 0,
        })
    }

    pub(crate) fn app(&mut self) -> &mut App {
        &mut self.app
    }

    /// Returns the same session with a connection of its own, so that a wait holds up nothing else.
    pub(crate) fn another(&self) -> Self {
        Self {
            app: App {
                path: self.app.path.clone(),
                http: self.app.http.another(),
            },
            path: self.path.clone(),
            token: self.token.clone(),
            after: self.after,
        }
    }

    async fn command(&mut self, word: &str, body: &Value) -> Result<Value, HttpError> {
        let path = format!("{}/{word}", self.path);
        let token = self.token.clone();
        self.app.ask(Method::POST, &path, Some(&token), Some(body)).await
    }

    /// Waits for changes; none if nothing came.
    pub(crate) async fn poll(&mut self) -> Result<Vec<Change>, HttpError> {
        let wait_ms = u64::try_from(POLL.as_millis()).unwrap_or(0);
        let answer = self
            .command("poll", &json!({"after": self.after, "wait_ms": wait_ms}))
            .await?;
        let events = answer.get("events").and_then(Value::as_array);
        let mut changes = Vec::new();
        for event in events.into_iter().flatten() {
            self.after = event.get("number").and_then(Value::as_u64).unwrap_or(self.after);
            changes.extend(change(event));
        }
        Ok(changes)
    }

    /// Notes how far a task is in one of its topics.
    pub(crate) async fn commit(
        &mut self,
        claim: &mut Claim,
        topic: &str,
        next: u64,
    ) -> Result<(), HttpError> {
        self.resolve(claim).await?;
        match claim.end(topic, next) {
            Some(bounds) => self.send(claim, bounds, false).await,
            None => Ok(()),
        }
    }

    /// Stores the bounds of a batch that is about to be sent: another worker goes on at their begin, with the
    /// same batch. Returns the bounds that are stored.
    pub(crate) async fn begin(
        &mut self,
        claim: &mut Claim,
        topic: &str,
        bounds: (u64, u64),
    ) -> Result<(u64, u64), HttpError> {
        self.resolve(claim).await?;
        if let Some(bounds) = claim.begin(topic, bounds) {
            self.send(claim, bounds, false).await?;
        }
        Ok(claim.bounds(topic))
    }

    /// Marks a batch as one that has paused the sink.
    pub(crate) async fn mark(&mut self, claim: &mut Claim, topic: &str, next: u64) -> Result<(), HttpError> {
        self.resolve(claim).await?;
        match claim.mark(topic, next) {
            Some(bounds) => self.send(claim, bounds, false).await,
            None => Ok(()),
        }
    }

    /// Sends a commit without an answer again as it was: the app knows commits by their numbers alone.
    async fn resolve(&mut self, claim: &mut Claim) -> Result<(), HttpError> {
        match claim.unanswered.clone() {
            Some(bounds) => self.send(claim, bounds, true).await,
            None => Ok(()),
        }
    }

    async fn send(&mut self, claim: &mut Claim, bounds: Bounds, again: bool) -> Result<(), HttpError> {
        let body = claim.commit(&bounds);
        claim.unanswered = Some(bounds.clone());
        let answer = self.command("commit", &body).await;
        claim.answered(bounds, again, answer)
    }

    pub(crate) async fn release(&mut self, claim: &Claim) -> Result<(), HttpError> {
        let body = json!({"task": claim.task, "epoch": claim.epoch});
        self.command("release", &body).await?;
        Ok(())
    }

    pub(crate) async fn leave(&mut self) -> Result<(), HttpError> {
        self.command("leave", &json!({})).await?;
        Ok(())
    }
}

/// True if a batch of a claimed task has paused the sink.
fn is_marked(event: &Value) -> bool {
    let done = event.get("done").and_then(Value::as_array);
    let mut keys = done.into_iter().flatten().filter_map(|entry| entry.get(0));
    keys.any(|key| key == MARK)
}

fn change(event: &Value) -> Option<Change> {
    let number = |name: &str| event.get(name).and_then(Value::as_u64);
    let task = event.get("task")?.as_str()?.to_owned();
    Some(match event.get("event")?.as_str()? {
        "claimed" => {
            let offsets = |name: &str| {
                let offsets = event.get(name).and_then(Value::as_object);
                let offsets = offsets.into_iter().flatten();
                offsets
                    .filter_map(|(topic, next)| Some((topic.clone(), next.as_u64()?)))
                    .collect()
            };
            Change::Claimed(Claim {
                task,
                epoch: number("epoch")?,
                partition: u32::try_from(number("partition")?).ok()?,
                seq: number("seq")?,
                next: offsets("next"),
                safe: offsets("safe"),
                unanswered: None,
                topic: None,
                is_marked: is_marked(event),
            })
        }
        "revoke" => Change::Revoke(task),
        "lost" => Change::Lost(task),
        _ => return None,
    })
}
