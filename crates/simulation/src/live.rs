//! Clients of live topics: they listen, subscribe and publish over `WebSocket`s, and record the answers.

mod messages;
mod place;
mod steps;
mod web_socket;

pub use self::steps::LiveStep;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Value, json};

use self::messages::Messages;
use self::place::{Place, is_lossy};
use self::web_socket::WebSocket;
use crate::server::Server;
use crate::world::{Death, Finding};

/// Number of clients with subscriptions. More follow: [`PUBLISHER`], [`READER`] and [`RESUMER`].
const CLIENTS: u8 = 3;
const PUBLISHER: u8 = 3;
const READER: u8 = 4;
/// The client with a place, which resumes.
const RESUMER: u8 = 5;
/// Patterns, numbered behind the topics: each matches two topics.
const PATTERNS: [&str; 2] = ["free/*", "*pt/?"];
/// Topics; those that begin with `kept/` have a log.
const TOPICS: [&str; 4] = ["free/a", "free/b", "kept/a", "kept/b"];
const KEPT: [u8; 2] = [2, 3];
/// The stored topic behind live topics, and their prefix.
pub const LOG: (&str, &str) = ("live", "kept/");
/// Maximum simulated milliseconds until answers and messages arrive.
const PATIENCE_MS: u32 = 20_000;

/// All clients of live topics, and their knowledge.
#[derive(Debug, Clone)]
pub struct Live {
    clients: Vec<Client>,
    messages: Messages,
}

/// Subscription state of a topic, as far as the client knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    No,
    Yes,
    /// The last request was not answered.
    Perhaps,
}

#[derive(Debug, Clone)]
struct Client {
    number: u8,
    socket: Option<WebSocket>,
    waiting: VecDeque<Asked>,
    listens: bool,
    subscriptions: BTreeMap<u8, Known>,
    /// Messages that must arrive on this connection: topic and number.
    expected: BTreeSet<(u8, u64)>,
    /// Messages without a log that arrived on it.
    got: BTreeSet<u64>,
    /// Last offset that arrived on it for each topic, since the subscription.
    last: BTreeMap<u8, u64>,
    /// Topics whose next message must be the first one.
    begins: BTreeSet<u8>,
    /// Its place, if it is the one that resumes.
    place: Place,
}

#[derive(Debug, Clone)]
enum Asked {
    Listen,
    Subscribe {
        topic: u8,
        is_on: bool,
        from_first: bool,
        before: Known,
    },
    Publish {
        topic: u8,
        number: u64,
    },
    Leave,
    List,
}

impl Live {
    pub fn new() -> Self {
        Self {
            clients: (0..=RESUMER).map(Client::new).collect(),
            messages: Messages::default(),
        }
    }

    /// Processes the broker's output.
    pub fn turn(&mut self, may_refuse: bool) -> Result<Vec<String>, Finding> {
        let mut notes = Vec::new();
        for client in &mut self.clients {
            client.turn(&mut self.messages, may_refuse, &mut notes)?;
        }
        Ok(notes)
    }

    /// Handles the end of the program: no connection is left.
    pub fn on_end(&mut self, died: Option<Death>, was_stopping: bool) {
        for client in &mut self.clients {
            // The broker may have written everything and stored the place, and then the answer was lost.
            let is_leaving = client.waiting.iter().any(|asked| matches!(asked, Asked::Leave));
            let is_lossy = is_leaving || is_lossy(died, was_stopping);
            client.place.on_end(is_lossy, &self.messages);
            client.lose();
        }
    }

    fn client(&mut self, number: u8) -> Result<&mut Client, Finding> {
        let client = self.clients.get_mut(usize::from(number));
        client.ok_or_else(|| Finding("no such client".to_owned()))
    }
}

impl Default for Live {
    fn default() -> Self {
        Self::new()
    }
}

impl Client {
    fn new(number: u8) -> Self {
        Self {
            number,
            socket: None,
            waiting: VecDeque::new(),
            listens: false,
            subscriptions: BTreeMap::new(),
            expected: BTreeSet::new(),
            got: BTreeSet::new(),
            last: BTreeMap::new(),
            begins: BTreeSet::new(),
            place: Place::default(),
        }
    }

