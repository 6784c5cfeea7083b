//! What a connection's commands do: a synchronous machine. It is fed messages and gives answers; changes of subscriptions,
//! which have to be stored, it gathers for the connection to make.
//!
//! Answers come in the order of the commands. Commands behind a change that is under way wait for it, but for further
//! changes, which are gathered with it.

use std::sync::Arc;

use bytes::BytesMut;
use serde_json::{Value, json};
use stafett_broker::Live;
use stafett_broker::live::hub::{Published, Subscription};
use stafett_broker::live::{
    ChangeError, ClientName, ClientNumber, Format, Message, Outbox, OutboxBound, Payload, Sent,
    SubscriptionChange, What,
};

use crate::command::{self, Bounds, Command, Content, Names, PageWanted, Publish, Request};
use crate::fault::Fault;
use crate::json;
use crate::settings::LiveFrontSettings;

/// Changes that are gathered.
const CHANGES_MAX: usize = 4096;

/// How answers are put into frames.
pub type Frame = fn(&[u8], &mut BytesMut);

#[derive(Debug)]
pub struct Session {
    live: Arc<Live>,
    bounds: Bounds,
    bound: OutboxBound,
    format: &'static dyn Format,
    frame: Frame,
    outbox: Option<Arc<Outbox>>,
    /// Who listens here.
    clients: Vec<(ClientName, ClientNumber)>,
    gathered: Vec<SubscriptionChange>,
    /// What to answer each of them with.
    ids: Vec<Option<Box<str>>>,
}

/// What a session says of a message.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    Done,
    /// It has to be given again when the changes gathered so far are made.
    AfterChanges,
}

impl Session {
    pub fn new(
        live: Arc<Live>,
        settings: &LiveFrontSettings,
        format: &'static dyn Format,
        frame: Frame,
    ) -> Self {
        Self {
            live,
            bounds: Bounds {
                topic_bytes_max: settings.topic_bytes_max,
                outbox_bytes_max: settings.outbox_bytes_max,
            },
            bound: settings.bound(),
            format,
            frame,
            outbox: None,
            clients: Vec::new(),
            gathered: Vec::new(),
            ids: Vec::new(),
        }
    }

    /// Does what a message says; answers go into `out`.
    pub fn on_text(&mut self, text: &str, out: &mut BytesMut) -> Step {
        let request = match command::read(text, self.bounds) {
            Ok(request) => request,
            Err((id, fault)) => {
                if !self.gathered.is_empty() {
                    return Step::AfterChanges;
                }
                (self.frame)(&json::error(id, &fault), out);
                return Step::Done;
            }
        };
        let changes = matches!(request.command, Command::Subscribe(_) | Command::Unsubscribe(_));
        if !changes && !self.gathered.is_empty() || self.gathered.len() >= CHANGES_MAX {
            return Step::AfterChanges;
        }
        self.on_request(request, out);
        Step::Done
    }

    fn on_request(&mut self, request: Request<'_>, out: &mut BytesMut) {
        let Request { id, client, command } = request;
        let answer = match command {
            Command::Publish { messages, ack } => match publish(&self.live, &messages) {
                answer if ack => json::success(id, &answer),
                _ => return,
            },
            Command::Subscribe(names) => {
                let what = match names {
                    Names::Topics(topics) => What::Subscribe(topics),
                    Names::Patterns(patterns) => What::SubscribePatterns(patterns),
                };
                return self.gather(id, client, what);
            }
            Command::Unsubscribe(names) => {
                let what = match names {
                    None => What::UnsubscribeAll,
                    Some(Names::Topics(topics)) => What::Unsubscribe(topics),
                    Some(Names::Patterns(patterns)) => What::UnsubscribePatterns(patterns),
                };
                return self.gather(id, client, what);
            }
            Command::Listen {
                outbox_bytes,
                overflow,
            } => {
                let bound = OutboxBound {
                    bytes: outbox_bytes.unwrap_or(self.bound.bytes),
                    overflow: overflow.unwrap_or(self.bound.overflow),
                };
                match self.listen(client, bound) {
                    Ok(()) => json::success(id, &[]),
                    Err(fault) => json::error(id, &fault),
                }
            }
            Command::Leave => {
                self.leave(&client);
                json::success(id, &[])
            }
            Command::List(page) => json::success(id, &list(&self.live, &client, page)),
            Command::Presence { topic, page } => {
                json::success(id, &presence(&self.live, topic.as_deref(), page))
            }
            Command::Ping => json::success(id, &[]),
        };
        (self.frame)(&answer, out);
    }

