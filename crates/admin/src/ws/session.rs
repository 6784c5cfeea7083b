//! Commands of one WebSocket, executed in their order.
//!
//! Messages to be sent are gathered and stored together: all that were read at once. A command that waits for
//! something is a request of its route, which the connection performs; later commands wait for it. All
//! answers come in the order of the commands; pushed messages and states come between them.
//!
//! Length: one state machine, with its parts and the shapes of its answers.

use std::sync::Arc;

use axum::http::Request;
use bytes::{Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use stafett_access::Action;
use stafett_broker::Broker;
use stafett_http::Problem;
use stafett_messaging::queues::StoredAt;
use stafett_messaging::{Send, SendError};
use stafett_model::Namespace;
use stafett_net::{Client, ClientWords, ConnectionEntry};
use stafett_ws::connection::Working;
use stafett_ws::session::{Close, Incoming, Step};
use tokio::sync::{Notify, watch};

use super::command::{self, Command, Op, SendCommand};
use super::consumers::{Consume, Consumers, Settlement};
use super::routed::{Answered, Route, Routes};
use super::watch::{Watches, Watching};
use crate::access::{self, SendQuota};
use crate::caller::Caller;
use crate::queues::find;
use crate::refusals::of_sending;
use crate::sender::{Sender, Sent};

/// Messages that are gathered at most, and their bytes.
const GATHERED_MAX: usize = 4096;
const GATHERED_BYTES_MAX: usize = 1 << 20;

/// Conversion of a command in a binary frame to JSON.
type ReadBinary = fn(&[u8]) -> Result<String, String>;

/// Encoding of a client's messages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dialect {
    /// Puts an answer, given as JSON, into a frame.
    pub(super) frame: fn(&[u8], &mut BytesMut),
    /// Converts a command in a binary frame to JSON. `None` if binary frames are not accepted.
    pub(super) read_binary: Option<ReadBinary>,
}

/// Parts that a session works with.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) broker: Arc<Broker>,
    pub(super) caller: Caller,
    pub(super) namespace: Namespace,
    pub(super) routes: Routes,
    pub(super) watches: Watches,
    /// True for a page that may do nothing.
    pub(super) only_shows: bool,
    pub(super) dialect: Dialect,
}

#[derive(Debug)]
pub(super) struct Session {
    parts: Parts,
    /// Entry of the connection, once there is one.
    entry: Option<Arc<ConnectionEntry>>,
    wake: Arc<Notify>,
    /// Notices changes of users and rules.
    changes: watch::Receiver<u64>,
    consumers: Option<Consumers>,
    watching: Watching,
    /// Messages to be stored, of this namespace.
    sends: (Namespace, Vec<Send>),
    send_bytes: usize,
    quota: SendQuota,
    /// Answers that wait for the messages.
    answers: Vec<Answer>,
    request: Option<Request<String>>,
    /// Command whose request is gathered or under way.
    asked: Option<Asked>,
    scratch: Vec<u8>,
}

#[derive(Debug)]
struct Asked {
    id: Option<Box<str>>,
    /// Client that the connection acts for if the request succeeds.
    registers: Option<String>,
    /// True if it may wait for something that others do.
    waits: bool,
}

/// An answer behind others.
#[derive(Debug)]
enum Answer {
    /// Its message is the next of those to be stored.
    Sent(Option<Box<str>>, Sent),
    Known(Vec<u8>),
}

/// Outcome of work.
#[derive(Debug)]
pub(super) enum Done {
    Stored(Vec<Result<StoredAt, SendError>>),
    Answered(Answered),
}

/// Client of a connection, for the registry of connections.
#[derive(Debug)]
struct WsClient {
    name: Option<String>,
    namespace: Namespace,
}

impl Client for WsClient {
    fn words(&self) -> ClientWords {
        ClientWords {
            protocol: "WebSocket",
            namespace: Some(self.namespace.to_string()),
            name: self.name.clone(),
            ..ClientWords::default()
        }
    }
}