    fn lose(&mut self) {
        for asked in std::mem::take(&mut self.waiting) {
            if let Asked::Subscribe { topic, .. } = asked {
                self.subscriptions.insert(topic, Known::Perhaps);
            }
        }
        *self = Self {
            subscriptions: std::mem::take(&mut self.subscriptions),
            place: std::mem::take(&mut self.place),
            ..Self::new(self.number)
        };
    }

    fn connect(&mut self, server: &mut Server) -> Result<(), Finding> {
        if self.socket.is_none() {
            let socket = server
                .connect_http()
                .map_err(|error| Finding(error.to_string()))?;
            self.socket = Some(WebSocket::open(socket));
        }
        Ok(())
    }

    fn ask(&mut self, command: &str, mut fields: Value, asked: Asked) {
        if let Some(fields) = fields.as_object_mut() {
            fields.insert("command".to_owned(), command.into());
            fields.insert("client_id".to_owned(), self.number.into());
        }
        if let Some(socket) = &mut self.socket {
            socket.send(fields.to_string().as_bytes());
            self.waiting.push_back(asked);
        }
    }

    fn listen(&mut self) {
        self.ask("listen", json!({}), Asked::Listen);
    }

    fn subscribe(&mut self, topic: u8, is_on: bool, from: Option<&str>) {
        let mut fields = json!({ kind(topic): name(topic) });
        if let Some(from) = from {
            fields = json!({ "topic": name(topic), "from": from });
        }
        if !is_on {
            self.expected
                .retain(|(expected, _)| *expected != topic && pattern_of(*expected) != topic);
        }
        let before = self.knows(topic);
        let is_so = before == if is_on { Known::Yes } else { Known::No };
        if !is_so {
            self.subscriptions.insert(topic, Known::Perhaps);
        }
        let command = if is_on { "subscribe" } else { "unsubscribe" };
        let asked = Asked::Subscribe {
            topic,
            is_on,
            from_first: from == Some("earliest"),
            before,
        };
        self.ask(command, fields, asked);
    }

    fn knows(&self, topic: u8) -> Known {
        self.subscriptions.get(&topic).copied().unwrap_or(Known::No)
    }

    /// True if a message that is published now must arrive.
    fn will_get(&self, topic: u8) -> bool {
        let is_certain = |by: u8| {
            let is_changing =
                |asked: &Asked| matches!(asked, Asked::Subscribe { topic: changing, .. } if *changing == by);
            self.knows(by) == Known::Yes && !self.waiting.iter().any(is_changing)
        };
        self.listens && (is_certain(topic) || is_certain(pattern_of(topic)))
    }

    fn turn(
        &mut self,
        messages: &mut Messages,
        may_refuse: bool,
        notes: &mut Vec<String>,
    ) -> Result<(), Finding> {
        while let Some(text) = self.socket.as_mut().and_then(WebSocket::next) {
            notes.push(format!("live client {} gets {text}", self.number));
            let read: Result<Value, _> = serde_json::from_str(&text);
            let read = read.map_err(|error| Finding(format!("{text} is no JSON: {error}")))?;
            if read.get("key").is_some() {
                self.on_broadcast(&read, messages)?;
            } else if read.get("notice").is_some() {
                return Err(Finding(format!("live client {} is told {read}", self.number)));
            } else {
                self.on_answer(&read, messages, may_refuse)?;
            }
        }
        self.look_at_place();
        if self.socket.as_ref().is_some_and(WebSocket::is_over) {
            notes.push(format!("live client {} was cut off", self.number));
            self.lose();
        }
        Ok(())
    }

