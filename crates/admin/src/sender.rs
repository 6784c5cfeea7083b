//! Messages of one request: checked, built, and stored.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;
use stafett_access::Action;
use stafett_broker::Broker;
use stafett_http::{Code, Problem, openapi, stamp};
use stafett_messaging::queues::{Queue, StoredAt};
use stafett_messaging::{QUEUES_MAX, Send, SendError, SentTogether};
use stafett_model::{Durability, Message, MessageHeaders, Namespace};
use stafett_store::wall_ms;

use crate::access;
use crate::answer;
use crate::caller::{self, Caller, queue_name};
use crate::content::{self, Headers, JSON};
use crate::key::{self, Key};
use crate::message::{CONTENT_TYPE, CONTEXT, MESSAGE_ID, REPLY_TO, SENDER, message_id};
use crate::queues::{find, with_id};
use crate::refusals::of_sending;

/// Contexts are below this.
pub(crate) const CONTEXT_MAX: u64 = 1 << 53;

/// A message to be sent.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Outgoing {
    #[serde(default)]
    pub(crate) to: To,
    /// A text stands for itself, any other value for its JSON.
    #[schemars(with = "Option<serde_json::Value>")]
    pub(crate) content: Option<Box<RawValue>>,
    pub(crate) content_base64: Option<String>,
    /// 0, the default, up to `priority_max` of the queues.
    pub(crate) priority: Option<u8>,
    /// Context of the request to which this is the response: below 2^53.
    pub(crate) context: Option<u64>,
    /// True to make a context, and to have responses sent to the sender's own queue.
    #[serde(default)]
    pub(crate) request: bool,
    /// Longest time in the queue.
    pub(crate) ttl_ms: Option<u64>,
    /// Time that it waits before the queues have it. It goes to those that are there then.
    pub(crate) delay_ms: Option<u64>,
    pub(crate) content_type: Option<String>,
    /// One is made if it is absent.
    pub(crate) message_id: Option<String>,
    #[serde(default)]
    pub(crate) headers: Headers,
}

/// Targets of a message: all of them get it, or none.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct To {
    #[serde(default)]
    pub(crate) queues: Vec<QueueRef>,
    #[serde(default)]
    pub(crate) clients: Vec<QueueRef>,
}

/// A queue or a client, by name or by id.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum QueueRef {
    Name(String),
    Id { id: String },
}

/// A message that is sent.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Sent {
    message_id: String,
    /// Context of a request or a response.
    pub(crate) context: Option<u64>,
    /// Names of the queues that have it, or get it after its delay.
    #[serde(serialize_with = "names")]
    #[schemars(with = "Vec<String>")]
    queues: Vec<Arc<Queue>>,
    /// Its place in each of these queues. Empty for a message that waits, for several of which an earlier
    /// request with the same Idempotency-Key stored all, and in a queue that was made anew meanwhile.
    places: Vec<QueuePlace>,
    /// Durability of the strictest of these queues, which the message has now.
    durability: String,
    /// True if it was stored by an earlier request with the same Idempotency-Key.
    repeated: bool,
}

/// Place of a message in a queue.
#[derive(Debug, Serialize, JsonSchema)]
struct QueuePlace {
    queue: String,
    /// Its id there, by which it is looked at, moved and discarded.
    id: String,
}

impl Sent {
    /// Sets the fields that are known once it is stored.
    pub(crate) fn set_stored(&mut self, places: &StoredAt, repeated: bool) {
        self.repeated = repeated;
        let places_in = |queue: &Arc<Queue>| {
            let id = queue.message_at(places)?;
            Some(QueuePlace {
                queue: queue.name.to_string(),
                id: message_id(queue.id, id),
            })
        };
        self.places = self.queues.iter().filter_map(places_in).collect();
    }
}

fn names<S: Serializer>(queues: &[Arc<Queue>], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(queues.iter().map(|queue| &*queue.name))
}

/// Result of each message of a list.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum SentOrRefused {
    Sent(Sent),
    /// The refusal, as an answer of its own would have it.
    Refused(#[schemars(schema_with = "openapi::refusal")] serde_json::Value),
}

/// A message that is ready to be stored, and its answer.
pub(crate) type Ready = (Send, Sent);

/// Sends messages of one request.
pub(crate) struct Sender<'a> {
    broker: &'a Broker,
    caller: Caller,
    namespace: Namespace,
}

impl<'a> Sender<'a> {
    /// Checks that the sender, if one is named, is registered.
    pub(crate) fn new(broker: &'a Broker, caller: Caller, namespace: Namespace) -> Result<Self, Problem> {
        if caller.0.is_some() {
            caller.own_queue(broker, &namespace)?;
        }
        Ok(Self {
            broker,
            caller,
            namespace,
        })
    }

