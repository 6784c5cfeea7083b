//! A worker of the sink's app: it has claims, and notes positions so that others see the lag.

use std::collections::BTreeMap;
use std::time::Duration;

use hyper::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use crate::definition::{Definition, OnGap};
use crate::http::{Http, HttpError};

/// Time that a request for events waits.
const POLL: Duration = Duration::from_secs(2);

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
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    Claimed(Claim),
    /// The task goes to another worker once it is released.
    Revoke(String),
    Lost(String),
}

/// A task of the worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) task: String,
    pub(crate) epoch: u64,
    pub(crate) partition: u32,
    /// Number of the last commit.
    pub(crate) seq: u64,
    /// Positions by topic, as the app knows them.
    pub(crate) next: BTreeMap<String, u64>,
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
    pub(crate) async fn join(mut app: App, name: &str) -> Result<Self, (App, HttpError)> {
        let path = format!("/workers/{name}");
        let wanted = json!({"deliver": false});
        let joined = app
            .ask(Method::POST, &format!("{path}/join"), None, Some(&wanted))
            .await;
        let joined = match joined {
            Ok(joined) => joined,
            Err(why) => return Err((app, why)),
        };
        let token = joined.get("token").and_then(Value::as_str).unwrap_or_default();
        Ok(Self {
            token: token.to_owned(),
            app,
            path,
            after: 0,
        })
    }

    pub(crate) fn into_app(self) -> App {
        self.app
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
        let known = claim.next.get(topic).copied().unwrap_or(0);
        if next <= known {
            return Ok(());
        }
        let body = json!({
            "task": claim.task, "epoch": claim.epoch, "seq": claim.seq + 1, "next": {topic: next},
        });
        self.command("commit", &body).await?;
        claim.seq += 1;
        claim.next.insert(topic.to_owned(), next);
        Ok(())
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

fn change(event: &Value) -> Option<Change> {
    let number = |name: &str| event.get(name).and_then(Value::as_u64);
    let task = event.get("task")?.as_str()?.to_owned();
    Some(match event.get("event")?.as_str()? {
        "claimed" => {
            let next = event.get("next").and_then(Value::as_object);
            let next = next.into_iter().flatten();
            Change::Claimed(Claim {
                task,
                epoch: number("epoch")?,
                partition: u32::try_from(number("partition")?).ok()?,
                seq: number("seq")?,
                next: next
                    .filter_map(|(topic, next)| Some((topic.clone(), next.as_u64()?)))
                    .collect(),
            })
        }
        "revoke" => Change::Revoke(task),
        "lost" => Change::Lost(task),
        _ => return None,
    })
}
