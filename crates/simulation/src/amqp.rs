//! AMQP clients: publishers with confirms, consumers, and a model of the queues' content.

mod checks;
mod client;
pub mod copies;
mod definitions;
mod moves;
mod outcomes;
mod patience;
mod removal;
mod spaces;
mod streams;
mod transactions;
mod views;
mod wire;

use stafett_amqp_wire::methods::{basic, channel, connection, exchange, queue};
use stafett_amqp_wire::{Method, TableBuilder, Value};
use stafett_journal::Journal;

use self::client::{Client, TRANSACTIONAL};
use self::copies::{Copies, Origin};
pub use self::definitions::DefinitionStep;
use self::definitions::Definitions;
pub use self::moves::Move;
pub use self::patience::Patience;
use self::patience::Times;
pub use self::removal::{Removal, Removing};
use self::spaces::Space;
pub use self::spaces::SpaceStep;
pub use self::streams::StreamStep;
pub use self::transactions::TxStep;
use self::views::View;
pub use self::views::ViewStep;
use crate::server::Server;
use crate::steps::{Closing, Message, Settling};
use crate::world::{Broken, Death, Finding, World};

/// Queues of a run.
pub const QUEUES: [&str; QUEUE_COUNT] = [
    "plain", "short", "ranked", "brief", "dead", "late", "aside", "over",
];
const QUEUE_COUNT: usize = 8;
/// The queue with priorities.
const RANKED: u8 = 2;
/// The queue that receives dead letters.
pub const DEAD: u8 = 4;
/// Queues with a dead-letter exchange: `short` and `brief`.
pub const DYING: [u8; 2] = [1, 3];
/// Target besides the queues: a fanout exchange that leads to `plain` and `ranked`.
pub const FAN: u8 = 8;
/// A fanout exchange that leads to `plain`, and to the topic below `over`.
pub const BOTH: u8 = 9;
/// The queue that is published to through a delaying exchange.
pub const LATE: u8 = 5;
/// Target queue of moves.
const ASIDE: u8 = 6;
const FAN_QUEUES: [u8; 2] = [0, 2];
/// The queue over a stored topic, and the topic, which has the messages published to the queue.
pub const OVER: u8 = 7;
const STREAM: &str = "records";

/// AMQP side of a run.
#[derive(Debug, Clone)]
pub struct Amqp {
    clients: Vec<Client>,
    admin: Client,
    space: Space,
    definitions: Definitions,
    view: View,
    /// Clients that read streams, and where they are.
    readers: Vec<Client>,
    places: streams::Places,
    pub copies: Copies,
    /// Number of connections that published.
    streams: u64,
    /// True while the program stops. Clients are disconnected one by one, so a message may go to a second
    /// one.
    pub is_stopping: bool,
}

impl Amqp {
    pub fn new() -> Self {
        Self {
            clients: (0..TRANSACTIONAL.end).map(Client::new).collect(),
            admin: Client::new(u8::MAX),
            space: Space::new(),
            definitions: Definitions::new(),
            view: View::new(),
            readers: streams::readers(),
            places: streams::Places::new(),
            copies: Copies::default(),
            streams: 0,
            is_stopping: false,
        }
    }

    /// Processes the broker's output.
    pub fn turn(&mut self, may_refuse: bool, now_ms: i64) -> Result<Vec<String>, Finding> {
        let mut notes = Vec::new();
        let clients = self.clients.iter_mut().chain(&mut self.readers);
        for client in clients.chain([&mut self.admin]) {
            client.turn(&mut self.copies, may_refuse, now_ms, &mut notes)?;
        }
        let Space { client, copies, .. } = &mut self.space;
        client.turn(copies, may_refuse, now_ms, &mut notes)?;
        let definer = &mut self.definitions.client;
        definer.turn(&mut self.copies, may_refuse, now_ms, &mut notes)?;
        self.definitions.turn();
        self.view.turn(may_refuse, now_ms, &mut notes)?;
        let paused = self.clients.iter().filter(|client| client.is_paused(now_ms));
        let paused: Vec<u8> = paused.map(|client| client.number).collect();
        self.copies.check_holders(self.is_stopping, &paused)?;
        Ok(notes)
    }

    /// Handles the end of the program: no connection is left.
    pub fn on_end(&mut self, now_ms: i64) {
        self.is_stopping = false;
        self.copies.on_end();
        self.space.client.lose(&mut self.space.copies, now_ms);
        self.definitions.client.lose(&mut self.copies, now_ms);
        self.definitions.turn();
        self.view.on_end(now_ms);
        let clients = self.clients.iter_mut().chain(&mut self.readers);
        for client in clients.chain([&mut self.admin]) {
            client.lose(&mut self.copies, now_ms);
        }
    }

    /// Applies the way in which the program ended to the messages in the queues.
    /// Returns the records of topics that are uncertain again.
    pub fn on_death(&mut self, death: Death, now_ms: i64) -> Vec<usize> {
        let records = self.copies.doubt_outcomes(death, now_ms);
        self.copies.on_death(death, now_ms);
        self.space.copies.on_death(death, now_ms);
        self.view.copies.on_death(death, now_ms);
        records
    }