/// Result of a command that is executed at once.
type Executed = Result<Vec<u8>, Problem>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cancel {
    consumer: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Unwatch {
    watch: u64,
}

#[derive(Debug, Serialize)]
struct Nothing {}

impl Session {
    pub(super) fn new(parts: Parts) -> Self {
        let wake = Arc::<Notify>::default();
        Self {
            watching: Watching::new(parts.watches.clone(), Arc::clone(&wake)),
            sends: (parts.namespace.clone(), Vec::new()),
            changes: parts.broker.access().changes(),
            parts,
            entry: None,
            wake,
            consumers: None,
            send_bytes: 0,
            quota: SendQuota::default(),
            answers: Vec::new(),
            request: None,
            asked: None,
            scratch: Vec::new(),
        }
    }

    /// Adds the client to the entry of its connection.
    fn introduce(&self) {
        if let Some(entry) = &self.entry {
            entry.introduce(Arc::new(WsClient {
                name: self.parts.caller.0.clone(),
                namespace: self.parts.namespace.clone(),
            }));
        }
    }

    fn execute(&mut self, command: Command<'_>, out: &mut BytesMut) -> Step {
        let id = command.id;
        let waits_for_earlier = match command.op {
            Op::Send => self.answers.len() >= GATHERED_MAX || self.send_bytes >= GATHERED_BYTES_MAX,
            Op::Settle | Op::Cancel | Op::Watch | Op::Unwatch | Op::Ping => {
                self.answers.len() >= GATHERED_MAX
            }
            Op::Register
            | Op::Call
            | Op::Receive
            | Op::Peek
            | Op::Pending
            | Op::Publish
            | Op::Produce
            | Op::Consume => !self.answers.is_empty(),
        };
        if waits_for_earlier {
            return Step::AfterWork;
        }
        let executed = match command.op {
            _ if self.parts.only_shows && !matches!(command.op, Op::Watch | Op::Unwatch | Op::Ping) => {
                Err(access::refusal_of_pages())
            }
            Op::Send => match self.send(command) {
                Ok(Sending::Later) => return Step::AfterWork,
                Ok(Sending::Elsewhere) => return self.ask(command, out),
                Ok(Sending::Gathered(sent)) => {
                    self.answers.push(Answer::Sent(id.map(Into::into), sent));
                    return Step::Done;
                }
                Err(why) => Err(why),
            },
            Op::Consume => self.consume(command),
            Op::Cancel => command.value().and_then(|Cancel { consumer }| {
                let consumers = self.consumers.as_mut().ok_or_else(no_consumers)?;
                consumers.cancel(consumer).map(|()| json(&Nothing {}))
            }),
            Op::Watch => {
                let Parts { caller, routes, .. } = &self.parts;
                let fields = command.fields();
                let by = access::caller(&self.parts.broker);
                fields.and_then(|fields| self.watching.watch(&fields, caller, &by, routes))
            }
            Op::Unwatch => command
                .value()
                .and_then(|Unwatch { watch }| self.watching.unwatch(watch))
                .map(|()| json(&Nothing {})),
            Op::Ping => Ok(json(&Nothing {})),
            Op::Settle => match self.settle(command) {
                Some(executed) => executed,
                None => return self.ask(command, out),
            },
            Op::Register | Op::Call | Op::Receive | Op::Peek | Op::Pending | Op::Publish | Op::Produce => {
                return self.ask(command, out);
            }
        };
        self.answer(id, executed, out);
        Step::Done
    }

    /// Gathers a message.
    fn send(&mut self, command: Command<'_>) -> Result<Sending, Problem> {
        let SendCommand { message, namespace } = command.send()?;
        let namespace = namespace.map_or_else(|| self.parts.namespace.clone(), |name| Namespace::new(&name));
        if namespace != self.sends.0 {
            if !self.sends.1.is_empty() {
                return Ok(Sending::Later);
            }
            self.sends.0 = namespace.clone();
        }
        let Parts { broker, caller, .. } = &self.parts;
        if broker.messaging().exchanges().is_elsewhere(&namespace) {
            return Ok(Sending::Elsewhere);
        }
        self.quota.check(broker, caller.0.as_deref())?;
        let sender = Sender::new(broker, caller.clone(), namespace)?;
        let (prepared, sent) = sender.prepare_json(&message, None)?;
        self.quota.take(broker, prepared.message.bytes());
        self.send_bytes += prepared.message.bytes();
        self.sends.1.push(prepared);
        Ok(Sending::Gathered(sent))
    }

    fn consume(&mut self, command: Command<'_>) -> Executed {
        let mut namespace = None;
        let wanted: Consume = command.value_in(&mut namespace)?;
        let (broker, caller) = (&self.parts.broker, &self.parts.caller);
        let namespace = namespace.map_or_else(|| self.parts.namespace.clone(), |name| Namespace::new(&name));
        if broker.messaging().exchanges().is_elsewhere(&namespace) {
            let why = format!(
                "the namespace is in another cell of the cluster: consume over a WebSocket that is opened with \
                 ?namespace={namespace}"
            );
            return Err(Problem::bad_request(why));
        }
        let queue = match &wanted.queue {
            Some(name) => {
                access::check_queue(broker, Action::Read, &namespace, name)?;
                find(broker, &namespace, name)?
            }
            None => caller.own_queue(broker, &namespace)?,
        };
        caller.check_receives(&queue)?;
        let messaging = broker.messaging();
        let connection = self.entry.as_ref().map_or(0, |entry| entry.id);
        let consumers = self.consumers.get_or_insert_with(|| {
            Consumers::new(messaging.queues().new_owner(), connection, Arc::clone(&self.wake))
        });
        Ok(json(&consumers.consume(messaging, &queue, &wanted)?))
    }

    /// Settles messages of a consumer. `None` if the command has leases.
    fn settle(&mut self, command: Command<'_>) -> Option<Executed> {
        let fields = command.fields().ok()?;
        fields.get("consumer")?;
        Some(command.value().and_then(|wanted: Settlement| {
            let consumers = self.consumers.as_mut().ok_or_else(no_consumers)?;
            consumers.settle(wanted).map(|result| json(&result))
        }))
    }

    /// Makes a command the request of its route.
    fn ask(&mut self, command: Command<'_>, out: &mut BytesMut) -> Step {
        if !self.answers.is_empty() {
            return Step::AfterWork;
        }
        let request = command.fields().and_then(|fields| {
            let text = |name| {
                let value = fields.get(name)?;
                serde_json::from_str::<String>(value.get()).ok()
            };
            let registers = (command.op == Op::Register).then(|| text("client")).flatten();
            let has_queue = text("queue").is_some();
            let route = Route::of(command.op, has_queue).ok_or_else(|| Problem::bad_request("op"))?;
            let namespace = Some(self.parts.namespace.as_str());
            Ok((route.request(fields, &self.parts.caller, namespace)?, registers))
        });
        match request {
            Ok((request, registers)) => {
                self.request = Some(request);
                self.asked = Some(Asked {
                    id: command.id.map(Into::into),
                    registers,
                    waits: matches!(command.op, Op::Receive | Op::Call),
                });
            }
            Err(why) => self.answer(command.id, Err(why), out),
        }
        Step::Done
    }

    fn answer(&mut self, id: Option<&str>, executed: Executed, out: &mut BytesMut) {
        let answer = match executed {
            Ok(value) => answer("ok", id, &value),
            Err(why) => answer("error", id, why.to_value().to_string().as_bytes()),
        };
        if self.answers.is_empty() {
            (self.parts.dialect.frame)(&answer, out);
        } else {
            self.answers.push(Answer::Known(answer));
        }
    }
}

impl stafett_ws::Session for Session {
    type Done = Done;

    fn attach(&mut self, entry: &Arc<ConnectionEntry>) {
        self.entry = Some(Arc::clone(entry));
        self.introduce();
    }

    fn read_binary(&self, bytes: &[u8]) -> Result<String, String> {
        match self.parts.dialect.read_binary {
            Some(read) => read(bytes),
            None => Err("expected text: binary messages need the subprotocol stafett.v1.msgpack".to_owned()),
        }
    }

    fn may_answer(&self) -> bool {
        self.parts.broker.tenure().holds()
    }

    fn on_message(&mut self, message: Incoming<'_>, out: &mut BytesMut) -> Step {
        if self.asked.is_some() {
            return Step::AfterWork;
        }
        let read = message.map_err(|why| (None, command::unreadable(why)));
        match read.and_then(Command::read) {
            Ok(command) => self.execute(command, out),
            Err(_) if self.answers.len() >= GATHERED_MAX => Step::AfterWork,
            Err((id, why)) => {
                self.answer(id, Err(why), out);
                Step::Done
            }
        }
    }

    fn take_work(&mut self) -> Option<Working<Done>> {
        if let Some(request) = self.request.take() {
            let by = access::caller(&self.parts.broker);
            let asking = self.parts.routes.clone().ask(request, by);
            return Some(Box::pin(async { Done::Answered(asking.await) }));
        }
        if self.sends.1.is_empty() {
            return None;
        }
        self.send_bytes = 0;
        let sends = std::mem::take(&mut self.sends.1);
        let stored = self.parts.broker.messaging().send_each(&self.sends.0, sends);
        Some(Box::pin(async { Done::Stored(stored.await) }))
    }

    fn works_long(&self) -> bool {
        self.asked.as_ref().is_some_and(|asked| asked.waits)
    }

    fn on_done(&mut self, done: Done, out: &mut BytesMut) {
        let frame = self.parts.dialect.frame;
        match done {
            Done::Answered(answered) => {
                let Some(Asked { id, registers, .. }) = self.asked.take() else {
                    return;
                };
                let text: fn(&Bytes) -> &[u8] = |body| body.trim_ascii_end();
                match &answered {
                    Ok(body) => {
                        if let Some(name) = registers {
                            self.parts.caller = Caller(Some(name));
                            self.quota = SendQuota::default();
                            self.introduce();
                        }
                        frame(&answer("ok", id.as_deref(), text(body)), out);
                    }
                    Err(body) => frame(&answer("error", id.as_deref(), text(body)), out),
                }
            }
            Done::Stored(results) => {
                let mut results = results.into_iter();
                for one in std::mem::take(&mut self.answers) {
                    let (id, mut sent) = match one {
                        Answer::Known(answer) => {
                            frame(&answer, out);
                            continue;
                        }
                        Answer::Sent(id, sent) => (id, sent),
                    };
                    self.scratch.clear();
                    begin(id.as_deref(), &mut self.scratch);
                    match results.next() {
                        Some(Err(why)) => put("error", &of_sending(&why).to_value(), &mut self.scratch),
                        Some(Ok(places)) => {
                            sent.set_stored(&places, false);
                            put("ok", &sent, &mut self.scratch);
                        }
                        None => put("ok", &sent, &mut self.scratch),
                    }
                    frame(&self.scratch, out);
                }
            }
        }
    }

    async fn ready(&self) {
        let mut changes = self.changes.clone();
        tokio::select! {
            () = self.wake.notified() => {}
            // Never without a sender: the broker has it.
            Ok(()) = changes.changed() => {}
        }
    }

    fn push(&mut self, out: &mut BytesMut) -> Result<(), Close> {
        let frame = self.parts.dialect.frame;
        let has_changed = self.changes.has_changed().unwrap_or(false);
        self.changes.mark_unchanged();
        if let Some(consumers) = &mut self.consumers {
            if has_changed {
                let by = access::caller(&self.parts.broker);
                consumers.end_refused(&by, &mut self.scratch, |json| frame(json, out));
            }
            consumers.take(&mut self.scratch, |json| frame(json, out));
        }
        self.watching.take(|json| frame(json, out));
        if out.is_empty() {
            self.scratch = Vec::new();
        }
        Ok(())
    }
}

/// Handling of a message to be sent.
enum Sending {
    /// It has to wait for those that are gathered.
    Later,
    /// It goes to another cell of the cluster, as a request of its own.
    Elsewhere,
    Gathered(Sent),
}

fn no_consumers() -> Problem {
    Problem::bad_request("this connection has no consumers")
}

fn json(value: &impl Serialize) -> Vec<u8> {
    // Shapes of this crate can always be written.
    serde_json::to_vec(value).unwrap_or_default()
}

fn begin(id: Option<&str>, out: &mut Vec<u8>) {
    out.push(b'{');
    if let Some(id) = id {
        out.extend_from_slice(b"\"id\":");
        out.extend_from_slice(id.as_bytes());
        out.push(b',');
    }
}

fn put(name: &str, value: &impl Serialize, out: &mut Vec<u8>) {
    out.push(b'"');
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
    drop(serde_json::to_writer(&mut *out, value));
    out.push(b'}');
}

/// Builds an answer with the `id` of its command.
fn answer(name: &str, id: Option<&str>, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len() + 64);
    begin(id, &mut out);
    out.push(b'"');
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
    out.extend_from_slice(value);
    out.push(b'}');
    out
}
