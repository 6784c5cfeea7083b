//! Commands of a connection, as a synchronous state machine. It is fed messages and produces answers;
//! whatever must be stored first is gathered as [`Work`] for the connection to run.
//!
//! Answers are in the order of the commands. Commands behind gathered work wait for it, except commands that
//! join it: further changes behind changes, and further messages behind messages.

mod quota;
mod work;

use std::collections::HashMap;
use std::future::pending;
use std::sync::Arc;

use bytes::{Buf, BytesMut};
use serde_json::Value;
use stafett_access::Meter;
use stafett_live_topics::{
    ClientName, ClientNumber, Format, Live, Outbox, OutboxBound, OutboxDrain, SubscriptionChange,
    SubscriptionEdit,
};
use stafett_net::{ConnectionEntry, Intake};
use stafett_ws::connection::Working;
use stafett_ws::session::{Close, Incoming, Step};

use self::quota::Quota;
use self::work::publish;
pub use self::work::{Counts, Done, Work, publish_and_store};
use crate::command::{Bounds, Command, Names, Request};
use crate::fault::Fault;
use crate::rights::Rights;
use crate::settings::LiveFrontSettings;
use crate::{client, command, json, presence};

/// Messages whose topics are looked up together: enough to hide the memory latency.
const FORESEEN: usize = 16;
/// Maximum number of clients that listen on one connection.
const CLIENTS_MAX: usize = 65_536;
/// Maximum number of gathered changes, or of gathered answers to messages.
const GATHERED_MAX: usize = 4096;
/// Bytes taken from the outbox at once.
const SEND_BYTES: usize = 64 << 10;
/// Capacity for messages that an idle connection keeps.
const KEPT_MESSAGES: usize = 16;
/// Bytes at which no further message is gathered.
const STAGED_BYTES_MAX: usize = 1 << 20;

/// Converts a binary message to JSON. The error is a text.
pub type ReadBinary = fn(&[u8]) -> Result<String, String>;

/// Encoding of a client's messages.
#[derive(Debug, Clone, Copy)]
pub struct Dialect {
    pub format: &'static dyn Format,
    /// Puts an answer, given as JSON, into a frame.
    pub frame: fn(&[u8], &mut BytesMut),
    /// Converts a command in a binary frame to JSON. `None` if binary frames are not accepted.
    pub read_binary: Option<ReadBinary>,
}

#[derive(Debug)]
pub struct Session {
    live: Arc<Live>,
    bounds: Bounds,
    bound: OutboxBound,
    dialect: Dialect,
    rights: Rights,
    quota: Quota,
    outbox: Option<Arc<Outbox>>,
    sent: OutboxDrain,
    /// Clients that listen on this connection.
    clients: HashMap<ClientName, ClientNumber>,
    work: Work,
    /// The `id` of each gathered change, for its answer.
    ids: Vec<Option<Box<str>>>,
    /// The `id` and counts for the answers to messages that are being stored.
    acks: Vec<(Option<Box<str>>, Counts)>,
    /// Messages of logs were taken out of the outbox and are not completely sent.
    unsent: bool,
    is_publishing: bool,
    /// Waiting times of commands.
    pub(crate) intake: Intake,
    /// True if the bytes just read waited too long: no message in them is published.
    pub(crate) refuses: bool,
    /// Entry of the connection, until its first client listens.
    unnamed: Option<Arc<ConnectionEntry>>,
}

impl Session {
    pub fn new(live: Arc<Live>, settings: &LiveFrontSettings, dialect: Dialect, rights: Rights) -> Self {
        Self {
            live,
            bounds: settings.bounds(),
            bound: settings.bound(),
            dialect,
            rights,
            quota: Quota::default(),
            outbox: None,
            sent: OutboxDrain::default(),
            clients: HashMap::new(),
            work: Work::default(),
            ids: Vec::new(),
            acks: Vec::new(),
            unsent: false,
            is_publishing: false,
            intake: Intake::default(),
            refuses: false,
            unnamed: None,
        }
    }

