//! `/v1/apps/APP/work`: the commands of an app's worker, its events and its records over one WebSocket.
//!
//! A command is the request of its route, made within the process, so both ways have one set of rules.
//! Answers come in the order of the commands; events and records come between them (`work_flow`). When the
//! connection breaks, the worker stays for its time-out, and a `join` under its name keeps its claims.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, Request as HttpRequest};
use axum::response::Response;
use bytes::BytesMut;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use stafett_access::{Action, Caller as By, Kind, Resource};
use stafett_apps::{App, Claim};
use stafett_broker::Broker;
use stafett_http::api::get;
use stafett_http::query::encoded;
use stafett_http::{Api, Code, Path, Problem, Upgrade};
use stafett_net::{Client, ClientWords, ConnectionEntry};
use stafett_ws::connection::{self, Ending, Working};
use stafett_ws::frame::FrameError;
use stafett_ws::session::{Close, Incoming, Step};
use tokio::sync::{Notify, watch};
use tokio_util::task::TaskTracker;

use super::command::Fields;
use super::routed::{Answered, Routes, request_of};
use super::session::Dialect;
use super::work_command::{COMMANDS, Then, WantedCredit, drain_query};
use super::work_flow::{Credit, Flow};
use super::{Front, JSON, MSGPACK, WebSockets};
use crate::access;
use crate::apps::commit::Reached;
use crate::apps::shape::read_token;
use crate::apps::{find, worker as commands};
use crate::caller::Caller;

/// Subprotocols: JSON, which is also the default, and MessagePack.
const JSON_PROTOCOL: &str = "stafett.work.json";
const MSGPACK_PROTOCOL: &str = "stafett.work.msgpack";

/// Bound on the bytes of an id.
const ID_BYTES_MAX: usize = 256;

/// Close code of a connection whose user has lost the right.
const POLICY: u16 = 1008;

pub(super) fn routes(routes: Api<Front>) -> Api<Front> {
    routes.route(
        get(
            "/v1/apps/{app}/work",
            "Continues as a WebSocket with the commands of a worker, of the subprotocol stafett.work.json or \
             stafett.work.msgpack. docs/apps.md describes it.",
        )
        .refuses(&[
            Code::NotServing,
            Code::NoWebsocket,
            Code::NoSuchApp,
            Code::Forbidden,
        ]),
        upgrade,
    )
}

async fn upgrade(
    State(front): State<Front>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let upgrade = match Upgrade::read(&request, &[JSON_PROTOCOL, MSGPACK_PROTOCOL]) {
        Ok(upgrade) => upgrade,
        Err(refusal) => return Ok(*refusal),
    };
    if front.sockets.shutdown.draining().is_cancelled() {
        return Err(stafett_http::slot::closed());
    }
    let broker = front.broker.get()?;
    let by = access::caller(&broker);
    let app = find(&broker, &name)?;
    let dialect = if upgrade.protocol() == Some(MSGPACK_PROTOCOL) {
        MSGPACK
    } else {
        JSON
    };
    let routes = front.routes(request.extensions().get());
    let WebSockets {
        limits,
        shutdown,
        tasks,
    } = front.sockets;
    let session = Session::new(broker, app, routes, tasks.clone(), dialect);
    let ending = Ending {
        drain: shutdown.draining().child_token(),
        abort: shutdown.aborting().child_token(),
    };
    Ok(upgrade.accept(Box::new(move |connection, received| {
        Box::pin(async move {
            let _counted = tasks.token();
            let served = connection::run("/v1/apps/APP/work", connection, received, session, limits, ending);
            access::scope(by, served).await;
        })
    })))
}

/// The session of one connection.
pub(super) struct Session {
    broker: Arc<Broker>,
    app: Arc<App>,
    routes: Routes,
    tasks: TaskTracker,
    dialect: Dialect,
    wake: Arc<Notify>,
    changes: watch::Receiver<u64>,
    entry: Option<Arc<ConnectionEntry>>,
    joined: Option<Joined>,
    request: Option<HttpRequest<String>>,
    asked: Option<Asked>,
}

/// A worker that joined over this connection.
struct Joined {
    worker: String,
    token: HeaderValue,
    flow: Flow,
}

/// A command under way.
struct Asked {
    id: Option<Box<str>>,
    then: Then,
    waits: bool,
}

/// Worker of a connection, for the registry of connections.
#[derive(Debug)]
struct WorkClient(String);

impl Client for WorkClient {
    fn words(&self) -> ClientWords {
        ClientWords {
            protocol: "WebSocket",
            name: Some(self.0.clone()),
            ..ClientWords::default()
        }
    }
}

impl Session {
    pub(super) fn new(
        broker: Arc<Broker>,
        app: Arc<App>,
        routes: Routes,
        tasks: TaskTracker,
        dialect: Dialect,
    ) -> Self {
        Self {
            changes: broker.access().changes(),
            broker,
            app,
            routes,
            tasks,
            dialect,
            wake: Arc::default(),
            entry: None,
            joined: None,
            request: None,
            asked: None,
        }
    }