    pub(crate) async fn send_all(
        &self,
        messages: Vec<Outgoing>,
        atomic: bool,
        is_one: bool,
        key: Option<Key>,
    ) -> Result<Response, Problem> {
        let ready = messages
            .into_iter()
            .enumerate()
            .map(|(at, message)| self.prepare_json(&message, key.map(|key| key.of_part(at))));
        if !atomic && !is_one {
            return self.send_each(ready.collect(), key).await;
        }
        let ready = ready.collect::<Result<Vec<Ready>, Problem>>()?;
        let (sends, mut sent): (Vec<Send>, Vec<Sent>) = ready.into_iter().unzip();
        self.store(sends, &mut sent, key).await?;
        match &*sent {
            [one] if is_one => Ok(answer(StatusCode::CREATED, one)),
            sent => Ok(answer(StatusCode::CREATED, &sent)),
        }
    }

    /// Sends each message for itself, in their order.
    pub(crate) async fn send_each(
        &self,
        messages: Vec<Result<Ready, Problem>>,
        key: Option<Key>,
    ) -> Result<Response, Problem> {
        if key.is_none() {
            return Ok(self.send_together(messages).await);
        }
        // All are staged before the first is waited for.
        let staged: Vec<_> = messages
            .into_iter()
            .enumerate()
            .map(|(at, ready)| {
                ready.map(|(send, sent)| {
                    let key = key.map(|key| key.of_part(at));
                    (self.begin(vec![send], key), sent)
                })
            })
            .collect();
        let mut results = Vec::with_capacity(staged.len());
        for one in staged {
            let result = match one {
                Ok((storing, mut sent)) => {
                    let stored = finish(storing, std::slice::from_mut(&mut sent)).await;
                    stored.map(|()| sent)
                }
                Err(why) => Err(why),
            };
            results.push(result);
        }
        Ok(each(results))
    }

    /// Sends each message for itself, all staged together.
    async fn send_together(&self, messages: Vec<Result<Ready, Problem>>) -> Response {
        let (mut sends, mut results) = (Vec::new(), Vec::with_capacity(messages.len()));
        for ready in messages {
            results.push(ready.map(|(send, sent)| {
                sends.push(send);
                sent
            }));
        }
        let storing = self.broker.messaging().send_each(&self.namespace, sends);
        let stored = stamp::storing(storing).await;
        let ready = results.iter_mut().filter(|result| result.is_ok());
        for (result, stored) in ready.zip(stored) {
            match (&mut *result, stored) {
                (Ok(sent), Ok(places)) => sent.set_stored(&places, false),
                (result, Err(why)) => *result = Err(of_sending(&why)),
                (Err(_), Ok(_)) => {}
            }
        }
        each(results)
    }

    /// Sends one message for itself.
    pub(crate) async fn send_one(
        &self,
        (message, mut sent): Ready,
        key: Option<Key>,
    ) -> Result<Response, Problem> {
        self.store(vec![message], std::slice::from_mut(&mut sent), key)
            .await?;
        Ok(answer(StatusCode::CREATED, &sent))
    }

    /// Stores messages. Their answers, if they are given, get their places.
    pub(crate) async fn store(
        &self,
        sends: Vec<Send>,
        sent: &mut [Sent],
        key: Option<Key>,
    ) -> Result<(), Problem> {
        finish(self.begin(sends, key), sent).await
    }

    fn begin(
        &self,
        sends: Vec<Send>,
        key: Option<Key>,
    ) -> impl Future<Output = Result<SentTogether, SendError>> + use<> {
        let request = key.map(Key::request);
        self.broker.messaging().send(&self.namespace, sends, request)
    }

    pub(crate) fn prepare_json(&self, message: &Outgoing, key: Option<Key>) -> Result<Ready, Problem> {
        let (content, is_json) =
            content::read(message.content.as_deref(), message.content_base64.as_deref())?;
        let kind = message.content_type.clone();
        let kind = kind.or_else(|| is_json.then(|| JSON.to_owned()));
        self.prepare(message, content, kind, key)
    }

    /// Checks a message, and builds the stored one. With `key`, of this message alone, it gets the same id
    /// and context however often the request is sent.
    pub(crate) fn prepare(
        &self,
        message: &Outgoing,
        value: Bytes,
        content_type: Option<String>,
        key: Option<Key>,
    ) -> Result<Ready, Problem> {
        let (queues, mut level) = self.targets(message)?;
        if message.delay_ms.is_some_and(|ms| ms > 0) {
            // Messages that wait are always synced.
            level = Durability::Sync;
        }
        let context = match message.context {
            Some(context) if context >= CONTEXT_MAX => {
                return Err(Problem::bad_request("context is a number below 2^53"));
            }
            Some(_) if message.request => {
                return Err(Problem::bad_request(
                    "a request gets its context here: leave it out",
                ));
            }
            Some(context) => Some(context),
            None => message.request.then(|| match key {
                Some(key) => key.context(),
                None => self.broker.messaging().new_context(),
            }),
        };
        let reply_to = if message.request {
            let own = self.caller.own_queue(self.broker, &self.namespace)?;
            Some(own.name.to_string())
        } else {
            None
        };
        let message_id = message.message_id.clone();
        let message_id = message_id.unwrap_or_else(|| key::message_id(key));
        let fields = [
            (CONTEXT, context.map(|context| context.to_string())),
            (REPLY_TO, reply_to),
            (CONTENT_TYPE, content_type),
            (MESSAGE_ID, Some(message_id.clone())),
        ];
        let stored = Message {
            routing_key: queues.first().map(|queue| queue.name.clone()).unwrap_or_default(),
            value,
            timestamp_ms: wall_ms(),
            priority: message.priority.unwrap_or(0),
            ttl_ms: message.ttl_ms,
            delay_ms: message.delay_ms,
            persistent: true,
            headers: self.headers(&message.headers, fields)?,
            ..Message::default()
        };
        let ready = Send {
            message: stored,
            queues: queues.iter().map(|queue| queue.name.clone()).collect(),
        };
        let sent = Sent {
            message_id,
            context,
            queues,
            places: Vec::new(),
            durability: level.to_string(),
            repeated: false,
        };
        Ok((ready, sent))
    }