    /// Has the connection keep to a quota.
    #[must_use]
    pub(crate) fn metered(mut self, meter: Option<Arc<dyn Meter>>) -> Self {
        self.quota = Quota::new(meter);
        self
    }

    fn on_read(&mut self, read: Result<Request<'_>, (Option<&str>, Fault)>, out: &mut BytesMut) -> Step {
        let permitted = read.and_then(|request| match self.rights.check(&request.command) {
            Ok(()) => Ok(request),
            Err(fault) => Err((request.id, fault)),
        });
        let request = match permitted {
            Ok(Request { id, command, .. }) if self.refuses && matches!(command, Command::Publish { .. }) => {
                self.is_publishing = true;
                if self.answers_later() {
                    return Step::AfterWork;
                }
                self.intake.refused("live", 1);
                (self.dialect.frame)(&json::error(id, &Fault::Overloaded), out);
                return Step::Done;
            }
            Ok(request) => request,
            Err((id, fault)) => {
                if self.answers_later() {
                    return Step::AfterWork;
                }
                (self.dialect.frame)(&json::error(id, &fault), out);
                return Step::Done;
            }
        };
        let must_wait = match request.command {
            Command::Subscribe(_) | Command::Unsubscribe(_) => {
                !self.acks.is_empty() || self.work.from.is_some() || self.ids.len() >= GATHERED_MAX
            }
            Command::Publish { .. } => {
                self.work.changes_anything()
                    || self.acks.len() >= GATHERED_MAX
                    || self.work.messages.bytes() >= STAGED_BYTES_MAX
            }
            Command::SubscribeFrom(..)
            | Command::Listen { .. }
            | Command::Leave
            | Command::List(_)
            | Command::Presence(..)
            | Command::Ping => self.answers_later(),
        };
        self.is_publishing = matches!(request.command, Command::Publish { .. });
        if must_wait {
            return Step::AfterWork;
        }
        // A refusal is an answer, which is behind those of the commands before.
        if self.answers_later() && self.quota.owes() {
            return Step::AfterWork;
        }
        match self.quota.charge(&request.command) {
            Ok(()) => self.on_request(request, out),
            Err(fault) => (self.dialect.frame)(&json::error(request.id, &fault), out),
        }
        Step::Done
    }

    fn on_request(&mut self, request: Request<'_>, out: &mut BytesMut) {
        let Request { id, client, command } = request;
        let answer = match command {
            Command::Publish { messages, ack } => {
                let counts = publish(&self.live, &messages, &mut self.work.messages);
                match ack {
                    false => return,
                    true if counts.stored > 0 || !self.acks.is_empty() => {
                        self.acks.push((id.map(Into::into), counts));
                        return;
                    }
                    true => json::success(id, &counts.fields()),
                }
            }
            Command::SubscribeFrom(topics, from) => {
                let listens = self.clients.contains_key(&client);
                match self.outbox.as_ref().filter(|_| listens) {
                    None => json::error(id, &Fault::NotListening),
                    Some(outbox) => {
                        self.work.from = Some((client, topics, from, Arc::clone(outbox)));
                        self.ids.push(id.map(Into::into));
                        return;
                    }
                }
            }
            Command::Subscribe(names) => {
                let what = match names {
                    Names::Topics(topics) => SubscriptionEdit::Subscribe(topics),
                    Names::Patterns(patterns) => SubscriptionEdit::SubscribePatterns(patterns),
                };
                return self.gather(id, client, what);
            }
            Command::Unsubscribe(names) => {
                let what = match names {
                    None => SubscriptionEdit::UnsubscribeAll,
                    Some(Names::Topics(topics)) => SubscriptionEdit::Unsubscribe(topics),
                    Some(Names::Patterns(patterns)) => SubscriptionEdit::UnsubscribePatterns(patterns),
                };
                return self.gather(id, client, what);
            }
            Command::Listen {
                outbox_bytes,
                overflow,
                filter,
            } => {
                let bound = OutboxBound {
                    bytes: outbox_bytes.unwrap_or(self.bound.bytes),
                    overflow: overflow.unwrap_or(self.bound.overflow),
                };
                match self.listen(client, bound, filter.as_deref()) {
                    Ok(()) => json::success(id, &[]),
                    Err(fault) => json::error(id, &fault),
                }
            }
            Command::Leave => {
                self.leave(&client);
                json::success(id, &[])
            }
            Command::List(page) => {
                json::success(id, &presence::list(&self.live, &client, page, &self.rights))
            }
            Command::Presence(of, page) => {
                json::success(id, &presence::presence(&self.live, &of, page, &self.rights))
            }
            Command::Ping => json::success(id, &[]),
        };
        (self.dialect.frame)(&answer, out);
    }