    fn listen(&mut self, client: ClientName, bound: OutboxBound) -> Result<(), Fault> {
        let outbox = self
            .outbox
            .get_or_insert_with(|| Outbox::new(self.format, bound, Arc::clone(self.live.metrics())));
        let number = self.live.listen(&client, outbox)?;
        outbox.set_bound(bound);
        self.bound = bound;
        if !self.clients.iter().any(|(_, known)| *known == number) {
            self.clients.push((client, number));
        }
        Ok(())
    }

    fn leave(&mut self, client: &ClientName) {
        let Some(outbox) = &self.outbox else { return };
        self.clients.retain(|(name, number)| {
            if name == client {
                self.live.leave(*number, outbox);
            }
            name != client
        });
    }

    fn gather(&mut self, id: Option<&str>, client: ClientName, what: What) {
        self.gathered.push(SubscriptionChange { client, what });
        self.ids.push(id.map(Into::into));
    }

    /// The changes that were gathered, to be made.
    pub fn take_changes(&mut self) -> Option<Vec<SubscriptionChange>> {
        let changes = std::mem::take(&mut self.gathered);
        (!changes.is_empty()).then_some(changes)
    }

    /// Answers the changes that were taken.
    pub fn on_changed(&mut self, results: Vec<Result<usize, ChangeError>>, out: &mut BytesMut) {
        let ids = std::mem::take(&mut self.ids);
        for (id, result) in ids.into_iter().zip(results) {
            let id = id.as_deref();
            let answer = match result {
                Ok(_) => json::success(id, &[]),
                Err(error) => json::error(id, &error.into()),
            };
            (self.frame)(&answer, out);
        }
    }

    pub fn outbox(&self) -> Option<&Arc<Outbox>> {
        self.outbox.as_ref()
    }

    /// Puts what was sent to this connection's clients into `out`; false if the connection has to end because there was
    /// more than it may keep.
    pub fn on_sent(&mut self, sent: &mut Sent, out: &mut BytesMut) -> bool {
        for client in sent.taken_over.drain(..) {
            self.clients.retain(|(name, _)| *name != client);
            let more = [("client_id", json::client_id(&client))];
            (self.frame)(&json::notice("taken_over", &more), out);
        }
        if sent.dropped > 0 {
            let more = [("count", Value::from(sent.dropped))];
            (self.frame)(&json::notice("dropped", &more), out);
        }
        for message in sent.messages.drain(..) {
            out.extend_from_slice(&message);
        }
        !sent.overflowed
    }

    pub fn error(&self, fault: &Fault, out: &mut BytesMut) {
        (self.frame)(&json::error(None, fault), out);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(outbox) = &self.outbox {
            for (_, number) in &self.clients {
                self.live.leave(*number, outbox);
            }
        }
    }
}

/// Publishes messages, and says what became of them.
pub fn publish(live: &Live, messages: &[Publish<'_>]) -> [(&'static str, Value); 2] {
    let (mut receivers, mut duplicates) = (0, 0);
    for message in messages {
        let payload = match &message.payload {
            Content::Json(json) => Payload::Json(json),
            Content::Bytes(bytes) => Payload::Bytes(bytes),
        };
        let published = live.publish(Message {
            topic: &message.topic,
            payload,
            timestamp: message.timestamp,
            id: message.message_id.as_deref(),
            offset: None,
        });
        match published {
            Published::To(count) => receivers += count,
            Published::Duplicate => duplicates += 1,
        }
    }
    [("receivers", receivers.into()), ("duplicates", duplicates.into())]
}

fn list(live: &Live, client: &ClientName, page: PageWanted) -> Vec<(&'static str, Value)> {
    let page = live.subscriptions(client, page.from, page.count);
    let (mut topics, mut patterns) = (Vec::new(), Vec::new());
    for item in page.items {
        match item {
            Subscription::Topic(name) => topics.push(Value::from(name)),
            Subscription::Pattern(text) => patterns.push(Value::from(text)),
        }
    }
    vec![
        ("topics", topics.into()),
        ("patterns", patterns.into()),
        ("next", page.next.into()),
    ]
}

pub fn presence(live: &Live, topic: Option<&str>, page: PageWanted) -> Vec<(&'static str, Value)> {
    let mut fields = Vec::new();
    let present = if let Some(topic) = topic {
        let (subscribers, listening) = live.topic_presence(topic);
        fields.push(("subscribers", subscribers.into()));
        fields.push(("listening", listening.into()));
        live.subscribers(topic, page.from, page.count)
    } else {
        let counts = live.presence();
        fields.push(("listening", counts.listening.into()));
        fields.push(("topics", counts.topics.into()));
        fields.push(("subscriptions", counts.subscriptions.into()));
        live.present(page.from, page.count)
    };
    let clients = present.items.into_iter().map(
        |present| json!({"client_id": json::client_id(&present.client), "listening": present.listening}),
    );
    fields.push(("clients", clients.collect()));
    fields.push(("next", present.next.into()));
    fields
}