    fn execute(&mut self, text: &str) -> Result<(), (Option<Box<str>>, Problem)> {
        let mut fields: Fields<'_> = serde_json::from_str(text).map_err(|why| {
            let code = if why.is_data() {
                Code::BadRequest
            } else {
                Code::BadJson
            };
            (None, Problem::new(code, format!("the command: {why}")))
        })?;
        let id = fields.remove("id").map(RawValue::get).filter(|id| *id != "null");
        if id.is_some_and(|id| id.len() > ID_BYTES_MAX) {
            let why = format!("id has at most {ID_BYTES_MAX} bytes");
            return Err((None, Problem::bad_request(why)));
        }
        let id: Option<Box<str>> = id.map(Into::into);
        let command = fields.remove("command").map_or("null", RawValue::get);
        let command: String = serde_json::from_str(command).map_err(|_| {
            let why = "command is a text".to_owned();
            (id.clone(), Problem::bad_request(why).with("field", "command"))
        })?;
        let begun = self.begin(&command, fields);
        let (request, then) = begun.map_err(|why| (id.clone(), why))?;
        let waits = command == "fetch";
        self.request = Some(request);
        self.asked = Some(Asked { id, then, waits });
        Ok(())
    }

    /// Builds the request of a command.
    fn begin(&self, command: &str, mut fields: Fields<'_>) -> Result<(HttpRequest<String>, Then), Problem> {
        if !COMMANDS.contains(&command) {
            let why = format!("command is one of {}, not {command:?}", COMMANDS.join(", "));
            return Err(Problem::bad_request(why).with("field", "command"));
        }
        let text_of = |fields: &Fields<'_>, name: &str| {
            let value = fields
                .get(name)
                .map(|value| serde_json::from_str::<String>(value.get()));
            value.and_then(Result::ok)
        };
        let worker;
        let then = if command == "join" {
            worker = text_of(&fields, "worker").unwrap_or_default();
            fields.remove("worker");
            let credit = fields
                .remove("credit")
                .map(|credit| serde_json::from_str(credit.get()));
            let credit: WantedCredit = credit
                .transpose()
                .map_err(Problem::bad_request)?
                .unwrap_or_default();
            let delivers = fields.get("deliver").is_none_or(|value| value.get() != "false");
            let records = if delivers { credit.records } else { 0 };
            let bytes = credit.bytes;
            let credit = Credit { records, bytes };
            Then::Join {
                worker: worker.clone(),
                credit,
            }
        } else {
            let why = || Problem::new(Code::NoSuchWorker, "join comes first");
            worker = self.joined.as_ref().ok_or_else(why)?.worker.clone();
            let task = text_of(&fields, "task").unwrap_or_default();
            match command {
                "commit" => Then::Committed(Reached::default()),
                "fail" => Then::Failed { task },
                "release" => Then::Released { task },
                "leave" => Then::Left,
                _ => Then::Nothing,
            }
        };
        if worker.is_empty() {
            return Err(Problem::bad_request("join names the worker").with("field", "worker"));
        }
        let mut request = self.request(command, &worker, &fields)?;
        if let Then::Committed(reached) = &then {
            request.extensions_mut().insert(reached.clone());
        }
        Ok((request, then))
    }

    fn request(
        &self,
        command: &str,
        worker: &str,
        fields: &Fields<'_>,
    ) -> Result<HttpRequest<String>, Problem> {
        let mut uri = commands::COMMAND_PATH
            .replace("{app}", &encoded(&self.app.name).to_string())
            .replace("{worker}", &encoded(worker).to_string());
        uri.push_str(command);
        let mut body = super::routed::object(fields);
        if command == "drain" {
            uri.push_str(&drain_query(fields)?);
            body.clear();
        }
        let mut request = request_of(Method::POST, &uri, &Caller(None), body)?;
        if let Some(joined) = self.joined.as_ref().filter(|_| command != "join") {
            request
                .headers_mut()
                .insert("stafett-worker", joined.token.clone());
        }
        Ok(request)
    }

    fn put(&self, json: &[u8], out: &mut BytesMut) {
        (self.dialect.frame)(json, out);
    }

    fn refuse(&self, id: Option<&str>, problem: Value, out: &mut BytesMut) {
        let Value::Object(mut fields) = problem else {
            return;
        };
        let mut answer = Map::new();
        if let Some(id) = id.and_then(|id| serde_json::from_str(id).ok()) {
            answer.insert("id".to_owned(), id);
        }
        for (name, field) in [("error", "code"), ("info", "detail")] {
            answer.insert(name.to_owned(), fields.remove(field).unwrap_or_default());
        }
        for name in ["type", "title", "status"] {
            fields.remove(name);
        }
        answer.extend(fields);
        self.put(Value::Object(answer).to_string().as_bytes(), out);
    }

    /// Goes on after a command that succeeded.
    fn then(&mut self, then: Then, body: &[u8]) {
        let flow = self.joined.as_ref().map(|joined| &joined.flow.shared);
        match then {
            Then::Nothing => {}
            Then::Join { worker, credit } => self.join(worker, credit, body),
            Then::Committed(reached) => {
                if let Some(flow) = flow {
                    for (task, next) in reached.take() {
                        flow.on_commit(task, &next);
                    }
                }
            }
            Then::Failed { task } => {
                if let Some(flow) = flow {
                    flow.begin_again(&task);
                }
            }
            Then::Released { task } => {
                if let Some(flow) = flow {
                    flow.on_release(&task);
                }
            }
            Then::Left => self.joined = None,
        }
    }

    fn join(&mut self, worker: String, credit: Credit, body: &[u8]) {
        #[derive(Deserialize)]
        struct Answer {
            token: String,
            resumed: Vec<Held>,
        }
        #[derive(Deserialize)]
        struct Held {
            task: String,
            epoch: u64,
        }
        let Ok(Answer { token, resumed }) = serde_json::from_slice(body) else {
            return;
        };
        let (Some(number), Ok(header)) = (read_token(&token), HeaderValue::from_str(&token)) else {
            return;
        };
        if let Some(entry) = &self.entry {
            entry.introduce(Arc::new(WorkClient(worker.clone())));
        }
        let app = Arc::clone(&self.app);
        let flow = Flow::begin(app, (&worker, number), credit, &self.wake, &self.tasks);
        for Held { task, epoch } in resumed {
            if let Ok(task) = task.parse() {
                flow.shared.resume(Claim { task, epoch });
            }
        }
        self.joined = Some(Joined {
            worker,
            token: header,
            flow,
        });
    }

    fn may_work(&self, by: &By) -> bool {
        let resource = Resource::new(Kind::App, &self.app.name);
        by.check(Action::Write, &resource).is_ok()
    }
}