    fn listen(&mut self, client: ClientName, bound: OutboxBound, filter: Option<&str>) -> Result<(), Fault> {
        let filter = filter.map(|filter| self.live.filter(filter)).transpose()?;
        if self.clients.len() >= CLIENTS_MAX && !self.clients.contains_key(&client) {
            return Err(Fault::Crowded { max: CLIENTS_MAX });
        }
        let outbox = self.outbox.get_or_insert_with(|| {
            let metrics = Arc::clone(self.live.metrics());
            Outbox::guarded(self.dialect.format, bound, metrics, self.rights.guard())
        });
        let number = self.live.listen_filtered(&client, outbox, filter)?;
        if let Some(entry) = self.unnamed.take() {
            client::introduce(&entry, Some(&client));
        }
        outbox.set_bound(bound);
        self.bound = bound;
        self.clients.insert(client, number);
        Ok(())
    }

    fn leave(&mut self, client: &ClientName) {
        let Some(outbox) = &self.outbox else { return };
        if let Some(number) = self.clients.remove(client) {
            self.live.leave(number, outbox, false);
        }
    }

    fn gather(&mut self, id: Option<&str>, client: ClientName, what: SubscriptionEdit) {
        self.work.changes.push(SubscriptionChange { client, what });
        self.ids.push(id.map(Into::into));
    }

    /// Appends the messages to this connection's clients to `out`. Returns false if the connection must end
    /// because its outbox overflowed.
    fn on_sent(&mut self, sent: &mut OutboxDrain, out: &mut BytesMut) -> bool {
        for client in sent.taken_over.drain(..) {
            self.clients.remove(&client);
            let more = [("client_id", json::client_id(&client))];
            (self.dialect.frame)(&json::notice("taken_over", &more), out);
        }
        if sent.dropped > 0 {
            let more = [("count", Value::from(sent.dropped))];
            (self.dialect.frame)(&json::notice("dropped", &more), out);
        }
        for missed in sent.missed.drain(..) {
            (self.dialect.frame)(&json::missed(&missed), out);
        }
        if sent.from_logs
            && let Some(outbox) = &self.outbox
        {
            outbox.on_put_behind(out.len());
            self.unsent = true;
        }
        for message in sent.messages.drain(..) {
            out.extend_from_slice(&message);
        }
        !sent.overflowed
    }

    /// Returns true if an answer waits for the gathered work.
    fn answers_later(&self) -> bool {
        !self.ids.is_empty() || !self.acks.is_empty()
    }
}

impl stafett_ws::Session for Session {
    type Done = Done;

    fn read_binary(&self, bytes: &[u8]) -> Result<String, String> {
        match self.dialect.read_binary {
            Some(read) => read(bytes),
            None => Err(String::new()),
        }
    }

    fn on_message(&mut self, message: Incoming<'_>, out: &mut BytesMut) -> Step {
        let bounds = self.bounds;
        let read = match message {
            Ok(text) => command::read(text, bounds),
            Err(_) if self.dialect.read_binary.is_none() => Err((None, Fault::Binary)),
            Err(why) => Err((None, Fault::NotJson(why.to_owned()))),
        };
        self.on_read(read, out)
    }

    fn attach(&mut self, entry: &Arc<ConnectionEntry>) {
        client::introduce(entry, None);
        self.unnamed = Some(Arc::clone(entry));
    }

