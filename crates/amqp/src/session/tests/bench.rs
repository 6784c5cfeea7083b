//! A bench for sessions: executes frames and performs operations like the connection, without a socket.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::BytesMut;
use prometheus_client::registry::Registry;
use stafett_access::{Caller, Change, SUPERUSER, User, Verifiers};
use stafett_amqp_wire::frame;
use stafett_broker::{Broker, BrokerSettings};
use stafett_journal::ManualJournal;
use stafett_model::Namespace;
use stafett_net::{BudgetSettings, ByteBudget};
use stafett_topics::{NewTopic, TopicSettings};

use super::client::{Client, Performing, State};
use crate::connection::bad_frame;
use crate::context::AmqpContext;
use crate::handshake::{Agreed, ClientProperties, Handshake};
use crate::metrics::Metrics;
use crate::operation::Operation;
use crate::output::Output;
use crate::session::replies::Addresses;
use crate::session::{ConnectionEnd, Session};
use crate::settings::AmqpSettings;

/// The broker and its clients.
pub(in crate::session) struct Bench {
    journal: Arc<ManualJournal>,
    context: Arc<AmqpContext>,
    budget: Arc<ByteBudget>,
    clients: Vec<Client>,
    names: Names,
}

/// Generated names, by their beginning: scripts write `*` for the rest of the last one.
#[derive(Default)]
struct Names(HashMap<&'static str, String>);

impl Bench {
    pub(in crate::session) async fn start(options: &[String]) -> Self {
        let number = |name: &str| {
            let value = options
                .iter()
                .find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
            value.map(|value| value.parse::<usize>().unwrap())
        };
        let journal = Arc::new(ManualJournal::default());
        let mut settings = BrokerSettings::default();
        crate::add_hooks(&mut settings.hooks);
        let broker = Broker::start(journal.clone(), settings).await.unwrap();
        let broker = Arc::new(broker);
        crate::exchange_kinds::predeclare(&broker, &Namespace::default());
        let settings = AmqpSettings {
            create_virtual_hosts: options.iter().any(|word| word == "create-vhosts"),
            message_bytes_max: number("message-max").unwrap_or(1 << 20) as u64,
            ..AmqpSettings::default()
        };
        let context = AmqpContext {
            broker,
            settings,
            metrics: Metrics::register(&mut Registry::default()),
            replies: Addresses::default(),
            churn: crate::churn::Churn::default(),
            homes: std::sync::OnceLock::new(),
        };
        let bytes = number("budget").unwrap_or(64 << 20);
        Self {
            journal,
            context: Arc::new(context),
            budget: ByteBudget::new(BudgetSettings { bytes }),
            clients: Vec::new(),
            names: Names::default(),
        }
    }

    /// Performs a command. `more` are the other lines of frames that arrive together with it.
    pub(in crate::session) async fn perform(&mut self, line: &str, more: &[String]) {
        let mut words = split(line);
        let number = |words: &[String]| words.get(1).map_or(0, |word| word.parse().unwrap());
        match words[0].as_str() {
            "connect" | "knock" => self.connect(&words),
            // The client's connection breaks.
            "cut" => self.clients.retain(|client| client.name != words[1]),
            "hold" => self.journal.hold(),
            "hold-batches" => self.journal.hold_batches(),
            "hold-state" => self.journal.hold_state(),
            "release" => self.journal.release(),
            "commit" => assert!(self.journal.commit(number(&words)), "{line}: nothing is held"),
            "refuse" => assert!(self.journal.refuse(number(&words)), "{line}: nothing is held"),
            "space-is-short" => self.journal.set_space_short(true),
            "space-is-enough" => self.journal.set_space_short(false),
            "disk-is-used-up" => self.journal.set_used_up(true),
            "disk-has-space" => self.journal.set_used_up(false),
            // Later requests of the client have waited too long, or no longer.
            "overload" | "overload-ends" => {
                let client = self.clients.iter_mut().find(|client| client.name == words[1]);
                let State::Open(session) = &mut client.unwrap().state else {
                    panic!("{line}: it is not open");
                };
                session.refuses = words[0] == "overload";
            }
            "wait" => tokio::time::sleep(Duration::from_millis(number(&words) as u64)).await,
            "topic" => {
                let topic = NewTopic {
                    name: words[1].as_str().into(),
                    partitions: Some(words[2].parse().unwrap()),
                    settings: TopicSettings::default(),
                };
                let created = self.context.broker.catalog().create(vec![topic]).await;
                assert!(created[0].is_ok(), "{created:?}");
            }
            "delete-vhost" => {
                let namespace = Namespace::new(&words[1]);
                self.context
                    .broker
                    .delete_namespace(&Arc::new(Caller::internal()), &namespace)
                    .await
                    .unwrap();
            }
            _ => {
                let name = client_name(&mut words);
                if name == "a" && self.clients.iter().all(|client| client.name != name) {
                    self.connect(&split("connect a"));
                }
                let mut bytes = BytesMut::new();
                for mut words in std::iter::once(words).chain(more.iter().map(|line| split(line))) {
                    client_name(&mut words);
                    for word in &mut words {
                        self.names.fill_in(word);
                    }
                    let client = self
                        .clients
                        .iter_mut()
                        .find(|client| client.name == name)
                        .unwrap();
                    client.send(&words, &mut bytes);
                }
                let client = self
                    .clients
                    .iter_mut()
                    .find(|client| client.name == name)
                    .unwrap();
                client.turns.extend((!bytes.is_empty()).then_some(bytes));
            }
        }
    }

    fn connect(&mut self, words: &[String]) {
        let option = |name: &str| {
            words[2..]
                .iter()
                .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
        };
        let state = if words[0] == "knock" {
            State::Opening(Handshake::default())
        } else {
            let mut client = ClientProperties::default();
            client.cancel_notify = option("without") != Some("cancel-notify");
            client.blocked = option("without") != Some("blocked");
            let agreed = Agreed {
                user: "guest".into(),
                mechanism: "PLAIN".into(),
                client,
                channels_max: option("channels").map_or(10, |count| count.parse().unwrap()),
                frame_bytes_max: 131_072,
                heartbeat: Duration::ZERO,
                virtual_host: option("vhost").unwrap_or(Namespace::DEFAULT).to_owned().into(),
                is_internal: false,
            };
            let vhost = self.context.open_virtual_host(&agreed.virtual_host);
            assert!(vhost.is_ok(), "{vhost:?}");
            State::Open(Box::new(self.session(agreed)))
        };
        self.clients.push(Client::new(&words[1], state));
    }

    /// Makes a user without rules, closes the broker, and opens a session of the user.
    pub(in crate::session) fn session_of(&self, user: &str) -> Session {
        let access = self.context.broker.access();
        let put =
            |name: &str, tags: &[&str]| Change::PutUser(User::new(name, Verifiers::default(), tags).unwrap());
        access
            .directory()
            .apply([put("root", &[SUPERUSER]), put(user, &[])]);
        let agreed = Agreed {
            user: user.to_owned().into(),
            mechanism: "PLAIN".into(),
            client: ClientProperties::default(),
            channels_max: 10,
            frame_bytes_max: 131_072,
            heartbeat: Duration::ZERO,
            virtual_host: Namespace::DEFAULT.into(),
            is_internal: false,
        };
        let caller = access.trusted(user, std::net::Ipv4Addr::LOCALHOST.into());
        let (context, budget) = (Arc::clone(&self.context), Arc::clone(&self.budget));
        Session::new(context, agreed, caller.unwrap(), budget, Output::default())
    }

    fn session(&self, agreed: Agreed) -> Session {
        let budget = Arc::clone(&self.budget);
        let caller = self
            .context
            .broker
            .access()
            .anonymous(std::net::Ipv4Addr::LOCALHOST.into());
        Session::new(
            Arc::clone(&self.context),
            agreed,
            caller,
            budget,
            Output::default(),
        )
    }

    /// Runs everything that does not wait for the script. Returns the lines that clients see.
    pub(super) async fn settle(&mut self) -> Vec<String> {
        loop {
            // Time is paused: this sleeps until no task of the broker has anything to do.
            tokio::time::sleep(Duration::from_millis(1)).await;
            let mut is_quiet = true;
            for at in 0..self.clients.len() {
                is_quiet &= !self.step(at).await;
            }
            if is_quiet {
                break;
            }
        }
        let mut lines = Vec::new();
        for client in &mut self.clients {
            for line in client.seen.drain(..) {
                let line = self.names.hide(&line);
                let name = if client.name == "a" { "" } else { &client.name };
                lines.push(format!("{name} {line}").trim_start().to_owned());
            }
        }
        lines
    }

    /// Lets a client's session do one thing. Returns false if there is nothing to do.
    async fn step(&mut self, at: usize) -> bool {
        let context = Arc::clone(&self.context);
        if let State::Opening(..) = self.clients[at].state {
            if let Some(agreed) = self.clients[at].open(&context) {
                self.clients[at].state = State::Open(Box::new(self.session(agreed)));
                return true;
            }
            return false;
        }
        let client = &mut self.clients[at];
        let State::Open(session) = &mut client.state else {
            return false;
        };
        let mut did = true;
        let stepped = if let Some(performing) = &mut client.performing {
            let future = &mut performing.future;
            match std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await {
                Poll::Ready(done) => {
                    client.performing = None;
                    session.on_done(done)
                }
                Poll::Pending => {
                    // The first time it begins, and may need tasks of the broker.
                    did = !std::mem::replace(&mut performing.has_begun, true);
                    Ok(())
                }
            }
        } else {
            match execute(session, &mut client.turns, &mut client.input) {
                Some(executed) => executed,
                None => after_event(session, &mut did),
            }
        };
        if let Some(operation) = session.next_operation() {
            client.performing = Some(Performing {
                name: describe(&operation),
                future: Box::pin(async move { operation.perform(&context, &Caller::internal()).await }),
                has_begun: false,
                is_shown: false,
            });
        }
        let mut out = Vec::new();
        session.out.write_all(&mut out).await.unwrap();
        client.see(&out);
        if let Some(performing) = &mut client.performing
            && !did
            && !std::mem::replace(&mut performing.is_shown, true)
        {
            client.seen.push(format!("waits: {}", performing.name));
        }
        if let Err(end) = stepped {
            client.end(&end.to_string());
        }
        did
    }
}

/// Executes a frame, or ends a turn. `None` if there is nothing to execute.
fn execute(
    session: &mut Session,
    turns: &mut VecDeque<BytesMut>,
    input: &mut Option<BytesMut>,
) -> Option<Result<(), ConnectionEnd>> {
    if session.is_blocked() {
        if session.space.is_short() {
            return None;
        }
        session.unblock();
    }
    if input.is_none() {
        *input = turns.pop_front();
    }
    let buffer = input.as_mut()?;
    session.publish_again(buffer);
    Some(match frame::split(buffer, session.agreed.frame_bytes_max) {
        Ok(Some(frame)) => session.on_frame(frame),
        Ok(None) => {
            *input = None;
            session.finish_turn()
        }
        Err(error) => {
            let exception = bad_frame(error, buffer);
            *input = None;
            session.fail(0, exception)
        }
    })
}

fn after_event(session: &mut Session, did: &mut bool) -> Result<(), ConnectionEnd> {
    if session.namespace_closed.is_cancelled() && !session.is_closing() {
        session.on_namespace_closed()?;
    }
    session.look_at_arrivals()?;
    let before = session.out.len();
    session.resolve_ready()?;
    *did = session.deliver();
    session.end_without_namespace()?;
    *did |= session.out.len() > before;
    Ok(())
}

fn describe(operation: &Operation) -> String {
    match operation {
        Operation::AwaitPublished(_) => "messages are stored".to_owned(),
        Operation::Commit(_) => "a transaction is stored".to_owned(),
        Operation::AwaitStored(_) => "a change is stored".to_owned(),
        Operation::AwaitDeadLetters(_) => "rejected messages are dead-lettered".to_owned(),
        Operation::Declare(name, _) => format!("{name} is declared"),
        Operation::DeleteQueue { name, .. } => format!("{name} is deleted"),
        Operation::CreateTopic(topic) => format!("topic {} is created", topic.name),
        Operation::DeleteTopic(_) => "a topic is deleted".to_owned(),
        Operation::AwaitName(name) => format!("topic {name} is not being changed"),
        Operation::Reserve(_, bytes) => format!("memory for {bytes} bytes"),
        Operation::Grow(_) => "more memory".to_owned(),
        Operation::TakeOne { queue, .. } => format!("a message of {}", queue.name),
    }
}

/// Removes the name of a client from the beginning of a line; `a` may be left out.
fn client_name(words: &mut Vec<String>) -> String {
    match words[0].as_str() {
        name if name.len() == 1 && name.starts_with(char::is_alphabetic) => words.remove(0),
        _ => "a".to_owned(),
    }
}

/// Splits a line into words; one in quotes may be empty or have spaces.
fn split(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = line.trim();
    while !rest.is_empty() {
        let (word, behind) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap(),
            None => rest.split_once(' ').unwrap_or((rest, "")),
        };
        words.push(word.replace("\\n", "\n"));
        rest = behind.trim_start();
    }
    words
}

impl Names {
    const BEGINNINGS: [&str; 3] = ["amq.gen-", "amq.ctag-", "amq.rabbitmq.reply-to."];
    /// Length of the generated part.
    const LENGTH: usize = 32;

    fn fill_in(&self, word: &mut String) {
        for (beginning, name) in &self.0 {
            *word = word.replace(&format!("{beginning}*"), name);
        }
    }

    fn hide(&mut self, line: &str) -> String {
        let mut line = line.to_owned();
        for beginning in Self::BEGINNINGS {
            let mut from = 0;
            while let Some(at) = line[from..].find(beginning).map(|at| from + at) {
                let (begin, end) = (at + beginning.len(), at + beginning.len() + Self::LENGTH);
                if line
                    .get(begin..end)
                    .is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_hexdigit()))
                {
                    self.0.insert(beginning, line[at..end].to_owned());
                    line.replace_range(begin..end, "*");
                }
                from = begin;
            }
        }
        line
    }
}