impl stafett_ws::Session for Session {
    type Done = Answered;

    fn attach(&mut self, entry: &Arc<ConnectionEntry>) {
        self.entry = Some(Arc::clone(entry));
    }

    fn read_binary(&self, bytes: &[u8]) -> Result<String, String> {
        match self.dialect.read_binary {
            Some(read) => read(bytes),
            None => {
                Err("expected text: binary messages need the subprotocol stafett.work.msgpack".to_owned())
            }
        }
    }

    fn may_answer(&self) -> bool {
        self.broker.tenure().holds()
    }

    fn on_message(&mut self, message: Incoming<'_>, out: &mut BytesMut) -> Step {
        if self.asked.is_some() {
            return Step::AfterWork;
        }
        let done = match message {
            Ok(text) => self.execute(text),
            Err(why) => Err((None, Problem::new(Code::BadJson, format!("the command: {why}")))),
        };
        if let Err((id, why)) = done {
            self.refuse(id.as_deref(), why.to_value(), out);
        }
        Step::Done
    }

    /// The close frame comes behind it.
    fn on_refused(&mut self, why: FrameError, out: &mut BytesMut) {
        if let FrameError::TooLarge { max } = why {
            let problem = Problem::new(Code::TooLarge, why).with("bytes_max", max);
            self.refuse(None, problem.to_value(), out);
        }
    }

    fn take_work(&mut self) -> Option<Working<Answered>> {
        let request = self.request.take()?;
        let by = access::caller(&self.broker);
        Some(Box::pin(self.routes.clone().ask(request, by)))
    }

    fn works_long(&self) -> bool {
        self.asked.as_ref().is_some_and(|asked| asked.waits)
    }

    fn on_done(&mut self, done: Answered, out: &mut BytesMut) {
        let Some(Asked { id, then, .. }) = self.asked.take() else {
            return;
        };
        match done {
            Ok(body) => {
                let body = body.trim_ascii();
                let mut answer = Vec::with_capacity(body.len() + 64);
                answer.push(b'{');
                if let Some(id) = &id {
                    answer.extend_from_slice(format!("\"id\":{id},").as_bytes());
                }
                answer.extend_from_slice(b"\"result\":\"success\"");
                let fields = body.strip_prefix(b"{").unwrap_or(b"}");
                if fields.trim_ascii() != b"}" {
                    answer.push(b',');
                }
                answer.extend_from_slice(fields);
                self.put(&answer, out);
                self.then(then, body);
            }
            Err(body) => {
                let problem = serde_json::from_slice(&body).unwrap_or_default();
                self.refuse(id.as_deref(), problem, out);
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
        if self.changes.has_changed().unwrap_or(false) {
            self.changes.mark_unchanged();
            if !self.may_work(&access::caller(&self.broker)) {
                return Err(Close {
                    code: POLICY,
                    reason: "forbidden",
                });
            }
        }
        let waiting = self.joined.as_ref().map(|joined| joined.flow.shared.take());
        for message in waiting.into_iter().flatten() {
            self.put(&message, out);
        }
        Ok(())
    }
}