    fn on_broadcast(&mut self, read: &Value, messages: &mut Messages) -> Result<(), Finding> {
        let wrong = |what: &str| Finding(format!("live client {}: {what}: {read}", self.number));
        let topic = (0..)
            .zip(TOPICS)
            .find(|(_, name)| read["key"] == *name)
            .map(|(topic, _)| topic)
            .ok_or_else(|| wrong("a topic that nobody publishes to"))?;
        let number = read["broadcast"].as_u64().ok_or_else(|| wrong("no number"))?;
        if !self.listens && !self.waiting.iter().any(|asked| matches!(asked, Asked::Listen)) {
            return Err(wrong("it does not listen"));
        }
        if self.knows(topic) == Known::No && self.knows(pattern_of(topic)) == Known::No {
            return Err(wrong("it does not subscribe to that"));
        }
        self.expected.remove(&(topic, number));
        let Some(offset) = read["offset"].as_u64() else {
            return if KEPT.contains(&topic) {
                Err(wrong("it has no offset"))
            } else if self.got.insert(number) {
                messages.see(topic, number)
            } else {
                Err(wrong("it came twice"))
            };
        };
        if self.number == RESUMER {
            // Older messages may come behind newer ones.
            self.place.take(topic, number)?;
        } else if self.last.insert(topic, offset).is_some_and(|last| last >= offset) {
            return Err(wrong("it comes behind a later one"));
        }
        if self.begins.remove(&topic)
            && let Some(first) = messages.first(topic).filter(|first| *first < offset)
        {
            return Err(wrong(&format!("{first} would be the first behind the answer")));
        }
        messages.see_at(topic, number, offset)
    }

    fn on_answer(&mut self, read: &Value, messages: &mut Messages, may_refuse: bool) -> Result<(), Finding> {
        let Some(asked) = self.waiting.pop_front() else {
            return Err(Finding(format!("{read} answers nothing")));
        };
        if !may_refuse && read.get("error").is_some() {
            return Err(Finding(format!(
                "{asked:?} of live client {} is answered {read}",
                self.number
            )));
        }
        let is_done = read.get("error").is_none();
        match asked {
            Asked::Listen => self.listens |= is_done,
            Asked::Subscribe {
                topic,
                is_on,
                from_first,
                before,
            } => {
                if is_done {
                    self.begins.remove(&topic);
                }
                if is_done && from_first {
                    // Stored messages are delivered again.
                    self.last.remove(&topic);
                    self.begins.insert(topic);
                }
                let is_last = !self
                    .waiting
                    .iter()
                    .any(|asked| matches!(asked, Asked::Subscribe { topic: other, .. } if *other == topic));
                if is_last && is_done {
                    let known = if is_on { Known::Yes } else { Known::No };
                    self.subscriptions.insert(topic, known);
                } else if is_last && read["error"] == "not_stored" {
                    self.subscriptions.insert(topic, before);
                }
            }
            Asked::Publish { .. } if read["error"] == "outcome_unknown" => {}
            Asked::Publish { topic, number } if is_done => messages.acknowledge(topic, number),
            Asked::Publish { topic, number } => messages.refuse(topic, number),
            Asked::Leave => {
                self.place.on_leave(may_refuse);
                self.lose();
            }
            Asked::List => self.on_list(read)?,
        }
        Ok(())
    }

    /// Compares its subscriptions with the stored ones.
    fn on_list(&mut self, read: &Value) -> Result<(), Finding> {
        let listed = ["topics", "patterns"].map(|kind| read[kind].as_array().cloned().unwrap_or_default());
        for (topic, name) in (0..).zip(TOPICS.into_iter().chain(PATTERNS)) {
            let is_there = listed.iter().flatten().any(|listed| listed == name);
            match (self.knows(topic), is_there) {
                (Known::Yes, false) | (Known::No, true) => {
                    return Err(Finding(format!(
                        "live client {} knows {:?} and is told {read}",
                        self.number, self.subscriptions
                    )));
                }
                (_, true) => self.subscriptions.insert(topic, Known::Yes),
                (_, false) => self.subscriptions.insert(topic, Known::No),
            };
        }
        Ok(())
    }
}

fn name(topic: u8) -> &'static str {
    let mut names = TOPICS.iter().chain(&PATTERNS);
    names.nth(topic.into()).copied().unwrap_or_default()
}

/// Returns the field of a command that names a topic or pattern.
fn kind(topic: u8) -> &'static str {
    if usize::from(topic) < TOPICS.len() {
        "topic"
    } else {
        "pattern"
    }
}

/// Returns the number of the pattern that matches a topic.
fn pattern_of(topic: u8) -> u8 {
    4 + topic / 2
}