    fn intake(&mut self) -> Option<&mut Intake> {
        Some(&mut self.intake)
    }

    fn set_refuses(&mut self, refuses: bool) {
        self.refuses = refuses;
    }

    fn may_answer(&self) -> bool {
        self.live.settings.tenure.holds()
    }

    /// Worthwhile after a `publish`.
    fn takes_several(&self) -> bool {
        self.is_publishing
    }

    fn on_texts(&mut self, texts: &[&str], out_max: usize, out: &mut BytesMut) -> usize {
        let mut requests: Vec<_> = texts
            .iter()
            .map(|text| command::read(text, self.bounds))
            .collect();
        for request in &mut requests {
            if let Ok(Request {
                command: Command::Publish { messages, .. },
                ..
            }) = request
                && let [message] = messages.as_mut_slice()
            {
                message.foreseen = Some(self.live.prefetch(&message.topic));
            }
        }
        for request in &requests {
            if let Ok(Request {
                command: Command::Publish { messages, .. },
                ..
            }) = request
                && let [message] = messages.as_slice()
                && let Some(hash) = message.foreseen
            {
                self.live.prefetch_entry(hash);
            }
        }
        for (place, request) in requests.into_iter().enumerate() {
            if out.len() >= out_max || self.on_read(request, out) == Step::AfterWork {
                return place;
            }
        }
        texts.len()
    }

    fn take_work(&mut self) -> Option<Working<Done>> {
        let work = (!self.work.is_empty()).then(|| std::mem::take(&mut self.work))?;
        Some(Box::pin(work.begin(Arc::clone(&self.live))))
    }

    fn on_done(&mut self, done: Done, out: &mut BytesMut) {
        for (id, counts) in std::mem::take(&mut self.acks) {
            let answer = match &done.messages {
                Ok(()) => json::success(id.as_deref(), &counts.fields()),
                Err(fault) => json::error(id.as_deref(), fault),
            };
            (self.dialect.frame)(&answer, out);
        }
        let ids = std::mem::take(&mut self.ids);
        for (id, result) in ids.into_iter().zip(done.changes) {
            let id = id.as_deref();
            let answer = match result {
                Ok(_) => json::success(id, &[]),
                Err(error) => json::error(id, &error.into()),
            };
            (self.dialect.frame)(&answer, out);
        }
        if let Some(held) = done.held {
            self.live.catch_up(held);
        }
    }

    async fn ready(&self) {
        self.quota.may_send().await;
        match &self.outbox {
            Some(outbox) => outbox.ready().await,
            None => pending().await,
        }
    }

    /// One round suffices: the outbox wakes the connection again if it has more.
    fn push(&mut self, out: &mut BytesMut) -> Result<(), Close> {
        let Some(outbox) = &self.outbox else {
            return Ok(());
        };
        let mut sent = std::mem::take(&mut self.sent);
        outbox.take(SEND_BYTES, &mut sent);
        self.quota.charge_sent(&sent.messages);
        let has_room = self.on_sent(&mut sent, out);
        if sent.messages.capacity() > KEPT_MESSAGES {
            sent.messages = Vec::new();
        }
        self.sent = sent;
        has_room.then_some(()).ok_or(Close {
            code: 1013,
            reason: "too slow: what waited for it had no room any more",
        })
    }

    /// Messages of logs may have been withdrawn meanwhile; all other bytes are unchanged.
    fn write<E>(
        &self,
        out: &mut BytesMut,
        write: impl FnOnce(&[u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        if let Some(outbox) = self.outbox.as_ref().filter(|_| self.unsent) {
            return outbox.write(out, write);
        }
        let count = write(out)?;
        out.advance(count);
        Ok(count)
    }

    fn on_all_sent(&mut self) {
        if std::mem::take(&mut self.unsent)
            && let Some(outbox) = &self.outbox
        {
            outbox.on_all_sent();
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(outbox) = &self.outbox {
            for number in self.clients.values() {
                self.live.leave(*number, outbox, true);
            }
        }
    }
}