    /// Returns the headers of a stored message: those of the request, and fields with names of their own.
    pub(crate) fn headers(
        &self,
        given: &Headers,
        fields: [(&str, Option<String>); 4],
    ) -> Result<MessageHeaders, Problem> {
        let mut headers = content::headers(given.clone())?;
        for (name, value) in [(SENDER, self.caller.0.clone())].into_iter().chain(fields) {
            // A request cannot set the sender.
            let is_fixed = name == SENDER || value.is_some();
            headers.retain(|(known, _)| !is_fixed || known != name);
            headers.extend(value.map(|value| (name.to_owned(), Some(value.into()))));
        }
        let headers = headers.into_iter();
        Ok(headers.map(|(name, value)| (name.into(), value)).collect())
    }

    /// Returns a message's queues, and the durability of the strictest.
    fn targets(&self, message: &Outgoing) -> Result<(Vec<Arc<Queue>>, Durability), Problem> {
        let To { queues, clients } = &message.to;
        let count = queues.len() + clients.len();
        if count == 0 {
            return Err(Problem::bad_request("to names at least one queue or client"));
        }
        if count > QUEUES_MAX {
            let why = format!("a message goes to {QUEUES_MAX} queues at most");
            return Err(Problem::new(Code::TooManyTargets, why).with("max", QUEUES_MAX));
        }
        let (mut found, mut level) = (Vec::with_capacity(count), Durability::Memory);
        let queues = queues.iter().map(|queue| self.queue(queue));
        let clients = clients.iter().map(|client| self.client(client));
        for queue in queues.chain(clients) {
            let queue = queue?;
            access::check_queue(self.broker, Action::Write, &self.namespace, &queue.name)?;
            let max = queue.declared.priority_max;
            let priority = message.priority.unwrap_or(0);
            if priority > max && !queue.declared.two_priorities && queue.over.is_none() {
                let why = format!(
                    "priority is at most {max} in queue {:?}, not {priority}",
                    &*queue.name
                );
                let problem = Problem::new(Code::OutOfRange, why).with("field", "priority");
                return Err(problem.with("min", 0).with("max", max));
            }
            level = level.or_higher(queue.durability().unwrap_or(Durability::Sync));
            found.push(queue);
        }
        Ok((found, level))
    }

    fn queue(&self, queue: &QueueRef) -> Result<Arc<Queue>, Problem> {
        match queue {
            QueueRef::Name(name) => find(self.broker, &self.namespace, name),
            QueueRef::Id { id } => with_id(self.broker, id)
                .filter(|queue| queue.namespace == self.namespace)
                .ok_or_else(|| Problem::new(Code::NoSuchQueue, format!("there is no queue with id {id:?}"))),
        }
    }

    fn client(&self, client: &QueueRef) -> Result<Arc<Queue>, Problem> {
        let (found, named) = match client {
            QueueRef::Name(name) => (caller::find(self.broker, &self.namespace, name), name),
            QueueRef::Id { id } => {
                let queue = with_id(self.broker, id);
                (
                    queue.filter(|queue| queue.personal && queue.namespace == self.namespace),
                    id,
                )
            }
        };
        found.ok_or_else(|| Problem::new(Code::NoSuchClient, format!("there is no client {named:?}")))
    }
}

/// Waits until messages are stored, whose answers get their places.
async fn finish(
    storing: impl Future<Output = Result<SentTogether, SendError>>,
    sent: &mut [Sent],
) -> Result<(), Problem> {
    let stored = stamp::storing(storing).await.map_err(|why| of_sending(&why))?;
    for (sent, places) in sent.iter_mut().zip(&stored.places) {
        sent.set_stored(places, stored.is_repeated);
    }
    Ok(())
}

/// Answers with the result of each message: 201 if all are sent.
fn each(results: Vec<Result<Sent, Problem>>) -> Response {
    let status = if results.iter().all(Result::is_ok) {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    let shown = results.into_iter().map(|result| match result {
        Ok(sent) => SentOrRefused::Sent(sent),
        Err(why) => SentOrRefused::Refused(why.to_value()),
    });
    answer(status, &shown.collect::<Vec<_>>())
}

/// Returns the reference to a client's queue.
pub(crate) fn to_client(name: &str) -> QueueRef {
    QueueRef::Name(queue_name(name))
}
