//! Steps of the clients of live topics, and the checks that everything arrives.

use serde_json::json;

use super::{Asked, CLIENTS, Client, KEPT, Live, PATIENCE_MS, PUBLISHER, READER, RESUMER, name};
use crate::random::Random;
use crate::server::Server;
use crate::world::{Broken, Finding, World};

/// Step of a client of live topics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LiveStep {
    /// A client listens, on a new connection if it has none.
    Listen {
        client: u8,
    },
    Subscribe {
        client: u8,
        topic: u8,
        from_first: bool,
    },
    Unsubscribe {
        client: u8,
        topic: u8,
    },
    Publish {
        topic: u8,
        count: u8,
    },
    /// A connection ends without a close.
    Cut {
        client: u8,
    },
    /// The client with a place connects and resumes, or leaves. Messages with a log are published once it
    /// has left.
    Resume {
        missed: u8,
    },
    /// Waits until all published messages have arrived.
    Look,
}

impl LiveStep {
    pub fn draw(random: &mut Random) -> Self {
        let mut small = |bound: u8| u8::try_from(random.below(bound.into())).unwrap_or(0);
        let (kind, client, topic) = (small(32), small(CLIENTS), small(6));
        match kind {
            0..=3 => Self::Listen { client },
            4..=8 => Self::Subscribe {
                client,
                topic,
                from_first: small(3) == 0,
            },
            9 => Self::Unsubscribe { client, topic },
            10 => Self::Cut {
                client: if topic < 2 { RESUMER } else { client },
            },
            11 => Self::Look,
            12..=18 => Self::Resume { missed: small(6) },
            _ => Self::Publish {
                // Two of three have a log.
                topic: if topic < 4 { 2 + topic % 2 } else { topic % 2 },
                count: 1 + small(10),
            },
        }
    }
}

impl World {
    pub async fn live_step(&mut self, server: &mut Server, step: LiveStep) -> Result<(), Broken> {
        match step {
            LiveStep::Listen { client } => {
                let client = self.live.client(client)?;
                client.connect(server)?;
                client.listen();
            }
            LiveStep::Subscribe {
                client,
                topic,
                from_first,
            } => {
                let client = self.live.client(client)?;
                client.connect(server)?;
                let may_begin = client.listens && KEPT.contains(&topic);
                client.subscribe(topic, true, (from_first && may_begin).then_some("earliest"));
            }
            LiveStep::Unsubscribe { client, topic } => {
                let client = self.live.client(client)?;
                client.connect(server)?;
                client.subscribe(topic, false, None);
            }
            LiveStep::Cut { client } => {
                let Live { clients, messages } = &mut self.live;
                if let Some(client) = clients.get_mut(usize::from(client)) {
                    client.place.on_end(true, messages);
                    client.lose();
                }
            }
            LiveStep::Resume { missed } => self.resume_or_leave(server, missed)?,
            LiveStep::Publish { topic, count } => self.publish_live(server, topic, count)?,
            LiveStep::Look => self.check_live(server).await?,
        }
        Ok(())
    }

    pub(super) fn publish_live(&mut self, server: &mut Server, topic: u8, count: u8) -> Result<(), Finding> {
        let live = &mut self.live;
        for _ in 0..count {
            let number = live.messages.send(topic);
            for client in live.clients.iter_mut().filter(|client| client.will_get(topic)) {
                client.expected.insert((topic, number));
            }
            let publisher = live.client(PUBLISHER)?;
            publisher.connect(server)?;
            let fields = json!({ "topic": name(topic), "payload": number, "ack": true });
            publisher.ask("publish", fields, Asked::Publish { topic, number });
        }
        Ok(())
    }

    /// Checks at run time that subscribers get every message.
    async fn check_live(&mut self, server: &mut Server) -> Result<(), Broken> {
        for _ in 0..PATIENCE_MS {
            self.tick(server).await?;
            let live = &mut self.live;
            if live.clients.iter().any(|client| !client.waiting.is_empty()) {
                continue;
            }
            let Live { clients, messages } = live;
            let is_owed = |owed: &(u8, u64)| messages.is_acknowledged(owed.0, owed.1);
            for client in clients.iter_mut() {
                client.expected.retain(is_owed);
            }
            let is_done = |client: &Client| client.expected.is_empty() && client.owed(messages).is_none();
            if clients.iter().all(is_done) {
                return Ok(());
            }
        }
        let owed: Vec<_> = self.live.clients.iter().map(|client| &client.expected).collect();
        let clients = self.live.clients.iter();
        let missed: Vec<_> = clients
            .filter_map(|client| client.owed(&self.live.messages))
            .collect();
        let waits = self.live.clients.iter().any(|client| !client.waiting.is_empty());
        Err(Finding(format!(
            "live clients do not get {owed:?}, {missed:?}, or answers: {waits}"
        ))
        .into())
    }

    /// Checks after a start that subscriptions exist, and that a reader from the beginning gets all stored
    /// messages.
    pub async fn check_lives(&mut self, server: &mut Server) -> Result<(), Broken> {
        for number in (0..CLIENTS).chain([RESUMER]) {
            let client = self.live.client(number)?;
            client.connect(server)?;
            client.ask("list", json!({}), Asked::List);
        }
        self.live.client(RESUMER)?.resume_again();
        let reader = self.live.client(READER)?;
        reader.connect(server)?;
        reader.listen();
        self.check_live(server).await?;
        let live = &mut self.live;
        live.messages.begin_reading();
        let reader = live.client(READER)?;
        for topic in KEPT {
            reader.subscribe(topic, true, Some("earliest"));
        }
        for _ in 0..PATIENCE_MS {
            self.tick(server).await?;
            let reader = self.live.client(READER)?;
            if reader.waiting.is_empty() && self.live.messages.is_read() {
                self.rest(server, 20).await?;
                self.live.messages.end_reading();
                self.live.client(READER)?.lose();
                return Ok(());
            }
        }
        let missing = self.live.messages.missing();
        Err(Finding(format!("stored live messages are not there: {missing:?}")).into())
    }
}