    /// Records that the disk is or may be full, or is not.
    pub fn set_full(&mut self, is_full: bool) {
        self.copies.is_full = is_full;
        self.view.copies.is_full = is_full;
    }

    /// Delays settlements while space is short.
    pub fn wait_since(&mut self, from_ms: i64, now_ms: i64, all: bool) {
        self.copies.wait_since(from_ms, now_ms, all);
        self.view.copies.wait_since(from_ms, now_ms, all);
    }

    /// Records the start of a shutdown.
    pub fn begin_stop(&mut self, now_ms: i64) {
        self.is_stopping = true;
        self.copies.doubt_all(now_ms);
        self.view.copies.doubt_all(now_ms);
    }

    fn client(&mut self, number: u8) -> Option<&mut Client> {
        self.clients.get_mut(usize::from(number))
    }
}

impl Default for Amqp {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the declarations of queues, exchanges and bindings.
fn definitions() -> Vec<Method> {
    let mut methods: Vec<Method> = vec![
        exchange::Declare {
            exchange: "fan".into(),
            kind: "fanout".into(),
            durable: true,
            ..exchange::Declare::default()
        }
        .into(),
        exchange::Declare {
            exchange: "both".into(),
            kind: "fanout".into(),
            durable: true,
            ..exchange::Declare::default()
        }
        .into(),
        exchange::Declare {
            exchange: "later".into(),
            kind: "x-delayed-message".into(),
            durable: true,
            arguments: TableBuilder::new().with("x-delayed-type", "direct").finish(),
            ..exchange::Declare::default()
        }
        .into(),
    ];
    let stream = TableBuilder::new().with("x-queue-type", "stream");
    methods.push(
        queue::Declare {
            queue: STREAM.into(),
            durable: true,
            arguments: stream.finish(),
            ..queue::Declare::default()
        }
        .into(),
    );
    methods.push(binding(STREAM, "both", "over"));
    for number in (0_u8..).take(QUEUE_COUNT) {
        methods.extend(queue_definition(number));
    }
    methods
}

/// Returns the declarations of one queue and its bindings.
fn queue_definition(number: u8) -> Vec<Method> {
    let mut methods = Vec::new();
    if let Some(name) = QUEUES.get(usize::from(number)).copied() {
        let mut arguments = TableBuilder::new();
        if DYING.contains(&number) {
            arguments = arguments
                .with("x-dead-letter-exchange", "")
                .with("x-dead-letter-routing-key", "dead");
        }
        arguments = match name {
            "short" => arguments.with("x-max-length", Value::I32(12)),
            "ranked" => arguments.with("x-max-priority", Value::I32(3)),
            "brief" => arguments.with("x-message-ttl", Value::I32(3000)),
            "over" => arguments.with("x-stafett-topic", STREAM),
            _ => arguments,
        };
        methods.push(
            queue::Declare {
                queue: name.into(),
                durable: true,
                arguments: arguments.finish(),
                ..queue::Declare::default()
            }
            .into(),
        );
    }
    let name = QUEUES.get(usize::from(number)).copied().unwrap_or_default();
    if number == LATE {
        methods.push(binding(name, "later", name));
    }
    if FAN_QUEUES.contains(&number) {
        methods.push(binding(name, "fan", name));
    }
    if number == FAN_QUEUES[0] {
        methods.push(binding(name, "both", name));
    }
    methods
}

fn binding(queue: &'static str, exchange: &'static str, routing_key: &'static str) -> Method {
    let bind = queue::Bind {
        queue: queue.into(),
        exchange: exchange.into(),
        routing_key: routing_key.into(),
        ..queue::Bind::default()
    };
    bind.into()
}

impl World {
    /// Declares queues and exchanges; repeated after each start.
    pub async fn declare(&mut self, server: &mut Server) -> Result<(), Broken> {
        self.tell(server, definitions()).await
    }

    /// Deletes all queues with their messages.
    pub async fn delete_queues(&mut self, server: &mut Server) -> Result<(), Broken> {
        let delete = |name: &&str| {
            queue::Delete {
                queue: (*name).into(),
                ..queue::Delete::default()
            }
            .into()
        };
        // The queue over the stream goes first.
        self.tell(server, QUEUES.iter().chain([&STREAM]).map(delete).collect())
            .await
    }

    /// Sends methods as the administrator's client and waits for all answers.
    async fn tell(&mut self, server: &mut Server, methods: Vec<Method>) -> Result<(), Broken> {
        self.amqp.admin.connect(server)?;
        let wanted = methods.len();
        for method in methods {
            self.amqp.admin.send(method);
        }
        for _ in 0..20_000 {
            self.tick(server).await?;
            if self.amqp.admin.declared == wanted {
                self.amqp.admin.declared = 0;
                return Ok(());
            }
            if self.has_failed() && server.journal.failure().is_some() {
                return Err(Broken::Died(Death::Failed));
            }
            if !self.amqp.admin.is_connected() {
                return Err(Finding("a definition ends the connection".to_owned()).into());
            }
        }
        Err(Finding("definitions are not answered".to_owned()).into())
    }

    pub fn publish(
        &mut self,
        server: &mut Server,
        client: u8,
        target: u8,
        message: Message,
    ) -> Result<(), Broken> {
        let homes: &[u8] = if target == FAN { &FAN_QUEUES } else { &[target] };
        let Some(it) = self.amqp.clients.get_mut(usize::from(client)) else {
            return Ok(());
        };
        if it.connect(server)? {
            self.amqp.streams += 1;
            it.stream = self.amqp.streams;
        }
        let message = Message {
            // Messages that wait at an exchange and records of topics are always stored.
            is_persistent: message.is_persistent || matches!(target, LATE | OVER),
            patience: message.patience.at(target),
            ..message
        };
        for _ in 0..message.count {
            let origin = Origin {
                // Delayed messages arrive in the order of their times, not of their publisher.
                stream: if target == LATE { 0 } else { it.stream },
                priority: message.priority,
                times: Times::new(message.patience, self.amqp.copies.clock_ms),
            };
            let number = self.amqp.copies.add(homes, message.is_persistent, origin);
            it.publish(number, target, message);
            self.trace
                .note(|| format!("client {client} publishes message {number} to {target}"));
        }
        Ok(())
    }

    pub fn consume(&mut self, server: &mut Server, client: u8, queue: u8) -> Result<(), Broken> {
        let now_ms = self.now_ms();
        let copies = &self.amqp.copies;
        if let Some(client) = self.amqp.clients.get_mut(usize::from(client)) {
            client.connect(server)?;
            client.consume(copies, queue, now_ms);
        }
        Ok(())
    }

    pub fn get(&mut self, server: &mut Server, client: u8, queue: u8) -> Result<(), Broken> {
        if let Some(client) = self.amqp.client(client) {
            client.connect(server)?;
            client.get(queue);
        }
        Ok(())
    }

    pub fn settle(&mut self, client: u8, count: u8, how: Settling) {
        let now_ms = self.now_ms();
        let copies = &mut self.amqp.copies;
        if let Some(client) = self.amqp.clients.get_mut(usize::from(client)) {
            client.settle(copies, count, how, now_ms);
        }
    }

    pub fn pause(&mut self, client: u8, for_ms: u32) {
        let until = self.now_ms() + i64::from(for_ms);
        if let Some(client) = self.amqp.client(client) {
            client.paused_until_ms = until;
        }
    }

    pub fn cancel(&mut self, client: u8) {
        if let Some(client) = self.amqp.client(client) {
            client.cancel();
        }
    }

    /// Closes a client's channel or connection, or cuts it, after the client may have settled its messages.
    pub fn close(&mut self, client: u8, how: Closing, settles: Option<Settling>) {
        if let Some(settling) = settles {
            self.settle(client, u8::MAX, settling);
        }
        match how {
            Closing::Channel => self.close_channel(client),
            Closing::Connection => self.close_connection(client),
            Closing::Cut => self.cut(client),
        }
    }

    fn close_channel(&mut self, client: u8) {
        let now_ms = self.now_ms();
        let copies = &mut self.amqp.copies;
        if let Some(client) = self.amqp.clients.get_mut(usize::from(client)) {
            let method = channel::Close {
                reply_code: 200,
                ..channel::Close::default()
            };
            client.close(copies, method, now_ms);
        }
    }

    fn close_connection(&mut self, client: u8) {
        let now_ms = self.now_ms();
        let copies = &mut self.amqp.copies;
        if let Some(client) = self.amqp.clients.get_mut(usize::from(client)) {
            let method = connection::Close {
                reply_code: 200,
                ..connection::Close::default()
            };
            client.close(copies, method, now_ms);
        }
    }

    /// Cuts the connection without a close.
    fn cut(&mut self, client: u8) {
        let now_ms = self.now_ms();
        let copies = &mut self.amqp.copies;
        if let Some(client) = self.amqp.clients.get_mut(usize::from(client)) {
            client.lose(copies, now_ms);
        }
    }
}

/// Returns the publish method for a queue or the fanout exchange.
fn publish_method(target: u8) -> basic::Publish {
    match QUEUES.get(usize::from(target)) {
        Some(name) if target == LATE => basic::Publish {
            exchange: "later".into(),
            routing_key: (*name).into(),
            ..basic::Publish::default()
        },
        Some(name) => basic::Publish {
            routing_key: (*name).into(),
            ..basic::Publish::default()
        },
        None if target == BOTH => basic::Publish {
            exchange: "both".into(),
            routing_key: "over".into(),
            ..basic::Publish::default()
        },
        None => basic::Publish {
            exchange: "fan".into(),
            ..basic::Publish::default()
        },
    }
}
